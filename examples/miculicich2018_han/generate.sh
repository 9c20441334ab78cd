#!/usr/bin/env bash
# Translate the test documents with one system and score them.
#
#   bash generate.sh WORK SYSTEM CHECKPOINT OUT [options of fairseq-generate]
#
# SYSTEM is a system of train.sh.  Before this: train.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM CHECKPOINT OUT "[options of fairseq-generate]" -- "$@"
refuse_for_results
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

translate() {
  fairseq-generate "$work/data/bin" --user-dir "$user_dir" --path "$checkpoint" \
    --beam 5 --lenpen 0 --max-len-a 0 --max-len-b 100 --batch-size 32 \
    --remove-bpe --results-path "$out" "$@" "${more[@]}"
}

case $system in
  sentence) translate --task sliding_window_translation ;;
  encoder | decoder | joint) translate --task sentence_stream_translation ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
python "$(dirname "$0")/../join_documents.py" "$out/generate-test.txt" "$out"
echo "BLEU over sentences, Moses tokens"
sacrebleu "$out/reference.sentences" -i "$out/hypothesis.sentences" -m bleu \
  --tokenize none --smooth-method none --force
