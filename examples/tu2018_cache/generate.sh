#!/usr/bin/env bash
# Translate the test documents with one system and score them case-insensitively, as in the paper.
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
    --beam 10 --lenpen 1 --batch-size 32 --remove-bpe --results-path "$out" "$@" "${more[@]}"
}

case $system in
  base) translate --task sliding_window_translation ;;
  cache | cache-shallow | cache-no-overwrite | wang2017 | jean2017) translate --task sentence_stream_translation ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
python "$(dirname "$0")/../join_documents.py" "$out/generate-test.txt" "$out"
echo "BLEU over sentences, Moses tokens, regardless of case"
sacrebleu "$out/reference.sentences" -i "$out/hypothesis.sentences" -m bleu -lc --force
