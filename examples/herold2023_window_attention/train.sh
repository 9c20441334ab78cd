#!/usr/bin/env bash
# Train one system of Herold and Ney (2023): transformer base, hyper-parameters of appendix A.2.
#
#   bash train.sh WORK SYSTEM SAVE [--corpus news] [options of fairseq-train, e.g. --fp16]
#
# SYSTEM is one of
#   sentence      sentence level
#   concat2       each sentence with the previous one
#   concat1000    documents in parts of up to 1000 target tokens
#   lst           the same with long-short term attention
#   window        the same with window attention and relative positions
#   window-abs    the same with window attention and absolute positions
#   relative1000  concat1000 with relative positions and no window ("concat-adj. rel." of table 4)
# --corpus is news, ted or os; it sets --dropout and --label-smoothing.  --attention-window, also the
# maximum relative position, is 20; in the paper also 10 and 30.
# Before this: prepare.sh.  Next: generate.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM SAVE --corpus=news "[options of fairseq-train]" -- "$@"
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
case $corpus in
  news | ted) dropout=0.3 smoothing=0.2 ;;
  os) dropout=0.1 smoothing=0.1 ;;
  *) echo "error: unknown corpus $corpus; see bash ${0##*/} --help" >&2; exit 1 ;;
esac

# Select the best checkpoint by validation perplexity, whose logarithm is nll_loss.
train() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --share-all-embeddings --dropout "$dropout" \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \
    --lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 \
    --criterion label_smoothed_cross_entropy --label-smoothing "$smoothing" \
    --max-tokens 4096 --update-freq 8 \
    --best-checkpoint-metric nll_loss --patience 10 --no-epoch-checkpoints --seed 1 "$@" "${more[@]}"
}

# Systems with context get a symbol at the beginning of each document (<bod>, section 3.1).
case $system in
  sentence) train --task sliding_window_translation --window-size 1 --arch transformer ;;
  concat2) train --task sliding_window_translation --window-size 2 --mark-document-start \
    --arch transformer ;;
  concat1000) train --task full_document_translation --max-document-tokens 1000 \
    --mark-document-start --arch transformer ;;
  lst) train --task full_document_translation --max-document-tokens 1000 \
    --mark-document-start --arch lst_transformer ;;
  window) train --task full_document_translation --max-document-tokens 1000 \
    --mark-document-start --arch window_attn_transformer \
    --attention-window 20 --position relative ;;
  window-abs) train --task full_document_translation --max-document-tokens 1000 \
    --mark-document-start --arch window_attn_transformer \
    --attention-window 20 --position absolute ;;
  relative1000) train --task full_document_translation --max-document-tokens 1000 \
    --mark-document-start --arch window_attn_transformer \
    --attention-window 20 --position relative --full-encoder-attention \
    --full-decoder-attention --full-cross-attention ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
