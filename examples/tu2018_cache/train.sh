#!/usr/bin/env bash
# Train one system of Tu et al. (2018), with the hyper-parameters of section 4.1.
#
#   bash train.sh DATA base SAVE [options of fairseq-train, e.g. --fp16]
#   bash train.sh DATA SYSTEM SAVE --finetune-from-model BASE/checkpoint_best.pt [...]
#   bash train.sh DATA wang2017 SAVE [...]
#
# DATA is a binarised folder with documents.  base is the first pass, a sentence-level model.  SYSTEM
# is cache (deep fusion), cache-shallow (words as values) or cache-no-overwrite; this second pass
# trains only the gate of the cache.  wang2017 and jean2017, the baselines of the paper, are trained
# like base, with all their parameters.
# Environment: SLOTS of the cache (25; in the paper 0 to 1000); LANES, documents in parallel (16), and
# CHUNK, sentences of each in an update (5): 80 sentences as in the first pass; DROPOUT of base,
# wang2017 and jean2017.
# Before this: data_prep/prepare.py, or prepare_iwslt15.sh of wu2022_rfa.  Next: generate.sh.
set -euo pipefail
: "${3:?usage: bash train.sh DATA SYSTEM SAVE [options of fairseq-train]}"
data=$1 system=$2 save=$3
shift 3
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
slots=${SLOTS:-25} dropout=${DROPOUT:-0.2} lanes=${LANES:-16} chunk=${CHUNK:-5}

# Sentences of up to 80 tokens plus the end symbol; the best checkpoint is selected by BLEU.
train() {
  fairseq-train "$data" --user-dir "$user_dir" --save-dir "$save" \
    --encoder-embed-dim 620 --decoder-embed-dim 620 --decoder-layers 1 \
    --encoder-hidden-size 1000 --decoder-hidden-size 1000 --attention-dim 1000 \
    --max-source-positions 81 --max-target-positions 81 --skip-invalid-size-inputs-valid-test \
    --optimizer adadelta --adadelta-rho 0.95 --adadelta-eps 1e-6 --lr 1.0 --clip-norm 1.0 \
    --criterion cross_entropy --sentence-avg --no-epoch-checkpoints --seed 1 \
    --eval-bleu --eval-bleu-args '{"beam": 10}' --eval-bleu-remove-bpe \
    --best-checkpoint-metric bleu --maximize-best-checkpoint-metric "$@"
}

stream() {
  train --task sentence_stream_translation --batch-size "$lanes" --chunk-sentences "$chunk" "$@"
}

# Here dropout is applied only to the output layer: the frozen model reads and writes the cache as
# in decoding.
cache() {
  stream --arch cache_rnn --cache-size "$slots" --dropout "$dropout" --freeze-pretrained --max-epoch 5 "$@"
}

case $system in
  base) train --task sliding_window_translation --window-size 1 --batch-size 80 \
    --arch rnnsearch --dropout "$dropout" --max-epoch 15 "$@" ;;
  cache) cache --context-integration deep "$@" ;;
  cache-shallow) cache --context-integration shallow "$@" ;;
  cache-no-overwrite) cache --context-integration deep --no-overwrite "$@" ;;
  wang2017) stream --arch context_rnn --context hierarchical --dropout "$dropout" \
    --max-epoch 15 "$@" ;;
  jean2017) stream --arch context_rnn --context previous-source-attention --dropout "$dropout" \
    --max-epoch 15 "$@" ;;
  *) echo "error: unknown system $system; see the head of $0" >&2; exit 1 ;;
esac
