#!/usr/bin/env bash
# Test which side of a document recurrent memories represent, on the context probe: answers are visible
# only in the source (number) or only in the target (speaker), and memories are on one or both sides.
# Prints accuracies on contrastive sets with the true translation as context.
#
#   bash run_one_sided.sh [WORK_FOLDER] [SYSTEM ...]     (environment: UPDATES=3000, SEED=1)
#
# SYSTEMs: both, source, target (sides of the memory); default: all.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$here/work}
systems=("${@:2}")
[ ${#systems[@]} -gt 0 ] || systems=(both source target)
updates=${UPDATES:-3000}
# shellcheck source=steps.sh
. "$here/steps.sh"

prepare --phenomena pronoun,number,speaker
for system in "${systems[@]}"; do
  train "$system" "$updates" --task sentence_stream_translation --batch-size 16 \
    --chunk-sentences 8 --arch memory_transformer --context-side "$system"
  fairseq-docmt contrastive "$work/data/test.contrastive.jsonl" \
    --path "$work/$system/checkpoint_last.pt" --format json --out "$work/$system.json" \
    2> "$work/contrastive_$system.log" || { tail -n 20 "$work/contrastive_$system.log" >&2; exit 1; }
done
