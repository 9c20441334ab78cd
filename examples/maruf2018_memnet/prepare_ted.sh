#!/usr/bin/env bash
# Prepare TED talks fr-en as binarised corpora, as in Maruf and Haffari (2018).
#
#   bash prepare_ted.sh DOWNLOADS WORK
#
# DOWNLOADS is a folder with train.tags.fr-en.fr and train.tags.fr-en.en.  Talks that are very short or
# lack translations are left out; of the others, 120 are drawn for validation and 150 for test.
# Next: train_sentence_lm.sh and train.sh with WORK/bin.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data_prep=$here/../../data_prep
: "${2:?usage: bash prepare_ted.sh DOWNLOADS WORK}"
from=$1 work=$2 corpus=$2/corpus
python "$data_prep/tagged_documents.py" --complete-documents --min-sentences 5 \
  --source "$from/train.tags.fr-en.fr" --target "$from/train.tags.fr-en.en" \
  --out "$corpus/all.fr" "$corpus/all.en"
python "$data_prep/hold_out.py" "$corpus/all.fr" "$corpus/all.en" --valid 120 --test 150 \
  --out "$corpus"
bash "$here/prepare.sh" fr en "$corpus" "$work"
