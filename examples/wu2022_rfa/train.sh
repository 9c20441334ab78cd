#!/usr/bin/env bash
# One system of Wu et al. (2022), hyper-parameters of appendix A.2.
#
#   bash train.sh WORK SYSTEM WINDOW SAVE [options of fairseq-train, as --fp16]
#
# SYSTEM is transformer, rfa, rfa-sgate or rfa-sgate-avg.  WINDOW is the number of sentences in a
# sliding window, 1 to 4, or group: each group of OpenSubtitles is one example.  Environment:
# GATE_BIAS (2 for IWSLT, 1 for OpenSubtitles), CROSS and CAUSAL (256 and 32; for consistency on
# OpenSubtitles 128 and 64).  Before this: prepare_*.sh.  After it: generate.sh.
set -euo pipefail
work=$1 system=$2 size=$3 save=$4
shift 4
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt 2> /dev/null)
cross=${CROSS:-256} causal=${CAUSAL:-32} bias=${GATE_BIAS:-2}

# 16,384 tokens an update; the best of the checkpoints by BLEU, early stop after 10 epochs.
train() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --activation-fn gelu --share-decoder-input-output-embed --dropout 0.3 --weight-decay 0.0001 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \
    --lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 8000 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens 4096 --update-freq "${UPDATE_FREQ:-4}" --seed 1 --no-epoch-checkpoints \
    --eval-bleu --eval-bleu-args '{"beam": 4}' --eval-bleu-remove-bpe --patience 10 \
    --best-checkpoint-metric bleu --maximize-best-checkpoint-metric "$@"
}

case $system:$size in
  transformer:group) train --task full_document_translation --arch transformer_iwslt_de_en \
    --encoder-attention-heads 8 --decoder-attention-heads 8 "$@" ;;
  rfa:group) train --task full_document_translation --arch rfa_transformer_iwslt \
    --cross-feature-dim "$cross" --causal-feature-dim "$causal" "$@" ;;
  rfa-sgate:group) train --task full_document_translation --arch rfa_transformer_iwslt \
    --cross-feature-dim "$cross" --causal-feature-dim "$causal" \
    --sentence-gate decay --gate-bias-init "$bias" "$@" ;;
  rfa-sgate-avg:group) train --task full_document_translation --arch rfa_transformer_iwslt \
    --cross-feature-dim "$cross" --causal-feature-dim "$causal" --sentence-gate average "$@" ;;
  transformer:[1-4]) train --task sliding_window_translation --window-size "$size" \
    --arch transformer_iwslt_de_en \
    --encoder-attention-heads 8 --decoder-attention-heads 8 "$@" ;;
  rfa:[1-4]) train --task sliding_window_translation --window-size "$size" \
    --arch rfa_transformer_iwslt \
    --cross-feature-dim "$cross" --causal-feature-dim "$causal" "$@" ;;
  rfa-sgate:[1-4]) train --task sliding_window_translation --window-size "$size" \
    --arch rfa_transformer_iwslt --cross-feature-dim "$cross" --causal-feature-dim "$causal" \
    --sentence-gate decay --gate-bias-init "$bias" "$@" ;;
  rfa-sgate-avg:[1-4]) train --task sliding_window_translation --window-size "$size" \
    --arch rfa_transformer_iwslt --cross-feature-dim "$cross" --causal-feature-dim "$causal" \
    --sentence-gate average "$@" ;;
  *) echo "unknown system $system or window $size" >&2; exit 1 ;;
esac
