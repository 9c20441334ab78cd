#!/usr/bin/env bash
# Check the Subtitle corpus and prepare it in words, with a dictionary for unknown words.
#
#   bash prepare.sh CORPUS WORK [--corpus-size paper] [options of prepare.py, e.g. --words 20000]
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
  --destdir "$work/data" --bpe-operations 0 --words 30000 "${more[@]}"
# --replace-unk reads the text itself.
for split in valid test; do
  for side in zh en; do cp "$work/data/text/raw/$split.$side" "$work/data/bin/$split.zh-en.$side"; done
done
python "$here/../dictionary.py" "$work/corpus/train.zh" "$work/corpus/train.en" > "$work/dictionary.new"
mv "$work/dictionary.new" "$work/dictionary"
