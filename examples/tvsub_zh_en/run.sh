#!/usr/bin/env bash
# Train and compare the systems of systems.txt on a corpus: prepare, train, translate, score, tabulate.
#
#   bash run.sh CORPUS WORK [SYSTEM ...] [options]
#
# CORPUS is the folder of the corpus (see prepare.sh).  SYSTEMs are names in systems.txt; default: all
# of it.  tried.txt has further settings, for --stages train.
# Each system is compared with the first one that starts from the same base, which has to be scored first.
# What is done is not done again; training that was interrupted goes on.  WORK/results.json holds all
# results so far.  Several of these commands may run at the same time for different systems, after the
# bases have been trained.
#
#   --recipe FOLDER        with corpus.sh, prepare.sh and systems.txt (default: this one)
#   --stages "STAGE ..."   of memories, train, translate, usage, contexts, gold, score (default: all)
#   --target-tokens N      that each system reads after its base (default: as in corpus.sh)
#   --test-sets N          how many of the test sets of corpus.sh are used (default: all)
#   --beams "N ..."        of translations; 4 is the beam of comparisons
#   --device cpu|cuda
#   --workers N            that load batches for a GPU
#   --limit SECONDS        after which a command is stopped (default: none)
#   --prepare="OPTIONS"    of prepare.sh; the same in all calls with this WORK, as CORPUS
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../..
recipes=$top/examples
source "$recipes/flags.sh"
read_arguments CORPUS WORK "[SYSTEM...]" --recipe= \
  --stages...:memories/train/translate/usage/contexts/gold/score="memories train translate usage contexts gold score" \
  --target-tokens:count= --test-sets:count= --beams...:count="4 1" --device:cpu/cuda=cpu --workers:number=2 \
  --limit:count= --prepare= -- "$@"
recipe=${recipe:-$here}
[ -e "$recipe/corpus.sh" ] || { echo "error: --recipe is $recipe, which has no corpus.sh" >&2; exit 1; }
recipe=$(cd "$recipe" && pwd)
# What corpus.sh may set anew: sizes, options of decoding and of scores, further references of the
# first test set, and systems whose context is cut -> the same system with its context.
transformer=(--encoder-layers 3 --decoder-layers 2
  --encoder-embed-dim 256 --encoder-ffn-embed-dim 512 --encoder-attention-heads 4
  --decoder-embed-dim 256 --decoder-ffn-embed-dim 512 --decoder-attention-heads 4
  --share-decoder-input-output-embed --encoder-normalize-before --decoder-normalize-before)
rnn=(--encoder-embed-dim 256 --encoder-hidden-size 256 --attention-dim 256
  --decoder-embed-dim 256 --decoder-hidden-size 256 --decoder-layers 1)
lm_size=256
detokenizing=(--remove-bpe --tokenizer moses)
bleu=()
references=()
declare -A context_of=()
# previous sentences in the comparison of contexts, as many as windows of 4 have
context=3
case $device in
  cpu) placed=(--cpu) loading=(--num-workers 0) ;;
  cuda) placed=() loading=(--num-workers "$workers") ;;
esac
if [ "$device" = cuda ]; then
  python - <<< 'import torch; raise SystemExit(not torch.cuda.is_available())' ||
    { echo "error: torch finds no GPU; give --device cpu" >&2; exit 1; }
fi
settings=("$recipe/systems.txt")
[ ! -e "$recipe/tried.txt" ] || settings+=("$recipe/tried.txt")
known=$(cut -d'|' -f1 "${settings[@]}" | tr -d ' ')
for system in "${systems[@]}"; do
  grep -qxF -e "$system" <<< "$known" || { echo "error: $system is not in $recipe/systems.txt" >&2; exit 1; }
done
[ -d "$corpus" ] || { echo "error: CORPUS is $corpus, which is no folder" >&2; exit 1; }
corpus=$(cd "$corpus" && pwd)
[[ " $beams " = *" 4 "* ]] ||
  { echo "error: --beams is $beams; systems are compared with a beam of 4, so add it" >&2; exit 1; }
