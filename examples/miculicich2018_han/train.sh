#!/usr/bin/env bash
# Train one system of Miculicich et al. (2018), with the hyper-parameters of the authors' README.
#
#   bash train.sh WORK SYSTEM SAVE [options of fairseq-train, e.g. --fp16]
#
# SYSTEM is sentence, the first stage; encoder or decoder, which need --finetune-from-model
# SENTENCE/checkpoint_best.pt; or joint, which needs that of encoder.
# The attention is to 3 previous sentences (--context-sentences); an update has 8 documents in parallel
# (--batch-size), 20 sentences of each (--chunk-sentences).
# Before this: data_prep/prepare.py, or prepare_iwslt15.sh of wu2022_rfa.  Next: generate.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM SAVE "[options of fairseq-train]" -- "$@"
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

# The learning rate is the highest of the authors' schedule: 2 / sqrt(512 * 8000).
train() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --encoder-normalize-before --decoder-normalize-before \
    --dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.998)' --adam-eps 1e-9 --clip-norm 0.0 \
    --lr 0.000988 --lr-scheduler inverse_sqrt --warmup-updates 8000 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --no-epoch-checkpoints --seed 1 "$@" "${more[@]}"
}

context() {
  note_start
  train --task sentence_stream_translation --arch han_transformer \
    --context-sentences 3 --batch-size 8 --chunk-sentences 20 --max-epoch 1 "$@"
}

case $system in
  sentence) train --task sliding_window_translation --window-size 1 --arch transformer \
    --max-tokens 4096 --update-freq 4 --max-epoch 20 ;;
  encoder) context --context-side source ;;
  decoder) context --context-side target ;;
  joint) context --context-side both ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
