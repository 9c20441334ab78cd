#!/usr/bin/env bash
# Prepare OpenSubtitles2018 en-ru of Voita et al. (2019) as binarised documents of four sentences.
#
#   bash prepare_opensubtitles.sh CORPUS WORK [options of prepare.py]
#
# CORPUS is the folder context_aware with en_train, ru_train, en_dev, ru_dev, en_test and ru_test:
# four sentences per line, joined by _eos (see README.md for the download).  Next: train.sh.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
source "$top/examples/flags.sh"
read_arguments CORPUS WORK "[options of prepare.py]" -- "$@"
for name in train dev test; do
  python "$top/data_prep/sentence_groups.py" "$corpus/en_$name" "$corpus/ru_$name" \
    --out "$work/corpus/$name.en" "$work/corpus/$name.ru"
done
# The corpus is tokenized and cased; like the authors, tokenize it once more with Moses.
python "$top/data_prep/prepare.py" --source-lang en --target-lang ru --truecase \
  --train "$work/corpus/train" --valid "$work/corpus/dev" --test "$work/corpus/test" \
  --destdir "$work/data" --bpe-operations 30000 "${more[@]}"