mkdir -p "$work"
work=$(cd "$work" && pwd)
bin=$work/data/bin raw=$work/data/text/raw
source "$recipe/corpus.sh"
# Contexts are limited in one of the test sets that are used.
for least in "${!sets[@]}"; do [ "${sets[least]}" != "$limited" ] || break; done
test_sets=${test_sets:-${#sets[@]}}
if [ "$test_sets" -le "$least" ] || [ "$test_sets" -gt ${#sets[@]} ]; then
  echo "error: --test-sets is $test_sets; give a number from $((least + 1)) to ${#sets[@]}" >&2
  exit 1
fi
sets=("${sets[@]:0:test_sets}")
export PYTHONWARNINGS=ignore OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# Products in bfloat16 where oneDNN takes them (not on every processor that has them), in TF32 on a
# GPU, and memory that is kept between updates: the same for all systems.
export ONEDNN_DEFAULT_FPMATH_MODE=BF16
export TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=20000000000 MALLOC_TOP_PAD_=200000000
# The same as "python -m fairseq_docmt", without importing the package.
user_dir=$(python -c 'from importlib.util import find_spec
print(*find_spec("fairseq_docmt").submodule_search_locations)')
stages=" $stages "

# Prints the name of a test set in the binarised data: test, test1, ...; valid is the validation set.
subset_of() {
  local number
  [ "$1" != valid ] || { echo valid; return; }
  for number in "${!sets[@]}"; do
    [ "${sets[number]}" != "$1" ] || echo "test${number/#0/}"
  done
}

# Reads the settings of a system: start, decodings, options (the task first), and options of decoding.
read_settings() {
  local line
  line=$(grep -hE "^$1 *\|" "${settings[@]}")
  IFS='|' read -r _ start decodings options <<< "$line"
  start=${start// /} decodings=${decodings// /}
  read -r -a options <<< "$options"
  search=(--task "${options[1]}")
}

# measured RECORD COMMAND ...: within the limit
measured() { DEVICE=$device LIMIT=$limit python "$here/measured.py" "$work/$1.json" "${@:2}"; }

# made RECORD SCRIPT ...: the same for a script of a recipe, which may have had other arguments when WORK
# was begun.
made() { grep -qs '"exit": 0,' "$work/$1.json" || measured "$1" bash "${@:2}"; }

prepare() {
  local text side options
  read -ra options <<< "$prepare"
  measured data bash "$recipe/prepare.sh" "$corpus" "$work" "${options[@]}"
  if [ -n "$marks" ] && [ ! -e "$work/$marks" ]; then
    [ -e "$corpus/$marks" ] ||
      { echo "error: CORPUS lacks $marks, the source of $limited with dropped pronouns marked" >&2; exit 1; }
    cp "$corpus/$marks" "$work"
  fi
  text=$work/data/text/subwords/$(subset_of "$limited")
  [ -e "$text.$src_lang" ] || text=$raw/$(subset_of "$limited")  # without subwords
  measured contexts/made python "$here/contexts.py" make $context \
    "$text.$src_lang" "$text.$tgt_lang" "$work/contexts"
  measured contexts/binarised fairseq-preprocess -s "$src_lang" -t "$tgt_lang" \
    --testpref "$work/contexts/own,$work/contexts/other" --destdir "$work/contexts/bin" \
    --srcdict "$bin/dict.$src_lang.txt" --tgtdict "$bin/dict.$tgt_lang.txt"
  # --replace-unk reads the text itself.
  case " ${detokenizing[*]} " in *" --dataset-impl raw "*)
    for side in "$src_lang" "$tgt_lang"; do
      cp "$work/contexts/own.$side" "$work/contexts/bin/test.$src_lang-$tgt_lang.$side"
      cp "$work/contexts/other.$side" "$work/contexts/bin/test1.$src_lang-$tgt_lang.$side"
    done ;;
  esac
}

# Adds the language models of a source memory and the drafts of a target memory to the options.
read_memories() {
  case " ${options[*]} " in *" memnet_rnn "*) ;; *) return 0 ;; esac
  case " ${options[*]} " in *" --context-side source "* | *" --context-side both "*)
    options+=(--sentence-lm "$work/lm/forward/checkpoint_best.pt:$work/lm/backward/checkpoint_best.pt"
      --sentence-lm-embed-dim "$lm_size" --sentence-lm-hidden-size "$lm_size") ;;
  esac
  case " ${options[*]} " in *" --context-side target "* | *" --context-side both "*)
    options+=(--drafts "$work/$start/drafts")
    search+=(--drafts "$work/$start/drafts") ;;
  esac
}

# Trains the language models for a source memory, and translates everything by the base for a target memory.
make_memories() {
  local softmax
  case " ${options[*]} " in *" --sentence-lm "*)
    # An adaptive softmax is faster, and needs more types than its last cutoff.
    softmax=(--adaptive-softmax-cutoff 1000,4000 --criterion adaptive_loss)
    [ "$(wc -l < "$bin/dict.$src_lang.txt")" -gt 4000 ] || softmax=()
    made lm/record "$recipes/maruf2018_memnet/train_sentence_lm.sh" \
      "$work/data/text/subwords/train.$src_lang" "$work/data/text/subwords/valid.$src_lang" \
      "$bin/dict.$src_lang.txt" \
      "$work/lm" --lm-size "$lm_size" --max-epoch 3 --max-tokens 16384 "${softmax[@]}" \
      --ddp-backend legacy_ddp "${placed[@]}" "${loading[@]}" --log-format simple ;;
  esac
  case " ${options[*]} " in *" --drafts "*)
    made "$start/drafts/record" "$recipes/maruf2018_memnet/make_drafts.sh" "$bin" \
      "$work/$start/checkpoint_best.pt" "$work/$start/drafts" train valid $(for testset in "${sets[@]}"; do
        subset_of "$testset"
      done) \
      --source-lang "$src_lang" --target-lang "$tgt_lang" \
      --max-len-a 1.5 --max-len-b 10 --max-tokens 6000 "${placed[@]}" "${loading[@]}" ;;
  esac
}

