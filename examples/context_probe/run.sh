#!/usr/bin/env bash
# Quickstart: a sentence-level transformer against one with windows of 4 sentences, on data whose
# answers lie in other sentences.  Ends in a table of accuracies.
#
#   bash run.sh [WORK_FOLDER]        (environment: UPDATES=1000, SEED=1)
#
# Another architecture of the same size: MODEL_OPTIONS="--arch rfa_transformer" bash run.sh FOLDER
#
# Needs fairseq_docmt installed; `make quickstart` at the top of the project does that too.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$here/work}
updates=${UPDATES:-1000}
seed=${SEED:-1}
model_options=${MODEL_OPTIONS:-}
export PYTHONWARNINGS=ignore
mkdir -p "$work"
user_dir=$(python -m fairseq_docmt 2> /dev/null)

# Every step writes a log; of a step that fails its last lines are shown.
quietly() {
  local log=$work/$1.log
  shift
  "$@" > "$log" 2>&1 || { tail -n 20 "$log" >&2; echo "failed: $* (whole log: $log)" >&2; exit 1; }
}

python "$here/make_data.py" --out "$work/data"
rm -rf "$work/bin"
quietly preprocess fairseq-preprocess -s src -t tgt --destdir "$work/bin" \
  --trainpref "$work/data/train" --validpref "$work/data/valid" --testpref "$work/data/test"

train() {
  local name=$1 size=$2 tokens=$3
  shift 3
  echo "training $name ($updates updates) ..."
  rm -rf "$work/$name"
  quietly "train_$name" fairseq-train "$work/bin" --user-dir "$user_dir" \
    --task sliding_window_translation --window-size "$size" \
    --arch transformer --encoder-layers 2 --decoder-layers 2 \
    --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4 \
    --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4 \
    --share-decoder-input-output-embed --dropout 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 \
    --lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates 200 \
    --criterion label_smoothed_cross_entropy \
    --max-tokens "$tokens" --max-update "$updates" --seed "$seed" --num-workers 0 \
    --no-epoch-checkpoints --save-dir "$work/$name" --log-format simple "$@"
}

translate() {
  echo "translating with $1, --decoding $2 ..."
  quietly "translate_$1_$2" fairseq-generate "$work/bin" --user-dir "$user_dir" \
    --task sliding_window_translation --decoding "$2" --path "$work/$1/checkpoint_last.pt" \
    --beam 4 --max-tokens 4000 --num-workers 0 --results-path "$work/out_$1_$2"
}

# The same number of sentences per update for both: windows hold about four times the tokens.
# shellcheck disable=SC2086  (options are words)
train sentence 1 500 $model_options
# shellcheck disable=SC2086
train window4 4 2000 $model_options
translate sentence window
translate window4 window
translate window4 sequential

python "$here/score.py" --probe "$work/data/test.probe.jsonl" --json "$work/scores.json" \
  sentence="$work/out_sentence_window/generate-test.txt" \
  window4="$work/out_window4_window/generate-test.txt" \
  window4-sequential="$work/out_window4_sequential/generate-test.txt"
