#!/usr/bin/env bash
# Translate whole splits with a sentence-level model.  The translations fill the target memory in
# training (Maruf and Haffari 2018, section 5), and iterative decoding can start from them.
#
#   bash make_drafts.sh DATA CHECKPOINT OUT SPLIT... [--source-lang de] [--target-lang en]
#       [options of fairseq-generate]
#
# DATA is a binarised folder.  Example:
#   bash make_drafts.sh WORK/bin base/checkpoint_best.pt drafts train valid test --cpu
# Next: --drafts OUT for fairseq-train and fairseq-generate.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments DATA CHECKPOINT OUT SPLIT... --source-lang=de --target-lang=en \
  "[options of fairseq-generate]" -- "$@"
refuse_for_results --nbest --remove-bpe --post-process
src=$source_lang tgt=$target_lang
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
mkdir -p "$out/text"
dict=$data/dict.$tgt.txt

for split in "${splits[@]}"; do
  fairseq-generate "$data" --user-dir "$user_dir" -s "$src" -t "$tgt" \
    --task sliding_window_translation --path "$checkpoint" --gen-subset "$split" \
    --beam 1 --max-tokens 4000 --skip-invalid-size-inputs-valid-test \
    --results-path "$out/generated" "${more[@]}"
  # Line numbers of fairseq-generate count blank lines, which are restored here.
  grep '^H-' "$out/generated/generate-$split.txt" | LC_ALL=C sort -t- -k2,2n \
    | awk -F'\t' '{ n = substr($1, 3) + 0; while (line < n) { print ""; line++ } print $3; line++ }' \
    > "$out/text/$split.$tgt"
  # Binarise each split as the training set of its own corpus, then rename it.
  rm -rf "$out/bin"
  fairseq-preprocess --only-source -s "$tgt" --srcdict "$dict" \
    --trainpref "$out/text/$split" --destdir "$out/bin"
  for end in bin idx; do
    mv "$out/bin/train.$tgt-None.$tgt.$end" "$out/$split.$tgt-None.$tgt.$end"
  done
done
rm -rf "$out/bin"
