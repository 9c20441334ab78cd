#!/usr/bin/env bash
# Translate the test documents with one system and score them.
#
#   bash generate.sh WORK SYSTEM CHECKPOINT OUT [more options]
#
# SYSTEM is a system of train.sh.  Environment: BATCH, sentences or parts of documents side by side
# (16); DECODING of whole documents, segment (as the authors; default), sequential or
# sequential-full-source.  Before this: train.sh.
set -euo pipefail
: "${4:?usage: bash generate.sh WORK SYSTEM CHECKPOINT OUT [more options]}"
work=$1 system=$2 checkpoint=$3 out=$4
shift 4
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

translate() {
  fairseq-generate "$work/data/bin" --user-dir "$user_dir" --path "$checkpoint" \
    --beam 5 --lenpen 1 --max-len-a 1.2 --max-len-b 10 --batch-size "${BATCH:-16}" \
    --remove-bpe --results-path "$out" "$@"
}

case $system in
  sentence) translate --task sliding_window_translation "$@" ;;
  group | group-scratch)
    decoding=(--decoding "${DECODING:-segment}")
    [ "${decoding[1]}" != segment ] || decoding+=(--force-sentence-count)
    translate --task full_document_translation "${decoding[@]}" "$@" ;;
  *) echo "error: unknown system $system; see the head of $0" >&2; exit 1 ;;
esac

python "$(dirname "$0")/../join_documents.py" "$out/generate-test.txt" "$out"
# Detokenized sentences, with the blank lines between documents that the reference has.
reference=$work/data/text/raw/test.de
awk -v sentences="$out/hypothesis.detokenized" \
  '{ line = ""; if (NF) getline line < sentences; print line }' "$reference" > "$out/translation.de"
fairseq-docmt metrics --metrics s-bleu,d-bleu --reference "$reference" \
  "$system=$out/translation.de"
