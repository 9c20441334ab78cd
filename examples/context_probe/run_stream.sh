#!/usr/bin/env bash
# A transformer with recurrent memory on the context probe: 16 documents side by side, 8 sentences of
# each in an update.  Ends in a table of accuracies.
#
#   bash run_stream.sh [WORK_FOLDER] [SYSTEM ...]        (environment: UPDATES=2000, SEED=1)
#
# SYSTEMs: both, source and target (sides of the memory), forget (a memory that forgets every
# sentence at once); default: both and forget.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$here/work}
systems=("${@:2}")
[ ${#systems[@]} -gt 0 ] || systems=(both forget)
updates=${UPDATES:-2000}
stream=(--task sentence_stream_translation)
# shellcheck source=steps.sh
. "$here/steps.sh"

prepare
outputs=()
for system in "${systems[@]}"; do
  case $system in
    both | source | target) options=(--memory-side "$system") ;;
    forget) options=(--forget-memory) ;;
    *) echo "unknown system $system" >&2; exit 1 ;;
  esac
  train "$system" "$updates" "${stream[@]}" --batch-size 16 --chunk-sentences 8 \
    --arch memory_transformer "${options[@]}"
  translate "$system" stream "${stream[@]}"
  outputs+=("$system=${system}_stream")
done
score "${outputs[@]}"
