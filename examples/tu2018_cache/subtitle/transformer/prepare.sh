#!/usr/bin/env bash
# As ../small/prepare.sh, with 16,000 merges on each side.
#
#   bash prepare.sh CORPUS WORK [--corpus-size paper] [options of prepare.py, e.g. --bpe-operations 4000]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../../../../examples/flags.sh"
read_arguments CORPUS WORK --corpus-size:paper/any=paper "[options of prepare.py]" -- "$@"
bash "$here/../small/prepare.sh" "$corpus" "$work" --corpus-size "$corpus_size" \
  --bpe-operations 16000 "${more[@]}"
