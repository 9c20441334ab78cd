#!/usr/bin/env bash
# The Subtitle column of the paper on its own corpus: from the text to the table, in one command.
#
#   bash subtitle.sh WORK [cpu|cuda] [--size small|paper] [--corpus FOLDER] [--limit SECONDS] [SYSTEM ...]
#
# --size: small (subwords, transformers for a CPU; the default) or paper (recurrent models of the paper).
# --corpus: see subtitle/subtitle_corpus.py; needed until WORK has its text.  --limit: after so many seconds
# a command is stopped; the same call goes on where it was.  SYSTEMs are names in
# subtitle/SIZE/systems.txt; default: all of it.
# Results: WORK/results.json and, as tables, WORK/tables.md.  Environment: as for
# ../tvsub_zh_en/run.sh, such as STAGES; BPE, merges of each side for small.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage="usage: bash subtitle.sh WORK [cpu|cuda] [--size small|paper] [--corpus FOLDER] [--limit SECONDS] [SYSTEM ...]"
: "${1:?$usage}"
work=$1 size=small systems=()
shift
export DEVICE=${DEVICE:-cpu}
while [ $# -gt 0 ]; do
  case $1 in
    --size | --corpus | --limit)
      : "${2:?$1 needs a value; $usage}"
      case $1 in
        --size) size=$2 ;;
        --corpus) export CORPUS=$2 ;;
        --limit) export LIMIT=$2 ;;
      esac
      shift ;;
    -*) echo "error: unknown option $1; $usage" >&2; exit 1 ;;
    cpu | cuda) DEVICE=$1 ;;
    *) systems+=("$1") ;;
  esac
  shift
done
case $size in small | paper) ;; *) echo "error: --size is $size; choose small or paper" >&2; exit 1 ;; esac
[[ ${LIMIT:-1} =~ ^[1-9][0-9]*$ ]] || { echo "error: --limit is $LIMIT; give whole seconds" >&2; exit 1; }
if [ "$DEVICE" = cuda ]; then
  python - <<< 'import torch; raise SystemExit(not torch.cuda.is_available())' ||
    { echo "error: torch finds no GPU; give cpu instead of cuda" >&2; exit 1; }
fi
RECIPE=$here/subtitle/$size bash "$here/../tvsub_zh_en/run.sh" "$work" "${systems[@]}"
python "$here/../tvsub_zh_en/tables.py" "$work/results.json" | tee "$work/tables.md"
