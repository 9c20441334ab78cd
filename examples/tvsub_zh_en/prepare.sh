#!/usr/bin/env bash
# Prepare TVSub subtitles as binarised documents.
#
#   bash prepare.sh CORPUS WORK [options of prepare.py, e.g. --bpe-operations 8000]
#
# CORPUS has train, valid, test and zpdev with the suffixes zh and en: one subtitle per line, and a
# blank line between episodes.  Next: train.sh.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
source "$top/examples/flags.sh"
read_arguments CORPUS WORK "[options of prepare.py]" -- "$@"
python "$top/data_prep/prepare.py" --source-lang zh --target-lang en \
  --train "$corpus/train" --valid "$corpus/valid" --test "$corpus/test" "$corpus/zpdev" \
  --destdir "$work/data" --bpe-operations 4000 --separate-bpe "${more[@]}"
