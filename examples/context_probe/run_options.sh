#!/usr/bin/env bash
# Data-sampling options, each against training without it, with the same number of updates
# of the same number of tokens: windows of 4 sentences, or documents of 16.  Prints a table of
# accuracies.
#
#   bash run_options.sh WORK SYSTEM ... [--updates 1000] [--seed 1]
#
# SYSTEM: window stride2 stride4 sampled coword next mixed attention |
#         document lengths sampled-lengths document-attention
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../flags.sh"
read_arguments WORK \
  SYSTEM...:window/stride2/stride4/sampled/coword/next/mixed/attention/document/lengths/sampled-lengths/document-attention \
  --updates:count=1000 --seed:number=1 -- "$@"
# shellcheck source=steps.sh
. "$here/steps.sh"

# options SYSTEM: its options, in the array `given`
options() {
  case $1 in
    window) given=() ;;
    stride2) given=(--window-stride 2) ;;
    stride4) given=(--window-stride 4) ;;
    sampled) given=(--sample-window-size) ;;
    coword) given=(--coword-dropout 0.1) ;;
    next) given=(--next-sentences 1) ;;
    mixed) given=(--sentence-data "$work/bin") ;;
    document) given=() ;;
    attention | document-attention) given=(--criterion attention_regularization) ;;
    lengths) given=(--document-parts 1,2,4,8,16) ;;
    sampled-lengths) given=(--document-parts 1,2,4,8,16 --sample-document-parts) ;;
  esac
}

corpus=
for system in "${systems[@]}"; do
  options "$system"
  case $system in document* | *lengths) of=documents ;; *) of=windows ;; esac
  [ "${corpus:-$of}" = "$of" ] || {
    echo "error: ${systems[0]} and $system have different corpora; give another folder to each" >&2
    exit 1
  }
  corpus=$of
done
case $corpus in
  documents)
    task=(--task full_document_translation)
    decodings=(sequential-full-source sequential)
    # Models that have not learned enough write without end, and the next sentences after that.
    search=(--max-len-a 2 --max-len-b 5)
    prepare --sentences-per-document 16 --distances 1,2,8 --phenomena pronoun,term,ellipsis
    ;;
  *)
    task=(--task sliding_window_translation)
    decodings=(sequential)
    search=()
    prepare
    ;;
esac
model=(--arch transformer --share-decoder-input-output-embed --max-tokens 2000)
scored=()
for system in "${systems[@]}"; do
  options "$system"
  train "$system" "$updates" "${task[@]}" "${model[@]}" "${given[@]}"
  for decoding in "${decodings[@]}"; do
    translate "$system" "$decoding" "${task[@]}" "${search[@]}"
    scored+=("$system-$decoding=${system}_$decoding")
  done
done
score "${scored[@]}"
