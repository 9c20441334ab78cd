#!/usr/bin/env bash
# Prepare English-German documents as binarised documents.
#
#   bash prepare.sh CORPUS WORK [options of prepare.py, e.g. --bpe-operations 8000]
#
# CORPUS has train, valid, test (talks), test1 (news) and test2 (debates) with the suffixes en and de:
# one sentence per line, and a blank line between documents.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
source "$top/examples/flags.sh"
read_arguments CORPUS WORK "[options of prepare.py]" -- "$@"
python "$top/data_prep/prepare.py" --source-lang en --target-lang de \
  --train "$corpus/train" --valid "$corpus/valid" \
  --test "$corpus/test" "$corpus/test1" "$corpus/test2" \
  --destdir "$work/data" --bpe-operations 4000 --separate-bpe "${more[@]}"
