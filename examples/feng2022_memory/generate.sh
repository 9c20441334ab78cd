#!/usr/bin/env bash
# Translate the test documents with one system and score them.
#
#   bash generate.sh WORK SYSTEM CHECKPOINT OUT [options of fairseq-generate]
#
# SYSTEM is sentence, or the side of the memory: both, source or target.  Before this: train.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM CHECKPOINT OUT "[options of fairseq-generate]" -- "$@"
refuse_for_results
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
raw=$work/data/text/raw/test.de
[ -f "$raw" ] || { echo "error: $raw is missing; make it by prepare.sh" >&2; exit 1; }

translate() {
  fairseq-generate "$work/data/bin" --user-dir "$user_dir" --path "$checkpoint" \
    --beam 5 --lenpen 1 --max-len-a 0 --max-len-b 150 --batch-size 32 \
    --remove-bpe --results-path "$out" "$@" "${more[@]}"
}

case $system in
  sentence) translate --task sliding_window_translation ;;
  both|source|target) translate --task sentence_stream_translation ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac

python "$(dirname "$0")/../join_documents.py" "$out/generate-test.txt" "$out"
# As published: words separated by spaces, no smoothing.
for unit in documents sentences; do
  echo "BLEU as published, over $unit: truecased Moses tokens"
  sacrebleu "$out/reference.$unit" -i "$out/hypothesis.$unit" -m bleu \
    --tokenize none --smooth-method none --force
done
echo "sacreBLEU (13a) over sentences, detokenized text: not comparable with the paper"
grep . "$raw" > "$out/reference.detokenized"
sacrebleu "$out/reference.detokenized" -i "$out/hypothesis.detokenized" -m bleu
