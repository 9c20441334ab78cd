#!/usr/bin/env bash
# Translate the test documents with one system and score them.
#
#   bash generate.sh WORK CHECKPOINT PAIR DECODING OUT [more options]
#
# PAIR is zh-en or en-ru.  DECODING is one of
#   sequential  the model's own translations as target context, as for the published IWSLT results
#   window      each window is translated as a whole (figure 1 of the paper)
#   segment     each group is translated as a whole, for systems trained on groups
# Before this: train.sh.
set -euo pipefail
: "${5:?usage: bash generate.sh WORK CHECKPOINT PAIR DECODING OUT [more options]}"
work=$1 checkpoint=$2 pair=$3 decoding=$4 out=$5
shift 5
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

translate() {
  fairseq-generate "$work/data/bin" --user-dir "$user_dir" --decoding "$decoding" \
    --path "$checkpoint" --beam 4 --lenpen 1 \
    --max-tokens 6000 --remove-bpe --results-path "$out" "$@"
}

# Length limits as in the authors' code.
case $pair:$decoding in
  zh-en:window | zh-en:sequential) translate --task sliding_window_translation \
    --source-lang zh --target-lang en --max-len-a 1.2 --max-len-b 70 "$@" ;;
  en-ru:window | en-ru:sequential) translate --task sliding_window_translation \
    --source-lang en --target-lang ru --max-len-a 1.0 --max-len-b 50 "$@" ;;
  en-ru:segment) translate --task full_document_translation \
    --source-lang en --target-lang ru --max-len-a 1.0 --max-len-b 50 "$@" ;;
  *) echo "error: unknown pair $pair or decoding $decoding; see the head of $0" >&2; exit 1 ;;
esac

python "$(dirname "$0")/../join_documents.py" "$out/generate-test.txt" "$out"
for unit in documents sentences; do
  echo "BLEU over $unit, truecased Moses tokens"
  sacrebleu "$out/reference.$unit" -i "$out/hypothesis.$unit" -m bleu --force
done
# OpenSubtitles is distributed tokenized, so only talks have a detokenized reference.
if [ "$pair" = zh-en ]; then
  echo "BLEU over sentences, detokenized text"
  grep . "$work/data/text/raw/test.en" > "$out/reference.detokenized"
  sacrebleu "$out/reference.detokenized" -i "$out/hypothesis.detokenized" -m bleu
fi
