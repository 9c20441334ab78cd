#!/usr/bin/env bash
# Check the Subtitle corpus and prepare it with subwords.
#
#   bash prepare.sh CORPUS WORK
#
# CORPUS: see ../subtitle_corpus.py.  Environment: BPE, merges of each side (8000).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${2:?usage: bash prepare.sh CORPUS WORK}"
corpus=$1 work=$2
top=$here/../../../..
PYTHONPATH=$top/data_prep${PYTHONPATH:+:$PYTHONPATH} \
  python "$here/../subtitle_corpus.py" "$corpus" "$work/corpus"
python "$top/data_prep/prepare.py" --source-lang zh --target-lang en \
  --train "$work/corpus/train" --valid "$work/corpus/dev" --test "$work/corpus/test" \
  --source-tokenizer none --target-tokenizer none \
  --destdir "$work/data" --bpe-operations "${BPE:-8000}" --separate-bpe
