#!/usr/bin/env bash
# Repair the translations of a sentence-level transformer with DocRepair, trained on round trips of the
# target side: four sentences at once, and as a control one sentence, which cannot know the context.
# Prints a table of accuracies.
#
#   bash run_repair.sh [WORK_FOLDER]         (environment: UPDATES=1000 of each repair model, SEED=1)
#
# Others: FIRST_UPDATES of the two sentence-level models (1000).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$here/work}
updates=${UPDATES:-1000} first=${FIRST_UPDATES:-1000}
recipe=$here/../voita2019_docrepair
model=(--task sliding_window_translation --arch transformer --share-decoder-input-output-embed)
# shellcheck source=steps.sh
. "$here/steps.sh"

prepare
train sentence "$first" "${model[@]}" --window-size 1 --max-tokens 500
train back "$first" "${model[@]}" --window-size 1 --max-tokens 500 -s tgt -t src
translate sentence window --task sliding_window_translation
echo "translating the target side of the training documents to the source and back ..."
# Without noise: the mistakes of the sentence-level model are in the words that depend on context.
COPIES=2 NOISE=0 BEAM=1 quietly round_trips bash "$recipe/round_trips.sh" "$work/bin" src tgt \
  "$work/back/checkpoint_last.pt" "$work/sentence/checkpoint_last.pt" "$work/data" "$work/round_trips"
bin=$work/round_trips/bin
train repair4 "$updates" "${model[@]}" --window-size 4 --max-tokens 2000
train repair1 "$updates" "${model[@]}" --window-size 1 --max-tokens 500
output=$work/out_sentence_window/generate-test.txt
for system in repair4 repair1; do
  echo "repairing with $system ..."
  quietly "repair_$system" bash "$recipe/repair.sh" "$bin" tgt "$work/$system/checkpoint_last.pt" \
    "$output" "$work/data/test.src" "$work/$system/repaired"
  # References of the first system, and the sentences without the blank lines.
  mkdir -p "$work/out_${system}_sequential"
  { grep '^T-' "$output"; grep -E '^H-[0-9]+	[^	]*	.' "$work/$system/repaired/repaired.tgt.log"; } \
    > "$work/out_${system}_sequential/generate-test.txt"
done
score sentence=sentence_window repaired=repair4_sequential "without context=repair1_sequential"
