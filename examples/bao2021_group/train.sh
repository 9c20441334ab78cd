#!/usr/bin/env bash
# Train one system of Bao et al. (2021), with the hyper-parameters of the authors' scripts.
#
#   bash train.sh WORK sentence SAVE [options of fairseq-train, e.g. --fp16]
#   bash train.sh WORK group SAVE --finetune-from-model SENTENCE/checkpoint_best.pt [...]
#   bash train.sh WORK group-scratch SAVE [...]
#
# sentence is the first stage, group the second: G-Transformer from the sentence-level transformer.
# group-scratch is G-Transformer from random parameters.
# Environment: CONTEXT, number of top layers that attend to the document, in the encoder, the decoder
# and from the decoder to the source (2; 0 is a control without context).  UPDATE_FREQ, batches in an
# update (4, for the four GPUs of the authors).  With --fp16, group needs --fp16-no-flatten-grads too.
# Before this: prepare.sh.  Next: generate.sh.
set -euo pipefail
: "${3:?usage: bash train.sh WORK SYSTEM SAVE [options of fairseq-train]}"
work=$1 system=$2 save=$3
shift 3
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
context=${CONTEXT:-2}

train() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --share-all-embeddings --dropout 0.3 --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \
    --lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens 4096 --update-freq "${UPDATE_FREQ:-4}" --patience 10 --no-epoch-checkpoints "$@"
}

group() {
  train --task full_document_translation --max-document-tokens 512 --arch g_transformer \
    --encoder-context-layers "$context" --decoder-context-layers "$context" \
    --cross-context-layers "$context" "$@"
}

# In the second stage, parameters of the first have a fifth of the learning rate.  Without context
# there are no others.
# Words are dropped in the epochs below 40 and 30, which count from 1.
second=(--optimizer grouped_adam --pretrained-lr-scale 0.2)
[ "$context" != 0 ] || second=(--optimizer adam --lr 0.0001)
case $system in
  sentence) train --task sliding_window_translation --window-size 1 --arch transformer \
    --optimizer adam --seed 444 "$@" ;;
  group) group "${second[@]}" --word-dropout 0.1 --word-dropout-epochs 39 --seed 444 "$@" ;;
  group-scratch)
    group --optimizer adam --word-dropout 0.3 --word-dropout-epochs 29 --seed 555 "$@" ;;
  *) echo "error: unknown system $system; see the head of $0" >&2; exit 1 ;;
esac
