#!/usr/bin/env bash
# Train and evaluate whole-document systems on the context probe; windows of attention reach only the
# nearer answers.  Prints a table of accuracies.
#
#   bash run_documents.sh [WORK] [SYSTEM ...] [--updates 3000] [--seed 1] [--attention-window 4]
#
# SYSTEMs: transformer, lst, group, sentences, window; default: all.  Documents have 16 sentences; answers
# are one, two or eight sentences back.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../flags.sh"
read_arguments "[WORK]" "[SYSTEM...:transformer/lst/group/sentences/window]" \
  --updates:count=3000 --seed:number=1 --attention-window:number=4 -- "$@"
work=${work:-$here/work}
[ ${#systems[@]} -gt 0 ] || systems=(transformer lst group sentences window)
documents=(--task full_document_translation)
# shellcheck source=steps.sh
. "$here/steps.sh"

prepare --sentences-per-document 16 --distances 1,2,8 --phenomena pronoun,term,ellipsis
outputs=()
for system in "${systems[@]}"; do
  case $system in
    transformer) options=(--arch transformer) ;;
    lst) options=(--arch lst_transformer) ;;
    group) options=(--arch g_transformer --encoder-context-layers 1 --decoder-context-layers 1
      --cross-context-layers 1) ;;
    sentences) options=(--arch g_transformer --encoder-context-layers 0 --decoder-context-layers 0
      --cross-context-layers 0) ;;
    window) options=(--arch window_attn_transformer --attention-window "$attention_window"
      --train-alignment sentence) ;;
  esac
  train "$system" "$updates" "${documents[@]}" --max-tokens 2000 \
    --share-decoder-input-output-embed "${options[@]}"
  translate "$system" sequential-full-source "${documents[@]}"
  outputs+=("$system=${system}_sequential-full-source")
done
score "${outputs[@]}"
