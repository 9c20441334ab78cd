#!/usr/bin/env bash
# One system of Herold and Ney (2023), transformer base, hyper-parameters of appendix A.2.
#
#   bash train.sh DATA SYSTEM SAVE [options of fairseq-train, as --fp16]
#
# DATA is a binarised folder with documents; SYSTEM one of
#   sentence      sentence level
#   concat2       each sentence with the one before it
#   concat1000    documents in parts of up to 1000 target tokens
#   lst           the same with long-short term attention
#   window        the same with window attention, relative positions
#   window-abs    the same with absolute positions
# Before this: data_prep/prepare.py.  After it: generate.sh.
set -euo pipefail
data=$1 system=$2 save=$3
shift 3
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt 2> /dev/null)
window=${WINDOW:-20}

train() {
  fairseq-train "$data" --user-dir "$user_dir" --save-dir "$save" \
    --share-all-embeddings --dropout "${DROPOUT:-0.3}" \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \
    --lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 \
    --criterion label_smoothed_cross_entropy --label-smoothing "${LABEL_SMOOTHING:-0.2}" \
    --max-tokens "${MAX_TOKENS:-4096}" --update-freq "${UPDATE_FREQ:-8}" \
    --max-epoch "${EPOCHS:-100}" --patience 10 --no-epoch-checkpoints --seed 1 "$@"
}

case $system in
  sentence) train --task sliding_window_translation --window-size 1 --arch transformer "$@" ;;
  concat2) train --task sliding_window_translation --window-size 2 --arch transformer "$@" ;;
  concat1000) train --task full_document_translation --arch transformer "$@" ;;
  lst) train --task full_document_translation --arch lst_transformer "$@" ;;
  window) train --task full_document_translation --arch window_attn_transformer \
    --attention-window "$window" --position relative "$@" ;;
  window-abs) train --task full_document_translation --arch window_attn_transformer \
    --attention-window "$window" --position absolute "$@" ;;
  *) echo "unknown system $system" >&2; exit 1 ;;
esac
