#!/usr/bin/env bash
# Make the training data of DocRepair from monolingual documents: translate every sentence, by itself,
# to the other language and back.
#
#   bash round_trips.sh MONO WORK DATA BACK FORTH [--source-lang en] [--target-lang de] [--beam 4]
#       [--temperature 0.5] [--noise 0.1] [--copies 1] [options of fairseq-interactive, e.g. --fp16]
#
# MONO has the documents in the target language, train.de and valid.de, in the form of the training text
# (data_prep/apply_form.py).  DATA is the binarised folder of two sentence-level models: BACK translates
# to the source language, FORTH to the target language.  Writes WORK/bin, with round trips as language
# roundtrip.
# --beam of the translations by BACK, and of both for validation; --temperature of sampling by FORTH;
# --noise: probability of replacing a subword; --copies of the training documents, each with other
# samples and noise.
# Next: train.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../flags.sh"
read_arguments MONO WORK DATA BACK FORTH --source-lang=en --target-lang=de --beam:count=4 \
  --temperature:positive=0.5 --noise:share=0.1 --copies:count=1 "[options of fairseq-interactive]" -- "$@"
refuse --seed --window-size
src=$source_lang tgt=$target_lang
dictionary=$data/dict.$tgt.txt
text=$work/text

translate() { # FROM TO CHECKPOINT INPUT OUTPUT [options]
  bash "$here/translate.sh" "$data" "${@:3:3}" -s "$1" -t "$2" "${@:6}" "${more[@]}" --window-size 1
}

for split in train valid; do
  # The blank lines are then where translate.sh writes them: one between two documents.
  fairseq-docmt convert --to text --out "$text/original.$split.$tgt" \
    "$mono/$split.$tgt"
  translate "$tgt" "$src" "$back" "$text/original.$split.$tgt" "$text/$split.$src" --beam "$beam"
done
cp "$text/original.valid.$tgt" "$text/valid.$tgt"
translate "$src" "$tgt" "$forth" "$text/valid.$src" "$text/valid.roundtrip" --beam "$beam"
rm -f "$text"/train.{"$tgt",roundtrip}
for ((seed = 1; seed <= copies; seed++)); do
  sampled=$text/sampled$seed.$tgt
  translate "$src" "$tgt" "$forth" "$text/train.$src" "$sampled" \
    --sampling --temperature "$temperature" --beam 1 --seed "$seed"
  python "$here/add_noise.py" "$sampled" --out "$sampled.noisy" \
    --dictionary "$dictionary" --probability "$noise" --seed "$seed"
  # The blank line after each copy ends its last document.
  { cat "$text/original.train.$tgt"; echo; } >> "$text/train.$tgt"
  { cat "$sampled.noisy"; echo; } >> "$text/train.roundtrip"
done
rm -rf "${work:?}/bin"
fairseq-preprocess -s roundtrip -t "$tgt" --srcdict "$dictionary" --tgtdict "$dictionary" \
  --trainpref "$text/train" --validpref "$text/valid" --destdir "$work/bin"
