#!/usr/bin/env bash
# Translate the test documents with one system and score them.
#
#   bash generate.sh WORK SYSTEM CHECKPOINT OUT [--decoding segment] [options of fairseq-generate]
#
# SYSTEM is a system of train.sh.  --decoding of whole documents: segment (as the authors), sequential
# or sequential-full-source.  Before this: train.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM CHECKPOINT OUT --decoding=segment "[options of fairseq-generate]" -- "$@"
refuse_for_results
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

translate() {
  fairseq-generate "$work/data/bin" --user-dir "$user_dir" --path "$checkpoint" \
    --beam 5 --lenpen 1 --max-len-a 1.2 --max-len-b 10 --batch-size 16 \
    --remove-bpe --results-path "$out" "$@" "${more[@]}"
}

case $system in
  sentence) translate --task sliding_window_translation ;;
  group | group-scratch)
    search=(--decoding "$decoding")
    [ "$decoding" != segment ] || search+=(--force-sentence-count)
    translate --task full_document_translation "${search[@]}" ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac

python "$(dirname "$0")/../join_documents.py" "$out/generate-test.txt" "$out"
# Detokenized sentences, with the blank lines between documents that the reference has.
reference=$work/data/text/raw/test.de
awk -v sentences="$out/hypothesis.detokenized" \
  '{ line = ""; if (NF) getline line < sentences; print line }' "$reference" > "$out/translation.de"
fairseq-docmt metrics --metrics s-bleu,d-bleu --reference "$reference" \
  "$system=$out/translation.de"
