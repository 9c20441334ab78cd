#!/usr/bin/env bash
# Prepare TVSub subtitles as binarised documents.
#
#   bash prepare.sh CORPUS WORK
#
# CORPUS has train, valid, test and zpdev with the suffixes zh and en: one subtitle per line, and a
# blank line between episodes.  Next: train.sh.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
: "${2:?usage: bash prepare.sh CORPUS WORK}"
corpus=$1 work=$2
python "$top/data_prep/prepare.py" --source-lang zh --target-lang en \
  --train "$corpus/train" --valid "$corpus/valid" --test "$corpus/test" "$corpus/zpdev" \
  --destdir "$work/data" --bpe-operations "${BPE:-4000}" --separate-bpe