train() {
  local sizes schedule most
  case " ${options[*]} " in *rnn*) sizes=("${rnn[@]}") ;; *) sizes=("${transformer[@]}") ;; esac
  local common=("${sizes[@]}" --dropout 0.2 --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --seed 1)
  if [ "$start" = - ]; then
    schedule=(--lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates 500
      --keep-last-epochs 1)
  else
    # Its record refuses another command: other target tokens, batches or options of training.
    measured "$1/updates" python "$here/updates.py" "$work/$1/updates" "${target_tokens:-${tokens[$start]}}" \
      "$bin" --user-dir "$user_dir" "${common[@]}" --lr-scheduler polynomial_decay --total-num-update 1 \
      --finetune-from-model "$work/$start/checkpoint_best.pt" "${options[@]}"
    most=$(cat "$work/$1/updates")
    schedule=(--lr 0.0005 --lr-scheduler polynomial_decay --warmup-updates 100 --total-num-update "$most"
      --max-update "$most" --finetune-from-model "$work/$start/checkpoint_best.pt" --no-epoch-checkpoints)
  fi
  # The options of systems.txt come last: they win over options for all systems.
  measured "$1/train" fairseq-train "$bin" --user-dir "$user_dir" "${common[@]}" "${schedule[@]}" \
    "${placed[@]}" "${loading[@]}" --log-format simple --log-interval 50 \
    --save-interval-updates 250 --keep-interval-updates 1 --save-dir "$work/$1" "${options[@]}"
  measured "$1/kept" python "$here/keep_weights.py" "$work/$1/checkpoint_best.pt"
}

# translate RECORD DATA SUBSET DECODING BEAM LENGTH_PENALTY CHECKPOINT
translate() {
  measured "$1" fairseq-generate "$2" --user-dir "$user_dir" --path "$7" \
    --gen-subset "$3" --decoding "$4" --beam "$5" --lenpen "$6" "${search[@]}" \
    --source-lang "$src_lang" --target-lang "$tgt_lang" --max-len-a 1.5 --max-len-b 10 --max-tokens 6000 \
    "${placed[@]}" "${loading[@]}" "${detokenizing[@]}" --results-path "$work/$1"
}

# Finds the length penalty with the best BLEU of the base on the validation set.
tune() {
  local penalty best
  [ ! -e "$work/lenpen" ] || return 0
  for penalty in 0.6 0.8 1.0 1.2 1.4 1.6 1.8 2.0; do
    translate "base/valid/$penalty" "$bin" valid window 4 "$penalty" "$work/base/checkpoint_best.pt"
    systems_valid+=("$penalty=$work/base/valid/$penalty/generate-valid.txt")
  done
  fairseq-docmt metrics --metrics s-bleu "${bleu[@]}" --format json --out "$work/base/valid.json" \
    --reference "$raw/valid.$tgt_lang" "${systems_valid[@]}"
  best=$(python "$here/results.py" best "$work/base/valid.json")
  echo "$best" > "$work/lenpen.new"
  mv "$work/lenpen.new" "$work/lenpen"
}

