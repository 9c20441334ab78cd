#!/usr/bin/env bash
# Train one system of Wu et al. (2022) for figure 3, with early stopping by consistency (appendix A.2).
#
#   bash train_consistency.sh WORK SETS SYSTEM L SAVE [options of fairseq-train, e.g. --fp16]
#
# SETS is the folder consistency_testsets (see README.md for the download), SYSTEM is a system of
# train.sh, L is the number of sentences, from 1 to 4 (4: groups).  After each epoch the checkpoint is
# scored on the dev sets.  Training stops after 10 epochs without improvement; the best checkpoint is
# SAVE/checkpoint_best_consistency.pt.  After an interruption, the same command continues.
# Before this: prepare_opensubtitles.sh.  Next: consistency.sh with the test sets.
set -euo pipefail
: "${5:?usage: bash train_consistency.sh WORK SETS SYSTEM L SAVE [options of fairseq-train]}"
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
