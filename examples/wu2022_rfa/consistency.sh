#!/usr/bin/env bash
# Measure accuracy on the consistency sets of Voita et al. (2019), as in figure 3 of Wu et al. (2022).
#
#   bash consistency.sh WORK SETS PART L CHECKPOINT OUT [more options]
#
# SETS is the folder consistency_testsets of Voita et al. (see README.md for the download).  PART is
# dev (deixis and lexical cohesion, used for model selection in the paper) or test (all four
# phenomena).  L is the number of sentences that CHECKPOINT was trained with, 4 for groups.  Results
# are written to OUT.json.  Before this: train_consistency.sh.
set -euo pipefail
: "${6:?usage: bash consistency.sh WORK SETS PART L CHECKPOINT OUT [more options]}"
work=$1 sets=$2 part=$3 size=$4 checkpoint=$5 out=$6
shift 6
export PYTHONWARNINGS=ignore

case $part in
  dev) files=("$sets"/{deixis_dev,lex_cohesion_dev}.json) ;;
  test) files=("$sets"/{deixis_test,lex_cohesion_test,ellipsis_infl,ellipsis_vp}.json) ;;
  *) echo "error: unknown part $part; see the head of $0" >&2; exit 1 ;;
esac
# The sets are tokenized and cased; tokenize and truecase them like the training data.
fairseq-docmt contrastive "${files[@]}" --path "$checkpoint" \
  --data "$work/data/bin" --protocol wu --context $((size - 1)) --bpe-codes "$work/data/codes" \
  --source-tokenizer moses --target-tokenizer moses \
  --source-truecaser "$work/data/truecase.en" --target-truecaser "$work/data/truecase.ru" --format json --out "$out.json" "$@"
