#!/usr/bin/env bash
# Translate the test documents with one system and score them.
#
#   bash generate.sh WORK SYSTEM CHECKPOINT OUT [options of fairseq-generate]
#
# SYSTEM is a system of train.sh.  --drafts DRAFTS: the translations of base (make_drafts.sh) from which
# the decoding of a target memory starts, with one further pass as in the paper.  Before this: train.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM CHECKPOINT OUT "[options of fairseq-generate]" -- "$@"
refuse_for_results
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

translate() {
  fairseq-generate "$work/bin" --user-dir "$user_dir" --path "$checkpoint" \
    --beam 1 --max-len-a 2 --max-len-b 0 --results-path "$out" "$@" "${more[@]}"
}

case $system in
  base) translate --task sliding_window_translation --batch-size 64 ;;
  source | source-output) translate --task document_rows_translation --batch-size 1 ;;
  target | target-output | both | both-output) translate --task document_rows_translation --batch-size 1 --decode-passes 1 ;;
  prevtrg | jean2017 | wang2017) translate --task sentence_stream_translation --batch-size 32 ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
python "$(dirname "$0")/../join_documents.py" "$out/generate-test.txt" "$out"
echo "BLEU over sentences, lower-cased Moses tokens"
sacrebleu "$out/reference.sentences" -i "$out/hypothesis.sentences" -m bleu --force
echo "BLEU-1 (table 5 of the paper)"
python -c 'import sys
from sacrebleu.metrics import BLEU
hypothesis, reference = (open(f, encoding="utf-8").read().splitlines() for f in sys.argv[1:])
print(BLEU(max_ngram_order=1, force=True).corpus_score(hypothesis, [reference]))' \
  "$out/hypothesis.sentences" "$out/reference.sentences"
