#!/usr/bin/env bash
# Train one system of Tu et al. (2018), with the hyper-parameters of section 4.1.
#
#   bash train.sh WORK SYSTEM SAVE [options of fairseq-train, e.g. --fp16]
#
# SYSTEM is base, the first pass, a sentence-level model; or the second pass, which trains only the
# gate of the cache and needs --finetune-from-model BASE/checkpoint_best.pt: cache (deep fusion),
# cache-shallow (words as values) or cache-no-overwrite.  wang2017 and jean2017, the baselines of the
# paper, are trained like base, with all their parameters.
# The cache has 25 slots, in the paper 0 to 1000 (--cache-size).  An update has 16 documents in parallel
# (--batch-size), 5 sentences of each (--chunk-sentences): 80 sentences, as in the first pass.
# Before this: data_prep/prepare.py, or prepare_iwslt15.sh of wu2022_rfa.  Next: generate.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM SAVE "[options of fairseq-train]" -- "$@"
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

# Sentences of up to 80 tokens plus the end symbol; the best checkpoint is selected by BLEU.
train() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --encoder-embed-dim 620 --decoder-embed-dim 620 --decoder-layers 1 \
    --encoder-hidden-size 1000 --decoder-hidden-size 1000 --attention-dim 1000 \
    --max-source-positions 81 --max-target-positions 81 --skip-invalid-size-inputs-valid-test \
    --optimizer adadelta --adadelta-rho 0.95 --adadelta-eps 1e-6 --lr 1.0 --clip-norm 1.0 \
    --criterion cross_entropy --sentence-avg --no-epoch-checkpoints --seed 1 \
    --eval-bleu --eval-bleu-args '{"beam": 10}' --eval-bleu-remove-bpe \
    --best-checkpoint-metric bleu --maximize-best-checkpoint-metric "$@" "${more[@]}"
}

stream() {
  train --task sentence_stream_translation --batch-size 16 --chunk-sentences 5 "$@"
}

# Here dropout is applied only to the output layer: the frozen model reads and writes the cache as
# in decoding.
cache() {
  stream --arch cache_rnn --cache-size 25 --dropout 0.2 --freeze-pretrained --max-epoch 5 "$@"
}

case $system in
  base) train --task sliding_window_translation --window-size 1 --batch-size 80 \
    --arch rnnsearch --dropout 0.2 --max-epoch 15 ;;
  cache) cache --context-integration deep ;;
  cache-shallow) cache --context-integration shallow ;;
  cache-no-overwrite) cache --context-integration deep --no-overwrite ;;
  wang2017) stream --arch context_rnn --context hierarchical --dropout 0.2 --max-epoch 15 ;;
  jean2017) stream --arch context_rnn --context previous-source-attention --dropout 0.2 \
    --max-epoch 15 ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
