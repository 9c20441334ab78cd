#!/usr/bin/env bash
# Measure accuracy on the consistency sets of Voita et al. (2019), as in figure 3 of Wu et al. (2022).
#
#   bash consistency.sh WORK CHECKPOINT OUT [--sets consistency_testsets] [--part test]
#       [--window-size group] [options of fairseq-docmt contrastive]
#
# --sets is the folder of Voita et al. (see README.md for the download).  --part is dev (deixis and
# lexical cohesion, used for model selection in the paper) or test (all four phenomena).
# --window-size is that of training.  Results are written to OUT.json.  Before this:
# train_consistency.sh.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments WORK CHECKPOINT OUT --sets=consistency_testsets --part=test --window-size:1/2/3/4/group=group \
  "[options of fairseq-docmt contrastive]" -- "$@"
export PYTHONWARNINGS=ignore

case $part in
  dev) files=("$sets"/{deixis_dev,lex_cohesion_dev}.json) ;;
  test) files=("$sets"/{deixis_test,lex_cohesion_test,ellipsis_infl,ellipsis_vp}.json) ;;
  *) echo "error: unknown part $part; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
sentences=$window_size
[ "$sentences" != group ] || sentences=4
# The sets are tokenized and cased; tokenize and truecase them like the training data.
fairseq-docmt contrastive "${files[@]}" --path "$checkpoint" \
  --data "$work/data/bin" --protocol wu --context $((sentences - 1)) --bpe-codes "$work/data/codes" \
  --source-tokenizer moses --target-tokenizer moses \
  --source-truecaser "$work/data/truecase.en" --target-truecaser "$work/data/truecase.ru" \
  --format json --out "$out.json" "${more[@]}"
