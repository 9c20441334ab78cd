#!/usr/bin/env bash
# Repair the translations of a sentence-level transformer with DocRepair, trained on round trips of the
# target side: four sentences at once, and as a control one sentence, which cannot know the context.
# Prints a table of accuracies.
#
#   bash run_repair.sh [WORK] [--updates 1000] [--seed 1] [--first-updates 1000]
#
# --updates of each repair model, --first-updates of the two sentence-level models.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../flags.sh"
read_arguments "[WORK]" --updates:count=1000 --seed:number=1 --first-updates:count=1000 -- "$@"
work=${work:-$here/work}
recipe=$here/../voita2019_docrepair
model=(--task sliding_window_translation --arch transformer --share-decoder-input-output-embed)
# shellcheck source=steps.sh
. "$here/steps.sh"

prepare
train sentence "$first_updates" "${model[@]}" --window-size 1 --max-tokens 500
train back "$first_updates" "${model[@]}" --window-size 1 --max-tokens 500 -s tgt -t src
translate sentence window --task sliding_window_translation
echo "translating the target side of the training documents to the source and back ..."
# Without noise: the mistakes of the sentence-level model are in the words that depend on context.
quietly round_trips bash "$recipe/round_trips.sh" "$work/data" "$work/round_trips" "$work/bin" \
  "$work/back/checkpoint_last.pt" "$work/sentence/checkpoint_last.pt" \
  --source-lang src --target-lang tgt --copies 2 --noise 0 --beam 1
bin=$work/round_trips/bin
train repair4 "$updates" "${model[@]}" --window-size 4 --max-tokens 2000
train repair1 "$updates" "${model[@]}" --window-size 1 --max-tokens 500
output=$work/out_sentence_window/generate-test.txt
for system in repair4 repair1; do
  echo "repairing with $system ..."
  quietly "repair_$system" bash "$recipe/repair.sh" "$work/round_trips" \
    "$work/$system/checkpoint_last.pt" "$output" "$work/data/test.src" "$work/$system/repaired" \
    --target-lang tgt
  # References of the first system, and the sentences without the blank lines.
  mkdir -p "$work/out_${system}_sequential"
  { grep '^T-' "$output"; grep -E '^H-[0-9]+	[^	]*	.' "$work/$system/repaired/repaired.tgt.log"; } \
    > "$work/out_${system}_sequential/generate-test.txt"
done
score sentence=sentence_window repaired=repair4_sequential "without context=repair1_sequential"
