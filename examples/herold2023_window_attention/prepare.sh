#!/usr/bin/env bash
# Documents to one binarised corpus of Herold and Ney (2023): news (en-de), ted (en-it) or os (en-de).
#
#   CORPUS=news bash prepare.sh TEXTS WORK
#
# TEXTS has train, valid and test with the suffixes en and de (ted: en and it), a sentence per line, a
# blank line between documents.  README.md says what the paper takes.  Environment: CORPUS (news is
# the default) sets the languages and BPE, the number of merges, which can be set alone too.
# Before this: nothing.  After it: train.sh with WORK/data/bin.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
texts=$1 work=$2
case ${CORPUS:-news} in
  news) target=de merges=15000 ;;
  ted) target=it merges=15000 ;;
  os) target=de merges=32000 ;;
  *) echo "unknown corpus $CORPUS" >&2; exit 1 ;;
esac
python "$top/data_prep/prepare.py" --source-lang en --target-lang "$target" \
  --train "$texts/train" --valid "$texts/valid" --test "$texts/test" \
  --destdir "$work/data" --bpe-operations "${BPE:-$merges}" --joined-dictionary
