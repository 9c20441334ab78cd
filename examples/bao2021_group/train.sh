#!/usr/bin/env bash
# Train one system of Bao et al. (2021), with the hyper-parameters of the authors' scripts.
#
#   bash train.sh WORK SYSTEM SAVE [--context-layers 2] [options of fairseq-train, e.g. --fp16]
#
# SYSTEM is sentence, the first stage; group, G-Transformer from it, which needs
# --finetune-from-model SENTENCE/checkpoint_best.pt; or group-scratch, from random parameters.
# --context-layers: top layers that attend to the document, in the encoder, the decoder and from the
# decoder to the source; 0 is a control without context.  An update has 4 batches (--update-freq), for
# the four GPUs of the authors.  With --fp16, group needs --fp16-no-flatten-grads too.
# Before this: prepare.sh.  Next: generate.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM SAVE --context-layers:number=2 "[options of fairseq-train]" -- "$@"
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

train() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --share-all-embeddings --dropout 0.3 --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \
    --lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens 4096 --update-freq 4 --patience 10 --no-epoch-checkpoints \
    "$@" "${more[@]}"
}

group() {
  train --task full_document_translation --max-document-tokens 512 --arch g_transformer \
    --encoder-context-layers "$context_layers" --decoder-context-layers "$context_layers" \
    --cross-context-layers "$context_layers" "$@"
}

# In the second stage, parameters of the first have a fifth of the learning rate.  Without context
# there are no others.
# Words are dropped in the epochs below 40 and 30, which count from 1.
second=(--optimizer grouped_adam --pretrained-lr-scale 0.2)
[ "$context_layers" != 0 ] || second=(--optimizer adam --lr 0.0001)
case $system in
  sentence) train --task sliding_window_translation --window-size 1 --arch transformer \
    --optimizer adam --seed 444 ;;
  group) note_start
    group "${second[@]}" --word-dropout 0.1 --word-dropout-epochs 39 --seed 444 ;;
  group-scratch)
    group --optimizer adam --word-dropout 0.3 --word-dropout-epochs 29 --seed 555 ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
