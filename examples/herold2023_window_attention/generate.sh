#!/usr/bin/env bash
# Translate the test documents with one system and score them.
#
#   bash generate.sh DATA TASK DECODING CHECKPOINT REFERENCE OUT [more options]
#
# TASK is window (systems sentence and concat2) or document (all others).  DECODING is segment (FSD in
# the paper) or sequential (SD).  REFERENCE has detokenized sentences without blank lines.
# Alignments of window attention: --model-overrides "{'alignment': 'linear'}".
# Environment: CORPUS is news (default), ted or os, and sets the languages; MAX_TOKENS sets the batch
# size.  Before this: train.sh.
set -euo pipefail
: "${6:?usage: bash generate.sh DATA TASK DECODING CHECKPOINT REFERENCE OUT [more options]}"
data=$1 task=$2 decoding=$3 checkpoint=$4 reference=$5 out=$6
shift 6
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
case ${CORPUS:-news} in
  news | os) target=de ;;
  ted) target=it ;;
  *) echo "error: unknown corpus $CORPUS; see the head of $0" >&2; exit 1 ;;
esac

translate() {
  fairseq-generate "$data" --user-dir "$user_dir" --source-lang en --target-lang "$target" \
    --decoding "$decoding" --path "$checkpoint" --beam 12 --lenpen 1 --max-len-a 2 --max-len-b 50 \
    --max-tokens "${MAX_TOKENS:-4096}" --remove-bpe --tokenizer moses --results-path "$out" "$@"
}

case $task in
  window) translate --task sliding_window_translation "$@" ;;
  document) translate --task full_document_translation "$@" ;;
  *) echo "error: unknown task $task; see the head of $0" >&2; exit 1 ;;
esac
# D- lines hold detokenized text; sorting by line number restores the order of the documents.
grep '^D-' "$out/generate-test.txt" | LC_ALL=C sort -t- -k2,2n | cut -f3 > "$out/test.txt"
sacrebleu "$reference" -i "$out/test.txt" -m bleu ter
