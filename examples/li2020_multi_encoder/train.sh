#!/usr/bin/env bash
# Train one system of Li et al. (2020), with the hyper-parameters of the authors' script.
#
#   bash train.sh WORK SYSTEM SAVE [options of fairseq-train, e.g. --fp16]
#
# SYSTEM is one of
#   sentence                                       the first stage
#   outside-source, outside-target, outside-both   the encoder reads previous sentences
#   inside-source, inside-target, inside-both      the decoder reads them
# by the previous sentences that are encoded: source, target or both.  All but the first need
# --finetune-from-model SENTENCE/checkpoint_best.pt.
# The context encoder has one layer; in the authors' code also 6 (--context-layers).  A batch has 100
# documents in parallel (--batch-size), 4 sentences of each (--chunk-sentences); an update has 4 batches
# (--update-freq), for the four GPUs of the authors.
# Before this: prepare.sh.  Next: generate.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM SAVE "[options of fairseq-train]" -- "$@"
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

train() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --encoder-normalize-before --decoder-normalize-before --share-decoder-input-output-embed \
    --dropout 0.3 --attention-dropout 0.1 --activation-dropout 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.997)' --weight-decay 0.0 --clip-norm 0.0 \
    --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-7 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --update-freq 4 --no-epoch-checkpoints --seed 1 "$@" "${more[@]}"
}

case $system in
  sentence) train --task sliding_window_translation --window-size 1 --arch transformer \
    --max-tokens 4096 --lr 0.0007 --max-epoch 30 ;;
  outside-source | outside-target | outside-both | inside-source | inside-target | inside-both)
    note_start
    train --task sentence_stream_translation --arch multi_encoder_transformer \
      --context-integration "${system%-*}" --context-side "${system#*-}" \
      --context-sentences 1 --context-layers 1 --context-fusion gate \
      --batch-size 100 --chunk-sentences 4 --lr 0.0001 --max-epoch 5 ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
