#!/usr/bin/env bash
# Make the training data of DocRepair from monolingual documents: translate every sentence, by itself,
# to the other language and back.
#
#   bash round_trips.sh DATA SRC TGT BACK FORTH MONO WORK [options of fairseq-interactive, e.g. --fp16]
#
# DATA is the binarised folder of two sentence-level models: BACK translates TGT to SRC, FORTH SRC to
# TGT.  MONO has the documents, train.TGT and valid.TGT, in the form of the training text
# (data_prep/apply_form.py).  Writes WORK/bin, with round trips as language roundtrip.
# Environment: BEAM of the translations to SRC, and of both ways for validation (4); TEMPERATURE of
# sampling back to TGT (0.5); NOISE, probability of replacing a subword (0.1); COPIES of the training
# documents, each with other samples and noise (1).
# Next: train.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${7:?usage: bash round_trips.sh DATA SRC TGT BACK FORTH MONO WORK [options of fairseq-interactive]}"
data=$1 src=$2 tgt=$3 back=$4 forth=$5 mono=$6 work=$7
shift 7
beam=(--beam "${BEAM:-4}") dictionary=$data/dict.$tgt.txt
text=$work/text

translate() { # FROM TO CHECKPOINT INPUT OUTPUT [options]
  bash "$here/translate.sh" "$data" "$@" --window-size 1
}

for split in train valid; do
  # The blank lines are then where translate.sh writes them: one between two documents.
  fairseq-docmt convert --to text --out "$text/original.$split.$tgt" \
    "$mono/$split.$tgt"
  translate "$tgt" "$src" "$back" "$text/original.$split.$tgt" "$text/$split.$src" \
    "${beam[@]}" "$@"
done
cp "$text/original.valid.$tgt" "$text/valid.$tgt"
translate "$src" "$tgt" "$forth" "$text/valid.$src" "$text/valid.roundtrip" "${beam[@]}" "$@"
rm -f "$text"/train.{"$tgt",roundtrip}
for ((seed = 1; seed <= ${COPIES:-1}; seed++)); do
  sampled=$text/sampled$seed.$tgt
  translate "$src" "$tgt" "$forth" "$text/train.$src" "$sampled" \
    --sampling --temperature "${TEMPERATURE:-0.5}" --beam 1 --seed "$seed" "$@"
  python "$here/add_noise.py" "$sampled" --out "$sampled.noisy" \
    --dictionary "$dictionary" --probability "${NOISE:-0.1}" --seed "$seed"
  # The blank line after each copy ends its last document.
  { cat "$text/original.train.$tgt"; echo; } >> "$text/train.$tgt"
  { cat "$sampled.noisy"; echo; } >> "$text/train.roundtrip"
done
rm -rf "${work:?}/bin"
fairseq-preprocess -s roundtrip -t "$tgt" --srcdict "$dictionary" --tgtdict "$dictionary" \
  --trainpref "$text/train" --validpref "$text/valid" --destdir "$work/bin"
