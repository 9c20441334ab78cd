#!/usr/bin/env bash
# Translate the test documents with one system and score them.
#
#   bash generate.sh WORK SYSTEM CHECKPOINT OUT [--corpus iwslt] [--decoding sequential]
#       [options of fairseq-generate]
#
# SYSTEM is a system of train.sh, --corpus iwslt or opensubtitles.  --decoding is one of
#   sequential  the model's own translations as target context, as for the published IWSLT results
#   window      each window is translated as a whole (figure 1 of the paper)
#   segment     each group is translated as a whole, for systems trained on groups
# Before this: train.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM CHECKPOINT OUT --corpus=iwslt --decoding=sequential \
  "[options of fairseq-generate]" -- "$@"
refuse_for_results
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

case $system in
  transformer | rfa | rfa-sgate | rfa-sgate-avg) ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac

translate() {
  fairseq-generate "$work/data/bin" --user-dir "$user_dir" --decoding "$decoding" \
    --path "$checkpoint" --beam 4 --lenpen 1 \
    --max-tokens 6000 --remove-bpe --results-path "$out" "$@" "${more[@]}"
}

# Length limits as in the authors' code.
case $corpus:$decoding in
  iwslt:window | iwslt:sequential) translate --task sliding_window_translation \
    --source-lang zh --target-lang en --max-len-a 1.2 --max-len-b 70 ;;
  opensubtitles:window | opensubtitles:sequential) translate --task sliding_window_translation \
    --source-lang en --target-lang ru --max-len-a 1.0 --max-len-b 50 ;;
  opensubtitles:segment) translate --task full_document_translation \
    --source-lang en --target-lang ru --max-len-a 1.0 --max-len-b 50 ;;
  *) echo "error: no decoding $decoding of corpus $corpus; see bash ${0##*/} --help" >&2; exit 1 ;;
esac

python "$(dirname "$0")/../join_documents.py" "$out/generate-test.txt" "$out"
for unit in documents sentences; do
  echo "BLEU over $unit, truecased Moses tokens"
  sacrebleu "$out/reference.$unit" -i "$out/hypothesis.$unit" -m bleu --force
done
# OpenSubtitles is distributed tokenized, so only talks have a detokenized reference.
if [ "$corpus" = iwslt ]; then
  echo "BLEU over sentences, detokenized text"
  grep . "$work/data/text/raw/test.en" > "$out/reference.detokenized"
  sacrebleu "$out/reference.detokenized" -i "$out/hypothesis.detokenized" -m bleu
fi
