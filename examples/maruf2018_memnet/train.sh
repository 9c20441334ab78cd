#!/usr/bin/env bash
# Train one system of Maruf and Haffari (2018), with the hyper-parameters of section 5.
#
#   bash train.sh DATA base SAVE [options of fairseq-train, e.g. --fp16]
#   bash train.sh DATA SYSTEM SAVE --finetune-from-model BASE/checkpoint_best.pt [...]
#
# DATA is a binarised folder with documents.  base is the first stage, the sentence-level model.
# SYSTEM is the side of the memories: source, target or both for Memory-to-Context, source-output and
# so on for Memory-to-Output; or a baseline: prevtrg, jean2017, wang2017.
# Environment: memories need LM, the folder of train_sentence_lm.sh, and DRAFTS, the folder of
# make_drafts.sh, or gold for references.  Optional: DROPOUT (0.2; both: 0.5), SIZE of the language
# models (512); for baselines LANES, documents in parallel (16), and CHUNK, sentences of each in an
# update (5).
# Before this: prepare.sh.  Next: generate.sh.
set -euo pipefail
: "${3:?usage: bash train.sh DATA SYSTEM SAVE [options of fairseq-train]}"
data=$1 system=$2 save=$3
shift 3
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
lm=${LM:-lm} drafts=${DRAFTS:-drafts}
case $system in both*) dropout=${DROPOUT:-0.5} ;; *) dropout=${DROPOUT:-0.2} ;; esac
size=${SIZE:-512} lanes=${LANES:-16} chunk=${CHUNK:-5}

first() {
  fairseq-train "$data" --user-dir "$user_dir" --save-dir "$save" \
    --arch rnnsearch_512 --dropout "$dropout" \
    --optimizer sgd --lr 0.1 --lr-scheduler fixed --force-anneal 5 --lr-shrink 0.5 --clip-norm 5 \
    --criterion cross_entropy --sentence-avg --best-checkpoint-metric loss \
    --max-epoch 10 --no-epoch-checkpoints --seed 1 "$@"
}

second() {
  fairseq-train "$data" --user-dir "$user_dir" --save-dir "$save" --dropout "$dropout" \
    --optimizer sgd --lr 0.08 --lr-scheduler fixed --force-anneal 2 --lr-shrink 0.9 --clip-norm 5 \
    --criterion cross_entropy --sentence-avg --best-checkpoint-metric loss \
    --max-epoch 15 --no-epoch-checkpoints --seed 1 "$@"
}

models=$lm/forward/checkpoint_best.pt:$lm/backward/checkpoint_best.pt
source=(--sentence-lm "$models" --sentence-lm-embed-dim "$size" --sentence-lm-hidden-size "$size")
target=(--drafts "$drafts")
[ "$drafts" != gold ] || target=(--gold-drafts)
case $system in *-output) insertion=output ;; *) insertion=context ;; esac

# One document per update.
memory() {
  second --task document_rows_translation --max-document-tokens 8000 --batch-size 1 \
    --arch memnet_rnn --context-integration "$insertion" --memory-dropout 0.2 "$@"
}

stream() {
  second --task sentence_stream_translation --arch context_rnn \
    --batch-size "$lanes" --chunk-sentences "$chunk" "$@"
}

case ${system%-output} in
  base) first --task sliding_window_translation --window-size 1 --batch-size 80 "$@" ;;
  source) memory --context-side source "${source[@]}" "$@" ;;
  target) memory --context-side target "${target[@]}" "$@" ;;
  both) memory --context-side both "${source[@]}" "${target[@]}" "$@" ;;
  prevtrg) stream --context previous-target "$@" ;;
  jean2017) stream --context previous-source-attention "$@" ;;
  wang2017) stream --context hierarchical "$@" ;;
  *) echo "error: unknown system $system; see the head of $0" >&2; exit 1 ;;
esac
