#!/usr/bin/env bash
# Train one system of Miculicich et al. (2018), with the hyper-parameters of the authors' README.
#
#   bash train.sh DATA sentence SAVE [options of fairseq-train, e.g. --fp16]
#   bash train.sh DATA SYSTEM SAVE --finetune-from-model FIRST/checkpoint_best.pt [...]
#
# DATA is a binarised folder with documents.  sentence is the first stage.  SYSTEM is encoder or
# decoder (FIRST is sentence), or joint (FIRST is encoder).
# Environment: SENTENCES, number of previous sentences (3); LANES, documents in parallel (8), and
# CHUNK, sentences of each in an update (20).
# Before this: data_prep/prepare.py, or prepare_iwslt15.sh of wu2022_rfa.  Next: generate.sh.
set -euo pipefail
: "${3:?usage: bash train.sh DATA SYSTEM SAVE [options of fairseq-train]}"
data=$1 system=$2 save=$3
shift 3
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

# The learning rate is the highest of the authors' schedule: 2 / sqrt(512 * 8000).
train() {
  fairseq-train "$data" --user-dir "$user_dir" --save-dir "$save" \
    --encoder-normalize-before --decoder-normalize-before \
    --dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.998)' --adam-eps 1e-9 --clip-norm 0.0 \
    --lr 0.000988 --lr-scheduler inverse_sqrt --warmup-updates 8000 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --no-epoch-checkpoints --seed 1 "$@"
}

context() {
  train --task sentence_stream_translation --arch han_transformer \
    --context-sentences "${SENTENCES:-3}" --batch-size "${LANES:-8}" \
    --chunk-sentences "${CHUNK:-20}" --max-epoch 1 "$@"
}

case $system in
  sentence) train --task sliding_window_translation --window-size 1 --arch transformer \
    --max-tokens 4096 --update-freq 4 --max-epoch 20 "$@" ;;
  encoder) context --context-side source "$@" ;;
  decoder) context --context-side target "$@" ;;
  joint) context --context-side both "$@" ;;
  *) echo "error: unknown system $system; see the head of $0" >&2; exit 1 ;;
esac
