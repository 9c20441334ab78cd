#!/usr/bin/env bash
# Prepare TED talks fr-en as binarised corpora, as in Maruf and Haffari (2018).
#
#   bash prepare_ted.sh DOWNLOADS WORK
#
# DOWNLOADS is a folder with train.tags.fr-en.fr and train.tags.fr-en.en.  Talks that are very short or
# lack translations are left out; of the others, 120 are drawn for validation and 150 for test.
# Next: train_sentence_lm.sh and train.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data_prep=$here/../../data_prep
source "$here/../flags.sh"
read_arguments DOWNLOADS WORK -- "$@"
texts=$work/corpus
python "$data_prep/tagged_documents.py" --complete-documents --min-sentences 5 \
  --source "$downloads/train.tags.fr-en.fr" --target "$downloads/train.tags.fr-en.en" \
  --out "$texts/all.fr" "$texts/all.en"
python "$data_prep/hold_out.py" "$texts/all.fr" "$texts/all.en" --valid 120 --test 150 \
  --out "$texts"
bash "$here/prepare.sh" "$texts" "$work" --source-lang fr --target-lang en
