#!/usr/bin/env bash
# Train one system of Wu et al. (2022), with the hyper-parameters of appendix A.2.
#
#   bash train.sh WORK SYSTEM SAVE [--corpus iwslt] [--window-size 4] [options of fairseq-train, e.g. --fp16]
#
# SYSTEM is transformer, rfa, rfa-sgate or rfa-sgate-avg.  --window-size is the number of sentences in
# a sliding window, from 1 to 4, or group to train on whole groups of OpenSubtitles.
# --corpus is iwslt, opensubtitles (for BLEU) or consistency (OpenSubtitles for figure 3); it sets
# --cross-feature-dim and --causal-feature-dim (random vectors per head) and --gate-bias-init.
# Before this: prepare_*.sh.  Next: generate.sh.  For consistency use train_consistency.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM SAVE --corpus=iwslt --window-size:1/2/3/4/group=4 \
  "[options of fairseq-train]" -- "$@"
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

# Select the best checkpoint by BLEU and stop early after 10 epochs.  For consistency both are done
# by train_consistency.sh, which needs the last 11 epochs.
select=(--patience 10 --eval-bleu --eval-bleu-args '{"beam": 4}' --eval-bleu-remove-bpe --no-epoch-checkpoints
  --best-checkpoint-metric bleu --maximize-best-checkpoint-metric)
case $corpus in
  iwslt) cross=256 causal=32 bias=2 ;;
  opensubtitles) cross=256 causal=32 bias=1 ;;
  consistency) cross=128 causal=64 bias=1; select=(--keep-last-epochs 11) ;;
  *) echo "error: unknown corpus $corpus; see bash ${0##*/} --help" >&2; exit 1 ;;
esac

# 16,384 tokens per update.
train() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --activation-fn gelu --share-decoder-input-output-embed --dropout 0.3 --weight-decay 0.0001 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \
    --lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 8000 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens 4096 --update-freq 4 --seed 1 \
    "${select[@]}" "$@" "${more[@]}"
}

# All layers share a pool of 500 random matrices and use the same ones in decoding.
pool=(--random-matrices 500 --share-random-matrices --same-matrices-in-decoding)

documents() { train --task full_document_translation "$@"; }
windows() { train --task sliding_window_translation --window-size "$window_size" "$@"; }
case $window_size in group) examples=documents ;; *) examples=windows ;; esac

rfa() {
  "$examples" --arch rfa_transformer_iwslt --cross-feature-dim "$cross" \
    --causal-feature-dim "$causal" "${pool[@]}" "$@"
}

case $system in
  transformer) "$examples" --arch transformer_iwslt_de_en \
    --encoder-attention-heads 8 --decoder-attention-heads 8 ;;
  rfa) rfa ;;
  rfa-sgate) rfa --sentence-gate decay --gate-bias-init "$bias" ;;
  rfa-sgate-avg) rfa --sentence-gate average --gate-bias-init 0 ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
