#!/usr/bin/env bash
# Train one system of Maruf and Haffari (2018), with the hyper-parameters of section 5.
#
#   bash train.sh WORK SYSTEM SAVE [--lm lm] [--lm-size 512] [options of fairseq-train, e.g. --fp16]
#
# SYSTEM is base, the first stage, a sentence-level model; the side of the memories: source, target or
# both for Memory-to-Context, source-output and so on for Memory-to-Output; or a baseline: prevtrg,
# jean2017, wang2017.  All but the first need --finetune-from-model BASE/checkpoint_best.pt.
# A source memory needs --lm, the folder of train_sentence_lm.sh, and --lm-size as there; a target
# memory --drafts, the folder of make_drafts.sh, or --gold-drafts for references.  Baselines have 16
# documents in parallel (--batch-size), 5 sentences of each in an update (--chunk-sentences).
# Before this: prepare.sh.  Next: generate.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM SAVE --lm=lm --lm-size:count=512 "[options of fairseq-train]" -- "$@"
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
case $system in both*) dropout=0.5 ;; *) dropout=0.2 ;; esac

first() {
  fairseq-train "$work/bin" --user-dir "$user_dir" --save-dir "$save" \
    --arch rnnsearch_512 --dropout "$dropout" \
    --optimizer sgd --lr 0.1 --lr-scheduler fixed --force-anneal 5 --lr-shrink 0.5 --clip-norm 5 \
    --criterion cross_entropy --sentence-avg --best-checkpoint-metric loss \
    --max-epoch 10 --no-epoch-checkpoints --seed 1 "$@" "${more[@]}"
}

second() {
  note_start
  fairseq-train "$work/bin" --user-dir "$user_dir" --save-dir "$save" --dropout "$dropout" \
    --optimizer sgd --lr 0.08 --lr-scheduler fixed --force-anneal 2 --lr-shrink 0.9 --clip-norm 5 \
    --criterion cross_entropy --sentence-avg --best-checkpoint-metric loss \
    --max-epoch 15 --no-epoch-checkpoints --seed 1 "$@" "${more[@]}"
}

models=$lm/forward/checkpoint_best.pt:$lm/backward/checkpoint_best.pt
source=(--sentence-lm "$models" --sentence-lm-embed-dim "$lm_size" --sentence-lm-hidden-size "$lm_size")
case $system in *-output) insertion=output ;; *) insertion=context ;; esac

# One document per update.
memory() {
  second --task document_rows_translation --max-document-tokens 8000 --batch-size 1 \
    --arch memnet_rnn --context-integration "$insertion" --memory-dropout 0.2 "$@"
}

stream() {
  second --task sentence_stream_translation --arch context_rnn \
    --batch-size 16 --chunk-sentences 5 "$@"
}

case $system in
  base) first --task sliding_window_translation --window-size 1 --batch-size 80 ;;
  source | source-output) memory --context-side source "${source[@]}" ;;
  target | target-output) memory --context-side target ;;
  both | both-output) memory --context-side both "${source[@]}" ;;
  prevtrg) stream --context previous-target ;;
  jean2017) stream --context previous-source-attention ;;
  wang2017) stream --context hierarchical ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
