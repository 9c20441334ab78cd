#!/usr/bin/env bash
# Train and evaluate a recurrent model with memories of the whole document on the context probe, in the
# stages of the paper: source language models, the sentence-level model, its translations of all
# splits, then the memories.  Prints a table of accuracies.
#
#   bash run_memnet.sh [WORK] [SYSTEM ...] [--updates 1500] [--seed 1] [--phenomena pronoun]
#       [--sentences 6] [--first-updates 1000] [--lm-epochs 6]
#   bash run_memnet.sh OTHER [SYSTEM ...] --sentences 12 --from WORK
#
# SYSTEMs: source, target and both (memories); default: source.  --phenomena of the data, in documents
# of --sentences.  --from continues from the memories of an earlier run on documents of another length,
# with its dictionaries, language models and rnnsearch.  --first-updates: of rnnsearch.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../flags.sh"
read_arguments "[WORK]" "[SYSTEM...:source/target/both]" --updates:count=1500 --seed:number=1 \
  --phenomena=pronoun --sentences:count=6 --from= --first-updates:count=1000 --lm-epochs:count=6 -- "$@"
work=${work:-$here/work}
[ ${#systems[@]} -gt 0 ] || systems=(source)
if [ -n "$from" ]; then
  [ -d "$from" ] || { echo "error: --from is $from, which is no folder" >&2; exit 1; }
  from=$(cd "$from" && pwd)
  for made in bin/dict.{src,tgt}.txt lm/{forward,backward}/checkpoint_best.pt rnnsearch/checkpoint_last.pt \
    "${systems[@]/%//checkpoint_last.pt}"; do
    [ -e "$from/$made" ] || { echo "error: --from: $from has no $made; train it there first" >&2; exit 1; }
  done
fi
lm_size=256
document=(--task document_rows_translation)
recipes=$here/../maruf2018_memnet
# shellcheck source=steps.sh
. "$here/steps.sh"
sizes=(--encoder-embed-dim 128 --encoder-hidden-size 128 --decoder-layers 1
  --decoder-embed-dim 128 --decoder-hidden-size 128 --attention-dim 128)

[ -z "$from" ] || dictionaries=(--srcdict "$from/bin/dict.src.txt" --tgtdict "$from/bin/dict.tgt.txt")
prepare --phenomena "$phenomena" --train-documents 4000 --test-documents 400 \
  --sentences-per-document "$sentences"
best=checkpoint_best.pt
keep_earlier "$work/lm"
keep_earlier "$work/rnnsearch"
rm -rf "${work:?}/drafts"
if [ -n "$from" ]; then
  ln -s "$from/lm" "$work/lm"
  ln -s "$from/rnnsearch" "$work/rnnsearch"
else
  echo "training language models of the source ..."
  quietly language_models bash "$recipes/train_sentence_lm.sh" \
    "$work/data/train.src" "$work/data/valid.src" "$work/bin/dict.src.txt" "$work/lm" \
    --lm-size "$lm_size" --max-epoch "$lm_epochs" --num-workers 0 --log-format simple
  train rnnsearch "$first_updates" --task sliding_window_translation --window-size 1 \
    --max-tokens 1000 --arch rnnsearch
fi
translate rnnsearch window --task sliding_window_translation
outputs=(rnnsearch=rnnsearch_window)
for system in "${systems[@]}"; do
  drafts=()
  if [ "$system" != source ]; then
    drafts=(--drafts "$work/drafts")
    if [ ! -e "$work/drafts" ]; then
      echo "translating all splits with rnnsearch ..."
      quietly drafts bash "$recipes/make_drafts.sh" "$work/bin" \
        "$work/rnnsearch/checkpoint_last.pt" "$work/drafts" train valid test \
        --source-lang src --target-lang tgt --num-workers 0
    fi
  fi
  # The memories alone are trained, without dropout, and added to the output.
  begin=$work/rnnsearch schedule=(--lr 0.0005 --lr-scheduler fixed)
  if [ -n "$from" ]; then
    begin=$from/$system
    schedule=(--lr 0.0015 --lr-scheduler polynomial_decay --total-num-update "$updates")
  fi
  # As many documents in an update, however long they are.
  train "$system" "$updates" "${document[@]}" --max-tokens $((200 * sentences)) "${drafts[@]}" \
    --arch memnet_rnn --context-side "$system" --context-integration output --freeze-pretrained \
    --dropout 0 --memory-dropout 0 "${schedule[@]}" --warmup-updates 0 \
    --sentence-lm "$work/lm/forward/$best:$work/lm/backward/$best" \
    --sentence-lm-embed-dim "$lm_size" --sentence-lm-hidden-size "$lm_size" \
    --finetune-from-model "$begin/checkpoint_last.pt"
  translate "$system" iterative "${document[@]}" "${drafts[@]}"
  outputs+=("$system=${system}_iterative")
done
score "${outputs[@]}"
