#!/usr/bin/env bash
# Prepare documents as binarised corpora, as in Maruf and Haffari (2018): lower-cased, with words seen
# less than five times replaced by the unknown word.
#
#   bash prepare.sh CORPUS WORK [--source-lang de] [--target-lang en]
#
# CORPUS has train, valid and test with the languages as suffixes: one sentence per line, and a blank
# line between documents (see README.md for TED, Europarl and News Commentary).
# Next: train_sentence_lm.sh and train.sh.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
source "$top/examples/flags.sh"
read_arguments CORPUS WORK --source-lang=de --target-lang=en -- "$@"
src=$source_lang tgt=$target_lang
export PYTHONWARNINGS=ignore
mkdir -p "$work/lower"

for split in train valid test; do
  python "$top/data_prep/check_documents.py" "$corpus/$split.$src" "$corpus/$split.$tgt" > /dev/null
done
for file in "$corpus"/{train,valid,test}."$src" "$corpus"/{train,valid,test}."$tgt"; do
  python -c 'import sys; sys.stdout.write(open(sys.argv[1], encoding="utf-8").read().lower())' \
    "$file" > "$work/lower/$(basename "$file")"
done
lower=$work/lower text=$work/data/text/tokenized
python "$top/data_prep/prepare.py" --source-lang "$src" --target-lang "$tgt" \
  --train "$lower/train" --valid "$lower/valid" --test "$lower/test" \
  --destdir "$work/data" --bpe-operations 0
rm -rf "${work:?}/bin"
fairseq-preprocess -s "$src" -t "$tgt" --destdir "$work/bin" --thresholdsrc 5 --thresholdtgt 5 \
  --trainpref "$text/train" --validpref "$text/valid" --testpref "$text/test"
