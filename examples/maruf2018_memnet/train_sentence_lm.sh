#!/usr/bin/env bash
# Train forward and backward language models of the source.  Their last states are the sentence vectors
# of the source memory (Maruf and Haffari 2018, section 4).
#
#   bash train_sentence_lm.sh TRAIN VALID DICT OUT [--lm-size 512] [options of fairseq-train, e.g. --fp16]
#
# TRAIN and VALID are the source side of the input of fairseq-preprocess; DICT is its dict.*.txt.
# --lm-size: embeddings and states.
# Next: --sentence-lm OUT/forward/checkpoint_best.pt:OUT/backward/checkpoint_best.pt
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments TRAIN VALID DICT OUT --lm-size:count=512 "[options of fairseq-train]" -- "$@"
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
for text in "$train" "$valid" "$dict"; do
  [ -r "$text" ] || { echo "error: $text not found" >&2; exit 1; }
done
for text in "$train" "$valid"; do
  grep -q '[^[:space:]]' "$text" || { echo "error: $text has no sentences" >&2; exit 1; }
done

# fairseq would go on with the model that is there.
given=(--lm-size "$lm_size" "checksum of the text: $(cat "$train" "$valid" "$dict" | cksum)")
[ ! -e "$out/forward/checkpoint_last.pt" ] || made_alike "$out/arguments" "${given[@]}" || true
mkdir -p "$out"
echo "${given[*]}" > "$out/arguments"

# With a blank line after it each sentence is a document, so that --sample-break-mode complete_doc
# yields single sentences (as would the mode eos, which fails with NumPy 2).
in_order() { awk 'NF { print; print "" }' "$1"; }
reversed() { awk 'NF { for (i = NF; i > 1; i--) printf "%s ", $i; print $1; print "" }' "$1"; }

for direction in forward backward; do
  text=$out/text/$direction
  mkdir -p "$text"
  order=in_order
  [ "$direction" = forward ] || order=reversed
  $order "$train" > "$text/train"
  $order "$valid" > "$text/valid"
  rm -rf "${out:?}/bin/$direction"
  fairseq-preprocess --only-source --srcdict "$dict" --trainpref "$text/train" \
    --validpref "$text/valid" --destdir "$out/bin/$direction"
  fairseq-train "$out/bin/$direction" --user-dir "$user_dir" --task language_modeling --sample-break-mode complete_doc \
    --save-dir "$out/$direction" --arch lstm_lm --criterion cross_entropy \
    --decoder-embed-dim "$lm_size" --decoder-hidden-size "$lm_size" --decoder-out-embed-dim "$lm_size" \
    --tokens-per-sample 1000 --dropout 0.2 --optimizer adam --lr 0.001 --clip-norm 5 --max-tokens 4000 \
    --required-batch-size-multiple 1 \
    --max-epoch 10 --no-epoch-checkpoints --seed 1 "${more[@]}"
done
