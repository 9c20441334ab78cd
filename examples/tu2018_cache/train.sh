#!/usr/bin/env bash
# One system of Tu et al. (2018), hyper-parameters of section 4.1.
#
#   bash train.sh DATA base SAVE [options of fairseq-train, as --fp16]
#   bash train.sh DATA SYSTEM SAVE --finetune-from-model BASE/checkpoint_best.pt [...]
#
# DATA is a binarised folder with documents.  base is the first pass.  SYSTEM is cache (deep fusion),
# cache-shallow (words as values) or cache-no-overwrite, with SLOTS slots (25; paper also 0 to 1000);
# the second pass trains the gate of the cache alone.  Environment: LANES documents side by side (16)
# and CHUNK sentences of each in an update (5), 80 sentences as in the first pass.
# Before this: data_prep/prepare.py, or prepare_iwslt15.sh of wu2022_rfa.  After it: generate.sh.
set -euo pipefail
data=$1 system=$2 save=$3
shift 3
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt 2> /dev/null)
slots=${SLOTS:-25}

first() {
  fairseq-train "$data" --user-dir "$user_dir" --save-dir "$save" \
    --arch rnnsearch --dropout "${DROPOUT:-0.2}" \
    --optimizer adadelta --adadelta-rho 0.95 --adadelta-eps 1e-6 --lr 1.0 --clip-norm 1.0 \
    --criterion cross_entropy --sentence-avg \
    --batch-size 80 --max-epoch 15 --no-epoch-checkpoints --seed 1 "$@"
}

second() {
  fairseq-train "$data" --user-dir "$user_dir" --save-dir "$save" \
    --arch cache_rnn --cache-size "$slots" --dropout "${DROPOUT:-0.2}" --freeze-pretrained \
    --optimizer adadelta --adadelta-rho 0.95 --adadelta-eps 1e-6 --lr 1.0 --clip-norm 1.0 \
    --criterion cross_entropy \
    --batch-size "${LANES:-16}" --chunk-sentences "${CHUNK:-5}" \
    --max-epoch 5 --no-epoch-checkpoints --seed 1 "$@"
}

case $system in
  base) first --task sliding_window_translation --window-size 1 "$@" ;;
  cache) second --task sentence_stream_translation "$@" ;;
  cache-shallow) second --task sentence_stream_translation --fusion shallow "$@" ;;
  cache-no-overwrite) second --task sentence_stream_translation --no-overwrite "$@" ;;
  *) echo "unknown system $system" >&2; exit 1 ;;
esac
