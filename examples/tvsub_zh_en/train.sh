#!/usr/bin/env bash
# Train small transformers for a CPU: a sentence-level model, then two systems finetuned from it for
# about an epoch, with windows of 1 and 4 sentences (with 4, each sentence occurs in four windows).
#
#   bash train.sh WORK [--updates 1000] [options of fairseq-train]
#
# --updates of sentences; windows of 4 get four times as many.
# Before this: prepare.sh.  Next: generate.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK --updates:count=1000 "[options of fairseq-train]" -- "$@"
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

train() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --task sliding_window_translation \
    --arch transformer --encoder-layers 3 --decoder-layers 2 \
    --encoder-embed-dim 256 --encoder-ffn-embed-dim 512 --encoder-attention-heads 4 \
    --decoder-embed-dim 256 --decoder-ffn-embed-dim 512 --decoder-attention-heads 4 \
    --share-decoder-input-output-embed --dropout 0.1 \
    --encoder-normalize-before --decoder-normalize-before \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr-scheduler inverse_sqrt --clip-norm 1.0 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens 4096 --seed 1 --cpu --num-workers 1 --no-epoch-checkpoints \
    --log-format simple --log-interval 20 "$@" "${more[@]}"
}

OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} train --window-size 1 --lr 0.002 --warmup-updates 500 \
  --max-epoch 2 --save-dir "$work/start"
trainings=()
for size in 1 4; do
  most=$((updates * size))
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} train --window-size $size --lr 0.001 --warmup-updates 100 \
    --finetune-from-model "$work/start/checkpoint_best.pt" \
    --max-update "$most" --save-dir "$work/window$size" 2>&1 | sed -u "s/^/window$size: /" &
  trainings+=($!)
done
for training in "${trainings[@]}"; do wait "$training"; done