# Translates the test sets.
translate_all() {
  local decoding beam testset lenpen checkpoint=$work/$1/checkpoint_best.pt
  lenpen=$(cat "$work/lenpen")
  for decoding in ${decodings//,/ }; do
    for beam in $beams; do
      for testset in "${sets[@]}"; do
        translate "$1/$decoding/$testset-$beam" "$bin" "$(subset_of "$testset")" "$decoding" $beam "$lenpen" \
          "$checkpoint"
      done
    done
  done
}

# Succeeds if the system reads more than single sentences.
reads_context() {
  [ -z "${context_of[$1]:-}" ] || return 1
  case " ${options[*]} " in *" --window-size 1 "*) return 1 ;; esac
}

# Measures how much the context helps to predict the test set.
measure_usage() {
  mkdir -p "$work/$1/scores"
  measured "$1/scores/usage-record" fairseq-docmt cxmi \
    --path "$work/$1/checkpoint_best.pt" --source "$raw/test.$src_lang" --reference "$raw/test.$tgt_lang" \
    --context $context other-document:$context --max-tokens 6000 "${placed[@]}" \
    --format json --out "$work/$1/scores/usage.json"
}

# Translates a test set with limited contexts.
use_contexts() {
  local lenpen checkpoint=$work/$1/checkpoint_best.pt decoding=${decodings%%,*}
  lenpen=$(cat "$work/lenpen")
  # There are no drafts of these texts; a system that needs some makes its own.
  search=("${search[@]:0:2}")
  translate "$1/contexts/own" "$work/contexts/bin" test "$decoding" 4 "$lenpen" "$checkpoint"
  translate "$1/contexts/other" "$work/contexts/bin" test1 "$decoding" 4 "$lenpen" "$checkpoint"
}

# Succeeds if there is the same system with its context cut, and the search reads previous translations.
has_gold_context() {
  case " ${context_of[*]} " in *" $1 "*) ;; *) return 1 ;; esac
  case ${decodings%%,*} in stream | sequential*) ;; *) return 1 ;; esac
}

# Translates the test sets with the references of the previous sentences as target context.
use_gold_context() {
  local testset lenpen
  lenpen=$(cat "$work/lenpen")
  search+=(--gold-context)
  for testset in "${sets[@]}"; do
    translate "$1/gold/$testset-4" "$bin" "$(subset_of "$testset")" "${decodings%%,*}" 4 "$lenpen" \
      "$work/$1/checkpoint_best.pt"
  done
}

