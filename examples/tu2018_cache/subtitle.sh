#!/usr/bin/env bash
# The Subtitle column of the paper on its own corpus: from the text to the table, in one command.
#
#   bash subtitle.sh CORPUS WORK [SYSTEM ...] [--size small] [options of ../tvsub_zh_en/run.sh]
#
# CORPUS: see subtitle/subtitle_corpus.py.  SYSTEMs are names in subtitle/SIZE/systems.txt; default: all
# of it.  --size is small (subwords, transformers for a CPU), transformer (base size, for a GPU) or paper
# (recurrent models of the paper, for a GPU).
# After --limit SECONDS a command is stopped; the same call goes on where it was.
# Results: WORK/results.json and, as tables, WORK/tables.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../flags.sh"
read_arguments CORPUS WORK "[SYSTEM...]" --size:small/transformer/paper=small "[options of ../tvsub_zh_en/run.sh]" -- "$@"
refuse --recipe
bash "$here/../tvsub_zh_en/run.sh" "$corpus" "$work" "${systems[@]}" \
  --recipe "$here/subtitle/$size" "${more[@]}"
python "$here/../tvsub_zh_en/tables.py" "$work/results.json" | tee "$work/tables.md"
