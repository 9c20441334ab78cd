#!/usr/bin/env bash
# Check the Subtitle corpus and prepare it with subwords.
#
#   bash prepare.sh CORPUS WORK [--corpus-size paper] [options of prepare.py, e.g. --bpe-operations 4000]
#
# CORPUS: see ../subtitle_corpus.py.  --corpus-size any takes one of another size.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../../../..
source "$top/examples/flags.sh"
read_arguments CORPUS WORK --corpus-size:paper/any=paper "[options of prepare.py]" -- "$@"
PYTHONPATH=$top/data_prep${PYTHONPATH:+:$PYTHONPATH} \
  python "$here/../subtitle_corpus.py" "$corpus" "$work/corpus" "$corpus_size"
python "$top/data_prep/prepare.py" --source-lang zh --target-lang en \
  --train "$work/corpus/train" --valid "$work/corpus/dev" --test "$work/corpus/test" \
  --source-tokenizer none --target-tokenizer none \
  --destdir "$work/data" --bpe-operations 8000 --separate-bpe "${more[@]}"