# find_outputs SET SYSTEM CONTROL: sets reference, and outputs to the main one of CONTROL and all of SYSTEM.
find_outputs() {
  local decoding beam file
  file=generate-$(subset_of "$1").txt
  reference=$raw/$(subset_of "$1").$tgt_lang
  outputs=()
  [ "$3" = "$2" ] || outputs+=("$3=$work/$3/window/$1-4/$file")
  for decoding in ${decodings//,/ }; do
    for beam in $beams; do
      outputs+=("$2-$decoding-$beam=$work/$2/$decoding/$1-$beam/$file")
    done
  done
}

# compare_with_context CUT FULL: the main outputs of a system whose context is cut and of the same with its
# context, if that has been scored; also with references as context.
compare_with_context() {
  [ -e "$work/$2/scored" ] || return 0
  local testset subset reference output gold
  for testset in "${sets[@]}"; do
    subset=$(subset_of "$testset")
    reference=$raw/$subset.$tgt_lang
    output=${decodings%%,*}/$testset-4/generate-$subset.txt
    compare "$1" "with-context-$testset" "$1=$work/$1/$output" "$2=$work/$2/$output"
    gold=$work/$2/gold/$testset-4
    [ ! -e "$gold.json" ] ||
      compare "$1" "with-gold-$testset" "$1=$work/$1/$output" "$2-gold=$gold/generate-$subset.txt"
  done
}

# compare SYSTEM NAME OUTPUT=FILE ...: adds scores of outputs by the reference to the scores of SYSTEM, under this name.
compare() {
  measured "$1/scores/$2-record" fairseq-docmt metrics \
    --metrics s-bleu,chrf "${bleu[@]}" --tests bootstrap,sign --reference "$reference" \
    --format json --out "$work/$1/scores/$2.json" "${@:3}"
}

# score_pronouns SYSTEM CONTROL: marked pronouns, and on the first test set pronouns of the reference.
score_pronouns() {
  find_outputs "$limited" "$1" "$2"
  measured "$1/scores/pronouns-record" fairseq-docmt dropped-pronouns \
    --source "$work/$marks" --reference "$reference" \
    --format json --out "$work/$1/scores/pronouns.json" "${outputs[@]}"
  find_outputs "${sets[0]}" "$1" "$2"
  measured "$1/scores/test-pronouns-record" fairseq-docmt dropped-pronouns \
    --source "$raw/test.$src_lang" --reference "$reference" --from-reference \
    --format json --out "$work/$1/scores/test-pronouns.json" "${outputs[@]}"
}

# Prints the control of a base: the first system that starts from it.
control_of() { grep -m 1 -E "^[^#|]*\| *$1 *\|" "$recipe/systems.txt" | cut -d'|' -f1 | tr -d ' '; }

# score_outputs SYSTEM NAME [OPTION ...]: scores of the outputs by the reference, under this name.
score_outputs() {
  # A control with a single output is compared with nothing.
  local tests=(--tests bootstrap,sign)
  [ ${#outputs[@]} -gt 1 ] || tests=()
  measured "$1/scores/$2-record" fairseq-docmt metrics \
    --metrics s-bleu,d-bleu,chrf "${bleu[@]}" "${tests[@]}" --reference "$reference" "${@:3}" \
    --format json --out "$work/$1/scores/$2.json" "${outputs[@]}"
}

# score SYSTEM: all its outputs beside the main output of the control that started from the same base.
score() {
  local control=$1 system=$1 testset side
  [ "$start" = - ] || control=$(control_of "$start")
  [ "$control" = "$system" ] || [ -e "$work/$control/scored" ] || {
    echo "error: $system is compared with $control, which has no scores; give the same command with" \
      "$control before $system to go on" >&2
    exit 1
  }
  mkdir -p "$work/$system/scores"
  for testset in "${sets[@]}"; do
    find_outputs "$testset" "$system" "$control"
    score_outputs "$system" "$testset"
  done
  if [ ${#references[@]} -gt 0 ]; then
    find_outputs "${sets[0]}" "$system" "$control"
    score_outputs "$system" references "${references[@]/#/--reference=$work/}"
  fi
  [ -z "${context_of[$system]:-}" ] || compare_with_context "$system" "${context_of[$system]}"
  [ -z "$marks" ] || score_pronouns "$system" "$control"
  reads_context "$system" || return 0
  [[ $stages = *" contexts "* || -e $work/$system/contexts/other.json ]] || return 0
  reference=$raw/$(subset_of "$limited").$tgt_lang
  outputs=()
  for side in own:test other:test1; do
    python "$here/contexts.py" take "$work/$system/contexts/${side%:*}/generate-${side#*:}.txt" \
      "$work/contexts/${side%:*}.$src_lang" "$reference" > "$work/$system/contexts/${side%:*}.$tgt_lang"
    outputs+=("${side%:*}=$work/$system/contexts/${side%:*}.$tgt_lang")
  done
  compare "$system" contexts "${outputs[@]}"
  [ -z "$marks" ] || measured "$system/scores/context-pronouns-record" \
    fairseq-docmt dropped-pronouns --source "$work/$marks" --reference "$reference" \
    --format json --out "$work/$system/scores/context-pronouns.json" "${outputs[@]}"
}

prepare
[ ${#systems[@]} -gt 0 ] || mapfile -t systems < <(grep -v '^#' "$recipe/systems.txt" | cut -d'|' -f1 | tr -d ' ')
for system in "${systems[@]}"; do
  echo "$system"
  read_settings "$system"
  read_memories
  case $stages in *" memories "*) make_memories ;; esac
  case $stages in *" train "*) train "$system" ;; esac
  [ "$system" != base ] || tune
  case $stages in *" translate "*) translate_all "$system" ;; esac
  case $stages in *" usage "*) ! reads_context "$system" || measure_usage "$system" ;; esac
  case $stages in *" contexts "*) ! reads_context "$system" || use_contexts "$system" ;; esac
  case $stages in *" gold "*) ! has_gold_context "$system" || use_gold_context "$system" ;; esac
  case $stages in *" score "*) score "$system"; touch "$work/$system/scored" ;; esac
done
# The first test set is also scored by all its references.
[ ${#references[@]} -eq 0 ] || sets=("${sets[0]}" references "${sets[@]:1}")
python "$here/results.py" collect "$work" "$recipe" "${sets[@]}" > "$work/results.$$"
mv "$work/results.$$" "$work/results.json"
