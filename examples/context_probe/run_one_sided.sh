#!/usr/bin/env bash
# Test which side of a document recurrent memories represent, on the context probe: answers are visible
# only in the source (number) or only in the target (speaker), and memories are on one or both sides.
# Prints accuracies on contrastive sets with the true translation as context.
#
#   bash run_one_sided.sh [WORK] [SYSTEM ...] [--updates 3000] [--seed 1]
#
# SYSTEMs: both, source, target (sides of the memory); default: all.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../flags.sh"
read_arguments "[WORK]" "[SYSTEM...:both/source/target]" --updates:count=3000 --seed:number=1 -- "$@"
work=${work:-$here/work}
[ ${#systems[@]} -gt 0 ] || systems=(both source target)
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
