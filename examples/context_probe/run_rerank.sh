#!/usr/bin/env bash
# Choose among the translations of a sentence-level transformer with a language model of documents of
# the target side, its weight tuned on the validation set; as a control the language model reads
# single sentences.  Prints a table of accuracies.
#
#   bash run_rerank.sh [WORK] [--updates 1000] [--seed 1]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../flags.sh"
read_arguments "[WORK]" --updates:count=1000 --seed:number=1 -- "$@"
work=${work:-$here/work}
window=(--task sliding_window_translation)
# shellcheck source=steps.sh
. "$here/steps.sh"

prepare
train sentence "$updates" "${window[@]}" --arch transformer --share-decoder-input-output-embed \
  --window-size 1 --max-tokens 500
# Among eight candidates some repeat a word without end.
length=(--max-len-a 2 --max-len-b 5)
translate sentence window "${window[@]}" --beam 8 --nbest 8 "${length[@]}"
translate sentence window "${window[@]}" --beam 8 --nbest 8 "${length[@]}" --gen-subset valid

text=$work/data bin=$work/language_model_bin lm=$work/language_model/checkpoint_last.pt
rm -rf "$bin"
quietly preprocess_lm fairseq-preprocess --only-source --srcdict "$work/bin/dict.tgt.txt" \
  --trainpref "$text/train.tgt" --validpref "$text/valid.tgt" --destdir "$bin"
sizes=(--decoder-layers 2 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256
  --decoder-attention-heads 4 --share-decoder-input-output-embed)
train language_model "$updates" --task language_modeling --sample-break-mode complete_doc \
  --tokens-per-sample 200 --arch transformer_lm --max-tokens 2000 --required-batch-size-multiple 1

# rerank SPLIT CONTEXT OUT [options]
rerank() {
  local split=$1 context=$2 out=$3
  shift 3
  fairseq-docmt rerank --source "$text/$split.src" --out "$out" \
    --language-model "$lm" --language-model-context "$context" --beam 4 "$@" \
    "$work/out_sentence_window/generate-$split.txt" 2> "$out.log"
}

references=$work/out_sentence_window/generate-test.txt
for system in document=100 single=0; do
  name=${system%=*} context=${system#*=}
  rerank valid "$context" "$work/valid.$name" --reference "$text/valid.tgt" --tokenize none \
    --score proposal --score language-model:0.1,0.3,1,3 | tee "$work/weights.$name"
  weights=$(sed -n 's/^best: \(.*\)  (.*/\1/p' "$work/weights.$name")
  mapfile -t given < <(printf -- '--score\n%s\n' $weights)
  rerank test "$context" "$work/test.$name" "${given[@]}"
  mkdir -p "$work/out_${name}_reranked"
  { grep '^T-' "$references"
    awk 'NF { print "H-" NR - 1 "\t0\t" $0 }' "$work/test.$name"; } \
    > "$work/out_${name}_reranked/generate-test.txt"
done
score sentence=sentence_window reranked=document_reranked "single sentences=single_reranked"
