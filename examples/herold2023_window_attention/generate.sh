#!/usr/bin/env bash
# Translate the test documents with one system and score them.
#
#   bash generate.sh WORK SYSTEM CHECKPOINT OUT [--corpus news] [options of fairseq-generate]
#
# SYSTEM is a system of train.sh, --corpus news, ted or os.  --decoding is segment (FSD in the paper,
# here the default) or sequential (SD).  Alignments of window attention: --model-overrides
# "{'alignment': 'linear'}".  Before this: train.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM CHECKPOINT OUT --corpus=news "[options of fairseq-generate]" -- "$@"
refuse_for_results --nbest
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
case $corpus in
  news | os) target=de ;;
  ted) target=it ;;
  *) echo "error: unknown corpus $corpus; see bash ${0##*/} --help" >&2; exit 1 ;;
esac

translate() {
  fairseq-generate "$work/data/bin" --user-dir "$user_dir" --source-lang en --target-lang "$target" \
    --decoding segment --path "$checkpoint" --beam 12 --lenpen 1 --max-len-a 2 --max-len-b 50 \
    --max-tokens 4096 --remove-bpe --tokenizer moses --results-path "$out" "$@" "${more[@]}"
}

case $system in
  sentence | concat2) translate --task sliding_window_translation ;;
  concat1000 | lst | window | window-abs | relative1000) translate --task full_document_translation ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
# D- lines hold detokenized text; sorting by line number restores the order of the documents.
grep '^D-' "$out/generate-test.txt" | LC_ALL=C sort -t- -k2,2n | cut -f3 > "$out/test.txt"
grep . "$work/data/text/raw/test.$target" > "$out/reference"
sacrebleu "$out/reference" -i "$out/test.txt" -m bleu ter
