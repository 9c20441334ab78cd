#!/usr/bin/env bash
# One system of Wu et al. (2022) for figure 3, with early stopping by consistency (appendix A.2).
#
#   bash train_consistency.sh WORK SETS SYSTEM L SAVE [options of fairseq-train, as --fp16]
#
# SETS is the folder consistency_testsets (README.md says where to get it), SYSTEM one of train.sh, L
# the number of sentences, 1 to 4 (4: groups).  After each epoch the checkpoint is scored on the dev
# sets; when 10 epochs have brought nothing better, SAVE/checkpoint_best_consistency.pt is the best.
# Interrupted, it goes on where it was.  Before this: prepare_opensubtitles.sh.  After it:
# consistency.sh with the test sets.
set -euo pipefail
work=$1 sets=$2 system=$3 size=$4 save=$5
shift 5
export PYTHONWARNINGS=ignore
here=$(dirname "$0")
window=$size
if [ "$size" = 4 ]; then window=group; fi

best=0
for ((epoch = 1; epoch <= best + 10; epoch++)); do
  scores=$save/consistency.$epoch
  if [ ! -s "$scores.json" ]; then
    CORPUS=consistency bash "$here/train.sh" "$work" "$system" "$window" "$save" \
      --max-epoch "$epoch" "$@"
    bash "$here/consistency.sh" "$work" "$sets" dev "$size" "$save/checkpoint$epoch.pt" "$scores"
  fi
  best=$(python "$here/best_epoch.py" "$save")
  if [ "$best" = "$epoch" ]; then
    cp "$save/checkpoint$epoch.pt" "$save/checkpoint_best_consistency.pt"
  fi
done
echo "best epoch: $best"
