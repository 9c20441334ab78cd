#!/usr/bin/env bash
# Train and evaluate a recurrent model with a continuous cache on the context probe, in two passes: the
# sentence-level model, then the gate of the cache with all other parameters frozen.  Prints a table of
# accuracies.
#
#   bash run_cache.sh [WORK] [SLOTS ...] [--updates 2000] [--seed 1]
#
# SLOTS of each cache; default: one cache of 25.  The data has only terms, the phenomenon that a cache
# can solve.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../flags.sh"
read_arguments "[WORK]" "[SLOT...:number]" --updates:count=2000 --seed:number=1 -- "$@"
work=${work:-$here/work}
[ ${#slots[@]} -gt 0 ] || slots=(25)
stream=(--task sentence_stream_translation)
# shellcheck source=steps.sh
. "$here/steps.sh"
sizes=(--encoder-embed-dim 128 --encoder-hidden-size 128
  --decoder-embed-dim 128 --decoder-hidden-size 128)

prepare --phenomena term
train rnnsearch "$updates" --task sliding_window_translation --window-size 1 --max-tokens 1000 \
  --arch rnnsearch
translate rnnsearch window --task sliding_window_translation
outputs=(rnnsearch=rnnsearch_window)
for size in "${slots[@]}"; do
  train "cache$size" "$updates" "${stream[@]}" --batch-size 16 --chunk-sentences 8 \
    --arch cache_rnn --cache-size "$size" --freeze-pretrained \
    --finetune-from-model "$work/rnnsearch/checkpoint_last.pt"
  translate "cache$size" stream "${stream[@]}"
  outputs+=("cache$size=cache${size}_stream")
done
score "${outputs[@]}"
