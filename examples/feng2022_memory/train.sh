#!/usr/bin/env bash
# Train one system of Feng et al. (2022): transformer base, hyper-parameters of section 4.2.
#
#   bash train.sh WORK sentence SAVE [options of fairseq-train, e.g. --fp16]
#   bash train.sh WORK SYSTEM SAVE --finetune-from-model SENTENCE/checkpoint_best.pt [...]
#
# sentence is the first stage.  SYSTEM is the side of the memory: source, target or both.
# Environment: LAYERS with a memory, from 0 (5; in the paper also 0,1, 2,3 and 4,5) and SIZE, the
# number of memory vectors (16; in the paper 8 to 512).  CORPUS is ted (default), news or europarl; it
# sets DROPOUT, WARMUP and UPDATE_FREQ of both stages, which may also be set directly.  An update of the
# second stage has LANES documents in parallel (8), CHUNK sentences of each (20), UPDATE_FREQ times:
# about 8 whole documents, as in the authors' recipe.  With --fp16 give --fp16-no-flatten-grads too.
# Before this: prepare.sh.  Next: generate.sh.
set -euo pipefail
: "${3:?usage: bash train.sh WORK SYSTEM SAVE [options of fairseq-train]}"
work=$1 system=$2 save=$3
shift 3
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
layers=${LAYERS:-5} size=${SIZE:-16}

# chunks: number of chunks in a document of average length (table 2: 123, 40 and 14 sentences).
case ${CORPUS:-ted} in
  ted) dropout=0.2 warmup=1000 chunks=6 ;;
  news) dropout=0.2 warmup=2000 chunks=2 ;;
  europarl) dropout=0.1 warmup=2000 chunks=1 ;;
  *) echo "error: unknown corpus $CORPUS; see the head of $0" >&2; exit 1 ;;
esac
case $system:${CORPUS:-ted} in
  sentence:europarl) dropout=0.1 warmup=4000 chunks=1 ;;
  sentence:*) dropout=0.3 warmup=4000 chunks=1 ;;
esac
dropout=${DROPOUT:-$dropout}

train() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --share-all-embeddings --encoder-learned-pos --decoder-learned-pos --activation-fn gelu \
    --dropout "$dropout" --attention-dropout "$dropout" --criterion cross_entropy \
    --lr-scheduler inverse_sqrt --warmup-updates "${WARMUP:-$warmup}" \
    --adam-betas '(0.9, 0.999)' --weight-decay 0.0 --clip-norm 0.0 \
    --update-freq "${UPDATE_FREQ:-$chunks}" --patience 5 --no-epoch-checkpoints --seed 1 "$@"
}

first() { train --optimizer adam --lr 0.0005 --max-tokens 4096 "$@"; }

# Learning rates: 3e-4 for new parameters, 6e-5 for those of the first stage.
second() {
  train --task sentence_stream_translation --arch memory_transformer \
    --memory-layers "$layers" --memory-size "$size" \
    --optimizer grouped_adam --lr 0.0003 --pretrained-lr-scale 0.2 \
    --batch-size "${LANES:-8}" --chunk-sentences "${CHUNK:-20}" "$@"
}

case $system in
  sentence) first --task sliding_window_translation --window-size 1 --arch transformer "$@" ;;
  both | source | target) second --context-side "$system" "$@" ;;
  *) echo "error: unknown system $system; see the head of $0" >&2; exit 1 ;;
esac
