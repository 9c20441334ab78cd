# Steps shared by the scripts in this folder.  Set `here` (this folder), `work` and `seed`, then source it.
# shellcheck shell=bash
# Sizes of a transformer; scripts with other models overwrite them.
sizes=(--encoder-layers 2 --decoder-layers 2
  --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4
  --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4)
# Options of fairseq-preprocess where dictionaries of another corpus are used.
dictionaries=()
# One thread: these models are too small for more, which only wait for each other on a busy machine.
export PYTHONWARNINGS=ignore OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
mkdir -p "$work"
# Binarised folder of training and translation; scripts with another corpus set it.
bin=$work/bin
user_dir=$(python -m fairseq_docmt)

# quietly STEP COMMAND ...: write the output to a log, and show its end if the command fails.
quietly() {
  local log=$work/$1.log
  shift
  "$@" > "$log" 2>&1 || { tail -n 20 "$log" >&2; echo "failed: $* (whole log: $log)" >&2; exit 1; }
}

# keep_earlier FOLDER: stop if an earlier run has left a model there
keep_earlier() {
  [ -z "$(ls -A "$1" 2> /dev/null)" ] || {
    echo "error: $1 has the model of an earlier run; remove it or give another folder" >&2
    exit 1
  }
}

# prepare [options of make_data.py]: make the corpus, unless the folder has it; stop if it has one of
# other options
prepare() {
  local wanted=("$@" "${dictionaries[@]}") made=$work/corpus_options
  ! made_alike "$made" "${wanted[@]}" || return 0
  python "$here/make_data.py" --out "$work/data" "$@"
  rm -rf "$work/bin"
  quietly preprocess fairseq-preprocess -s src -t tgt --destdir "$work/bin" \
    --trainpref "$work/data/train" --validpref "$work/data/valid" --testpref "$work/data/test" \
    "${dictionaries[@]}"
  cp "$work"/data/*.supporting.jsonl "$work/bin"
  # Last, so that a corpus whose making was interrupted is made again.
  echo "${wanted[*]}" > "$made.new"
  mv "$made.new" "$made"
}

# train NAME UPDATES [options for task, architecture and batch size]
train() {
  local name=$1 updates=$2 log=$work/train_$1.log
  shift 2
  keep_earlier "$work/$name"
  echo "training $name ($updates updates) ..."
  fairseq-train "$bin" --user-dir "$user_dir" \
    "${sizes[@]}" --dropout 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 \
    --lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates 200 \
    --criterion label_smoothed_cross_entropy \
    --max-update "$updates" --seed "$seed" --num-workers 0 \
    --no-epoch-checkpoints --save-dir "$work/$name" --log-format simple "$@" 2>&1 |
    tee "$log" |
    sed -un "s/.*train_inner .* loss=\([0-9.]*\).* num_updates=\([0-9]*\).*/  update \2 of $updates, loss \1/p" ||
    { tail -n 20 "$log" >&2; echo "failed: training $name (whole log: $log)" >&2; exit 1; }
}

# translate NAME DECODING [options for the task]
translate() {
  local name=$1 decoding=$2
  shift 2
  echo "translating with $name, --decoding $decoding ..."
  quietly "translate_${name}_$decoding" fairseq-generate "$bin" --user-dir "$user_dir" \
    --decoding "$decoding" --path "$work/$name/checkpoint_last.pt" \
    --beam 4 --max-tokens 4000 --num-workers 0 --results-path "$work/out_${name}_$decoding" "$@"
}

# score NAME=OUTPUT ..., where OUTPUT is NAME_DECODING of translate
score() {
  local systems=()
  for system in "$@"; do
    systems+=("${system%%=*}=$work/out_${system#*=}/generate-test.txt")
  done
  local program=(python "$here/score.py" --probe "$work/data/test.probe.jsonl")
  "${program[@]}" --format json --out "$work/scores.json" "${systems[@]}"
  "${program[@]}" "${systems[@]}"
}
