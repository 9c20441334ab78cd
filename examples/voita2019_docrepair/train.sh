#!/usr/bin/env bash
# Train DocRepair (Voita et al. 2019): transformer base, from four sentences of round trips to the four
# original ones.
#
#   bash train.sh WORK SAVE [options of fairseq-train, e.g. --fp16]
#
# --window-size 1 is a control without context.
# Before this: round_trips.sh.  Next: repair.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SAVE "[options of fairseq-train]" -- "$@"
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
fairseq-train "$work/bin" --user-dir "$user_dir" --save-dir "$save" \
  --task sliding_window_translation --window-size 4 \
  --arch transformer --share-all-embeddings \
  --encoder-normalize-before --decoder-normalize-before \
  --dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1 \
  --optimizer adam --adam-betas '(0.9, 0.998)' --clip-norm 0.0 \
  --lr 0.0014 --lr-scheduler inverse_sqrt --warmup-updates 16000 \
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
  --max-tokens 4000 --update-freq 8 --patience 10 --no-epoch-checkpoints --seed 1 "${more[@]}"
