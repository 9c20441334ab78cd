#!/usr/bin/env bash
# Train and evaluate sentence-stream systems on the context probe, with 16 documents in parallel and 8
# sentences of each in an update.  Prints a table of accuracies.
#
#   bash run_stream.sh [WORK] [SYSTEM ...] [--updates 2000] [--seed 1]
#
# Transformers with recurrent memory: both, source, target (sides of the memory), no-context (the memory
# is reset after every sentence).  Transformers with hierarchical attention to the three previous
# sentences: han, han-source, han-target, han-no-context.  Transformers with encoders of the three
# previous sentences: multi-encoder, multi-encoder-inside, multi-encoder-no-context.  Recurrent models
# with a few previous sentences as context: previous-target (needs --updates 4500),
# previous-source-attention, hierarchical; the same with -no-context have their context cut.
# Default: both and no-context.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../flags.sh"
known=both/source/target/no-context/han/han-source/han-target/han-no-context
known+=/multi-encoder/multi-encoder-inside/multi-encoder-no-context
for context in previous-target previous-source-attention hierarchical; do
  known+=/$context/$context-no-context
done
read_arguments "[WORK]" "[SYSTEM...:$known]" --updates:count=2000 --seed:number=1 -- "$@"
work=${work:-$here/work}
[ ${#systems[@]} -gt 0 ] || systems=(both no-context)
stream=(--task sentence_stream_translation)
# shellcheck source=steps.sh
. "$here/steps.sh"

prepare
outputs=()
transformer=("${sizes[@]}")
recurrent=(--encoder-embed-dim 128 --encoder-hidden-size 128 --attention-dim 128
  --decoder-layers 1 --decoder-embed-dim 128 --decoder-hidden-size 128)
for system in "${systems[@]}"; do
  sizes=("${transformer[@]}")
  case $system in
    both | source | target) options=(--arch memory_transformer --context-side "$system") ;;
    no-context) options=(--arch memory_transformer --no-context) ;;
    han) options=(--arch han_transformer) ;;
    han-source | han-target) options=(--arch han_transformer --context-side "${system#han-}") ;;
    han-no-context) options=(--arch han_transformer --no-context) ;;
    multi-encoder*)
      options=(--arch multi_encoder_transformer --context-sentences 3)
      case $system in
        *-inside) options+=(--context-integration inside) ;;
        *-no-context) options+=(--no-context) ;;
      esac
      ;;
    previous-* | hierarchical | hierarchical-no-context)
      sizes=("${recurrent[@]}")
      options=(--arch context_rnn --context "${system%-no-context}" --share-decoder-input-output-embed)
      [[ $system != *-no-context ]] || options+=(--no-context)
      # It learns to use its context only if the learning rate stays high for longer.
      [[ $system != previous-target* ]] || options+=(--warmup-updates 1000)
      ;;
  esac
  train "$system" "$updates" "${stream[@]}" --batch-size 16 --chunk-sentences 8 \
    "${options[@]}"
  translate "$system" stream "${stream[@]}"
  outputs+=("$system=${system}_stream")
done
score "${outputs[@]}"
