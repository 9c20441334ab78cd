#!/usr/bin/env bash
# Train one system of Feng et al. (2022): transformer base, hyper-parameters of section 4.2.
#
#   bash train.sh WORK SYSTEM SAVE [--corpus ted] [options of fairseq-train, e.g. --fp16]
#
# SYSTEM is sentence, the first stage, or the side of the memory: source, target or both, which needs
# --finetune-from-model SENTENCE/checkpoint_best.pt.
# --corpus is ted, news or europarl; it sets --dropout, --attention-dropout, --warmup-updates and
# --update-freq.  In the paper also: --memory-layers 0,1, 2,3 and 4,5 (here 5), --memory-size 8 to 512
# (16).  An update of the second stage has 8 documents in parallel (--batch-size), 20 sentences of each
# (--chunk-sentences), --update-freq times: about 8 whole documents, as in the authors' recipe.  With
# --fp16 give --fp16-no-flatten-grads too.
# Before this: prepare.sh.  Next: generate.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK SYSTEM SAVE --corpus=ted "[options of fairseq-train]" -- "$@"
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)

# chunks: number of chunks in a document of average length (table 2: 123, 40 and 14 sentences).
case $corpus in
  ted) dropout=0.2 warmup=1000 chunks=6 ;;
  news) dropout=0.2 warmup=2000 chunks=2 ;;
  europarl) dropout=0.1 warmup=2000 chunks=1 ;;
  *) echo "error: unknown corpus $corpus; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
case $system:$corpus in
  sentence:europarl) dropout=0.1 warmup=4000 chunks=1 ;;
  sentence:*) dropout=0.3 warmup=4000 chunks=1 ;;
esac

train() {
  fairseq-train "$work/data/bin" --user-dir "$user_dir" --save-dir "$save" \
    --share-all-embeddings --encoder-learned-pos --decoder-learned-pos --activation-fn gelu \
    --dropout "$dropout" --attention-dropout "$dropout" --criterion cross_entropy \
    --lr-scheduler inverse_sqrt --warmup-updates "$warmup" \
    --adam-betas '(0.9, 0.999)' --weight-decay 0.0 --clip-norm 0.0 \
    --update-freq "$chunks" --patience 5 --no-epoch-checkpoints --seed 1 "$@" "${more[@]}"
}

first() { train --optimizer adam --lr 0.0005 --max-tokens 4096 "$@"; }

# Learning rates: 3e-4 for new parameters, 6e-5 for parameters of the first stage.
second() {
  note_start
  train --task sentence_stream_translation --arch memory_transformer \
    --memory-layers 5 --memory-size 16 \
    --optimizer grouped_adam --lr 0.0003 --pretrained-lr-scale 0.2 \
    --batch-size 8 --chunk-sentences 20 "$@"
}

case $system in
  sentence) first --task sliding_window_translation --window-size 1 --arch transformer ;;
  both | source | target) second --context-side "$system" ;;
  *) echo "error: unknown system $system; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
