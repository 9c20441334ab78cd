#!/usr/bin/env bash
# Translate the test documents with one system and score them case-insensitively, as in the paper.
#
#   bash generate.sh DATA SYSTEM CHECKPOINT OUT [more options]
#
# SYSTEM is a system of train.sh.  Environment: BATCH, documents or sentences in parallel (32).
# Before this: train.sh.
set -euo pipefail
: "${4:?usage: bash generate.sh DATA SYSTEM CHECKPOINT OUT [more options]}"
data=$1 system=$2 checkpoint=$3 out=$4
shift 4
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

translate() {
  fairseq-generate "$data" --user-dir "$user_dir" --path "$checkpoint" \
    --beam 10 --lenpen 1 --batch-size "${BATCH:-32}" --remove-bpe --results-path "$out" "$@"
}

case $system in
  base) translate --task sliding_window_translation "$@" ;;
  cache* | wang2017 | jean2017) translate --task sentence_stream_translation "$@" ;;
  *) echo "error: unknown system $system; see the head of $0" >&2; exit 1 ;;
esac
python "$(dirname "$0")/../join_documents.py" "$out/generate-test.txt" "$out"
echo "BLEU over sentences, Moses tokens, regardless of case"
sacrebleu "$out/reference.sentences" -i "$out/hypothesis.sentences" -m bleu -lc --force
