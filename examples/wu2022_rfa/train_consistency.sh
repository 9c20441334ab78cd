#!/usr/bin/env bash
# Train one system of Wu et al. (2022) for figure 3, with early stopping by consistency (appendix A.2).
#
#   bash train_consistency.sh WORK SYSTEM SAVE [--sets consistency_testsets] [--window-size group]
#       [options of fairseq-train, e.g. --fp16]
#
# SYSTEM and --window-size are as in train.sh; --sets is a folder of Voita et al. (see README.md for
# the download).  After each epoch the checkpoint is scored on the dev sets.  Training stops after 10
# epochs without improvement; the best checkpoint is SAVE/checkpoint_best_consistency.pt.  After an
# interruption, the same command continues; SAVE/arguments has it.
# Before this: prepare_opensubtitles.sh.  Next: consistency.sh with the test sets.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM SAVE --sets=consistency_testsets --window-size:1/2/3/4/group=group \
  "[options of fairseq-train]" -- "$@"
# Training ends when the scores no longer improve, and each epoch is saved.
refuse --max-epoch --max-update --stop-time-hours --stop-min-lr --patience \
  --no-save --no-epoch-checkpoints --save-interval
export PYTHONWARNINGS=ignore
here=$(dirname "$0")
given=("$work" "$system" --sets "$sets" --window-size "$window_size" "${more[@]}")
made_alike "$save/arguments" "${given[@]}" || true
for file in "$sets"/{deixis_dev,lex_cohesion_dev}.json; do
  [ -e "$file" ] || { echo "error: test set $file not found; give --sets" >&2; exit 1; }
done

best=0
for ((epoch = 1; epoch <= best + 10; epoch++)); do
  scores=$save/consistency.$epoch
  if [ ! -s "$scores.json" ]; then
    bash "$here/train.sh" "$work" "$system" "$save" --corpus consistency \
      --window-size "$window_size" --max-epoch "$epoch" "${more[@]}"
    # Not before: arguments that fail at once can be corrected.
    mkdir -p "$save"
    echo "${given[*]}" > "$save/arguments"
    bash "$here/consistency.sh" "$work" "$save/checkpoint$epoch.pt" "$scores" --sets "$sets" \
      --part dev --window-size "$window_size"
  fi
  best=$(python "$here/best_epoch.py" "$save")
  if [ "$best" = "$epoch" ]; then
    cp "$save/checkpoint$epoch.pt" "$save/checkpoint_best_consistency.pt"
  fi
done
echo "best epoch: $best"
