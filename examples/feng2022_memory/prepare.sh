#!/usr/bin/env bash
# Prepare a corpus of Maruf et al. (2019) as binarised documents: TED, News Commentary or Europarl
# en-de.
#
#   bash prepare.sh CORPUS WORK [options of prepare.py, e.g. --bpe-operations 20000]
#
# CORPUS is a folder with concatenated_en2de_{train,dev,test}_{en,de}.txt (see README.md for the
# download).  Next: train.sh.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
source "$top/examples/flags.sh"
read_arguments CORPUS WORK "[options of prepare.py]" -- "$@"

documents() {
  python "$top/data_prep/marked_documents.py" "$corpus/concatenated_en2de_$1_en.txt" \
    "$corpus/concatenated_en2de_$1_de.txt" --out "$work/corpus/$2.en" "$work/corpus/$2.de"
}

documents train train
documents dev valid
documents test test
python "$top/data_prep/prepare.py" --source-lang en --target-lang de --truecase \
  --train "$work/corpus/train" --valid "$work/corpus/valid" --test "$work/corpus/test" \
  --destdir "$work/data" --bpe-operations 30000 --bpe-total-symbols --joined-dictionary "${more[@]}"
