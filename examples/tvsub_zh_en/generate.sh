#!/usr/bin/env bash
# Translate the test episodes with both systems and score the detokenized text.
#
#   bash generate.sh WORK
#
# Before this: train.sh.
set -euo pipefail
work=$1
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt 2> /dev/null)
reference=$work/reference.en
grep . "$work/data/text/raw/test.en" > "$reference"

translate() {
  local size=$1 decoding=$2
  local name=window${size}_$decoding
  fairseq-generate "$work/data/bin" --user-dir "$user_dir" --task sliding_window_translation \
    --decoding "$decoding" --path "$work/window$size/checkpoint_last.pt" \
    --source-lang zh --target-lang en --beam 4 --max-len-a 1.5 --max-len-b 10 \
    --max-tokens 6000 --cpu --num-workers 0 --remove-bpe --tokenizer moses \
    --results-path "$work/out_$name" > "$work/$name.log" 2>&1
  # D- lines hold detokenized text; sorted by line number they are the documents in order.
  grep '^D-' "$work/out_$name/generate-test.txt" | LC_ALL=C sort -t- -k2,2n | cut -f3 \
    > "$work/$name.en"
  echo "$name"
  grep '^Translated' "$work/out_$name/generate-test.txt" || grep -h Translated "$work/$name.log"
  sacrebleu "$reference" -i "$work/$name.en" -m bleu chrf
}

translate 1 window
translate 4 window
translate 4 sequential
