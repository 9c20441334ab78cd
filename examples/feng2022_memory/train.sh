#!/usr/bin/env bash
# One system of Feng et al. (2022), transformer base, hyper-parameters of section 4.2.
#
#   bash train.sh WORK sentence SAVE [options of fairseq-train, as --fp16]
#   bash train.sh WORK SYSTEM SAVE --finetune-from-model SENTENCE/checkpoint_best.pt [...]
#
# sentence is the first stage.  SYSTEM is a memory by its side, source, target or both, with the
# layers LAYERS (from 0; paper: 5, also 0,1, 2,3 and 4,5) and SIZE vectors (16; also 8 to 512).
# Environment: DROPOUT (first stage 0.3 for TED and News, 0.1 for Europarl; second 0.2 and 0.1),
# WARMUP (second stage 1000 for TED, 2000 for News and Europarl), LANES documents side by side (8) and
# CHUNK sentences of each in an update.  With --fp16 give --fp16-no-flatten-grads too.
# Before this: prepare.sh.  After it: generate.sh.
set -euo pipefail
work=$1 system=$2 save=$3
shift 3
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt 2> /dev/null)
layers=${LAYERS:-5} size=${SIZE:-16}

first() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --share-all-embeddings --encoder-learned-pos --decoder-learned-pos --activation-fn gelu \
    --dropout "${DROPOUT:-0.3}" \
    --optimizer adam --adam-betas '(0.9, 0.999)' --weight-decay 0.01 --clip-norm 1.0 \
    --lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 --criterion cross_entropy \
    --max-tokens 4096 --update-freq "${UPDATE_FREQ:-4}" --patience 5 --no-epoch-checkpoints \
    --seed 1 "$@"
}

second() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --share-all-embeddings --encoder-learned-pos --decoder-learned-pos --activation-fn gelu \
    --dropout "${DROPOUT:-0.2}" \
    --optimizer grouped_adam --pretrained-lr-scale 0.2 --adam-betas '(0.9, 0.999)' \
    --weight-decay 0.01 --clip-norm 1.0 \
    --lr 0.0003 --lr-scheduler inverse_sqrt --warmup-updates "${WARMUP:-1000}" \
    --criterion cross_entropy --batch-size "${LANES:-8}" --chunk-sentences "${CHUNK:-20}" \
    --patience 5 --no-epoch-checkpoints --seed 1 "$@"
}

case $system in
  sentence) first --task sliding_window_translation --window-size 1 --arch transformer "$@" ;;
  both) second --task sentence_stream_translation --arch memory_transformer \
    --memory-side both --memory-layers "$layers" --memory-size "$size" "$@" ;;
  source) second --task sentence_stream_translation --arch memory_transformer \
    --memory-side source --memory-layers "$layers" --memory-size "$size" "$@" ;;
  target) second --task sentence_stream_translation --arch memory_transformer \
    --memory-side target --memory-layers "$layers" --memory-size "$size" "$@" ;;
  *) echo "unknown system $system" >&2; exit 1 ;;
esac
