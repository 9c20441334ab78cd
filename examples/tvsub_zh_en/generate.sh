#!/usr/bin/env bash
# Translate the test episodes and zpdev with both systems, and score the detokenized text.
#
#   bash generate.sh WORK [options of fairseq-generate]
#
# Before this: train.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK "[options of fairseq-generate]" -- "$@"
refuse_for_results --nbest
export PYTHONWARNINGS=ignore OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
user_dir=$(python -m fairseq_docmt)
# The second test set, zpdev, is named test1 from preparation on.
grep . "$work/data/text/raw/test.en" > "$work/test.reference"
grep . "$work/data/text/raw/test1.en" > "$work/zpdev.reference"

translate() {
  local size=$1 decoding=$2 subset=$3 name=$4
  local out=window${size}_${decoding}_$name
  fairseq-generate "$work/data/bin" --user-dir "$user_dir" --task sliding_window_translation \
    --decoding "$decoding" --path "$work/window$size/checkpoint_last.pt" \
    --source-lang zh --target-lang en --gen-subset "$subset" \
    --beam 4 --max-len-a 1.5 --max-len-b 10 \
    --max-tokens 6000 --cpu --num-workers 0 --remove-bpe --tokenizer moses \
    --results-path "$work/out_$out" "${more[@]}" > "$work/$out.log" 2>&1
  # D- lines hold detokenized text; sorting by line number restores the order of the documents.
  grep '^D-' "$work/out_$out/generate-$subset.txt" | LC_ALL=C sort -t- -k2,2n | cut -f3 \
    > "$work/$out.en"
  echo "$out"
  grep -h 'Translated [0-9]' "$work/out_$out/generate-$subset.txt" "$work/$out.log" || true
  sacrebleu "$work/$name.reference" -i "$work/$out.en" -m bleu chrf
}

translate 1 window test1 zpdev
translate 4 window test1 zpdev
translate 4 sequential test1 zpdev
translate 1 window test test
translate 4 sequential test test
translate 4 window test test
