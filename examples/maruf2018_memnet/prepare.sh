#!/usr/bin/env bash
# Prepare documents as binarised corpora, as in Maruf and Haffari (2018): lower-cased, with words seen
# less than five times replaced by the unknown word.
#
#   bash prepare.sh SRC TGT CORPUS WORK
#
# CORPUS has train, valid and test with the suffixes SRC and TGT: one sentence per line, and a blank
# line between documents (see README.md for TED, Europarl and News Commentary).
# Next: train_sentence_lm.sh and train.sh with WORK/bin.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
: "${4:?usage: bash prepare.sh SRC TGT CORPUS WORK}"
src=$1 tgt=$2 corpus=$3 work=$4
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
