#!/usr/bin/env bash
# Train one system of Wu et al. (2022), with the hyper-parameters of appendix A.2.
#
#   bash train.sh WORK SYSTEM WINDOW SAVE [options of fairseq-train, e.g. --fp16]
#
# SYSTEM is transformer, rfa, rfa-sgate or rfa-sgate-avg.  WINDOW is the number of sentences in a
# sliding window, from 1 to 4, or group to train on whole groups of OpenSubtitles.
# Environment: CORPUS is iwslt (default), opensubtitles (for BLEU) or consistency (OpenSubtitles for
# figure 3).  It sets CROSS and CAUSAL (random vectors per head) and GATE_BIAS, which may also be set
# directly.
# Before this: prepare_*.sh.  Next: generate.sh.  For consistency use train_consistency.sh.
set -euo pipefail
: "${4:?usage: bash train.sh WORK SYSTEM WINDOW SAVE [options of fairseq-train]}"
work=$1 system=$2 size=$3 save=$4
shift 4
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

# Select the best checkpoint by BLEU and stop early after 10 epochs.  For consistency both are done
# by train_consistency.sh, which needs the last 11 epochs.
select=(--patience 10 --eval-bleu --eval-bleu-args '{"beam": 4}' --eval-bleu-remove-bpe --no-epoch-checkpoints
  --best-checkpoint-metric bleu --maximize-best-checkpoint-metric)
case ${CORPUS:-iwslt} in
  iwslt) cross=256 causal=32 bias=2 ;;
  opensubtitles) cross=256 causal=32 bias=1 ;;
  consistency) cross=128 causal=64 bias=1; select=(--keep-last-epochs 11) ;;
  *) echo "error: unknown corpus $CORPUS; see the head of $0" >&2; exit 1 ;;
esac
cross=${CROSS:-$cross} causal=${CAUSAL:-$causal} bias=${GATE_BIAS:-$bias}

# 16,384 tokens per update.
train() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --activation-fn gelu --share-decoder-input-output-embed --dropout 0.3 --weight-decay 0.0001 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \
    --lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 8000 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens 4096 --update-freq "${UPDATE_FREQ:-4}" --seed 1 \
    "${select[@]}" "$@"
}

# All layers share a pool of 500 random matrices and use the same ones in decoding.
pool=(--random-matrices 500 --share-random-matrices --same-matrices-in-decoding)

case $system:$size in
  transformer:group) train --task full_document_translation --arch transformer_iwslt_de_en \
    --encoder-attention-heads 8 --decoder-attention-heads 8 "$@" ;;
  rfa:group) train --task full_document_translation --arch rfa_transformer_iwslt \
    --cross-feature-dim "$cross" --causal-feature-dim "$causal" "${pool[@]}" "$@" ;;
  rfa-sgate:group) train --task full_document_translation --arch rfa_transformer_iwslt \
    --cross-feature-dim "$cross" --causal-feature-dim "$causal" "${pool[@]}" \
    --sentence-gate decay --gate-bias-init "$bias" "$@" ;;
  rfa-sgate-avg:group) train --task full_document_translation --arch rfa_transformer_iwslt \
    --cross-feature-dim "$cross" --causal-feature-dim "$causal" "${pool[@]}" \
    --sentence-gate average --gate-bias-init 0 "$@" ;;
  transformer:[1-4]) train --task sliding_window_translation --window-size "$size" \
    --arch transformer_iwslt_de_en \
    --encoder-attention-heads 8 --decoder-attention-heads 8 "$@" ;;
  rfa:[1-4]) train --task sliding_window_translation --window-size "$size" \
    --arch rfa_transformer_iwslt \
    --cross-feature-dim "$cross" --causal-feature-dim "$causal" "${pool[@]}" "$@" ;;
  rfa-sgate:[1-4]) train --task sliding_window_translation --window-size "$size" \
    --arch rfa_transformer_iwslt \
    --cross-feature-dim "$cross" --causal-feature-dim "$causal" "${pool[@]}" \
    --sentence-gate decay --gate-bias-init "$bias" "$@" ;;
  rfa-sgate-avg:[1-4]) train --task sliding_window_translation --window-size "$size" \
    --arch rfa_transformer_iwslt \
    --cross-feature-dim "$cross" --causal-feature-dim "$causal" "${pool[@]}" \
    --sentence-gate average --gate-bias-init 0 "$@" ;;
  *) echo "error: unknown system $system or window $size; see the head of $0" >&2; exit 1 ;;
esac
