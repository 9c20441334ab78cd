#!/usr/bin/env bash
# Train and evaluate a recurrent model with memories of the whole document on the context probe, in the
# stages of the paper: source language models, the sentence-level model, its translations of all
# splits, then the memories.  Prints a table of accuracies.
#
#   bash run_memnet.sh [WORK_FOLDER] [SYSTEM ...]        (environment: UPDATES=2000, SEED=1)
#
# SYSTEMs: source, target and both (memories); default: source.  Other environment: PHENOMENA of the
# data (formality,pronoun) and SENTENCES per document (12).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$here/work}
systems=("${@:2}")
[ ${#systems[@]} -gt 0 ] || systems=(source)
updates=${UPDATES:-2000}
lm_size=256
document=(--task full_document_translation)
recipes=$here/../maruf2018_memnet
# shellcheck source=steps.sh
. "$here/steps.sh"
sizes=(--encoder-embed-dim 128 --encoder-hidden-size 128 --decoder-layers 1
  --decoder-embed-dim 128 --decoder-hidden-size 128 --attention-dim 128)

prepare --phenomena "${PHENOMENA:-formality,pronoun}" --train-documents 4000 --test-documents 400 \
  --sentences-per-document "${SENTENCES:-12}"
echo "training language models of the source ..."
rm -rf "$work/lm"
SIZE=$lm_size EPOCHS=${LM_EPOCHS:-6} quietly language_models bash "$recipes/train_sentence_lm.sh" \
  "$work/data/train.src" "$work/data/valid.src" "$work/bin/dict.src.txt" "$work/lm" \
  --num-workers 0 --log-format simple
best=checkpoint_best.pt
train rnnsearch "$updates" --task sliding_window_translation --window-size 1 --max-tokens 1000 \
  --arch rnnsearch
translate rnnsearch window --task sliding_window_translation
echo "translating all splits with rnnsearch ..."
quietly drafts bash "$recipes/make_drafts.sh" "$work/bin" src tgt \
  "$work/rnnsearch/checkpoint_last.pt" "$work/drafts" train valid test -- --num-workers 0
outputs=(rnnsearch=rnnsearch_window)
for system in "${systems[@]}"; do
  train "$system" "$updates" "${document[@]}" --max-tokens 1200 --drafts "$work/drafts" \
    --arch memnet_rnn --memory "$system" --memory-dropout 0 \
    --lr 0.0005 --lr-scheduler fixed --warmup-updates 0 \
    --sentence-lm "$work/lm/forward/$best:$work/lm/backward/$best" \
    --sentence-lm-embed-dim "$lm_size" --sentence-lm-hidden-size "$lm_size" \
    --finetune-from-model "$work/rnnsearch/checkpoint_last.pt"
  translate "$system" iterative "${document[@]}" --drafts "$work/drafts"
  outputs+=("$system=${system}_iterative")
done
score "${outputs[@]}"
