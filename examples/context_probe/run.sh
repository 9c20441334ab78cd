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
read -ra model <<< "--arch transformer --share-decoder-input-output-embed ${MODEL_OPTIONS:-}"
window=(--task sliding_window_translation)
# shellcheck source=steps.sh
. "$here/steps.sh"

prepare
# The same number of sentences per update for both: windows hold about four times the tokens.
train sentence "$updates" "${window[@]}" --window-size 1 --max-tokens 500 "${model[@]}"
train window4 "$updates" "${window[@]}" --window-size 4 --max-tokens 2000 "${model[@]}"
translate sentence window "${window[@]}"
translate window4 window "${window[@]}"
translate window4 sequential "${window[@]}"
score sentence=sentence_window window4=window4_window window4-sequential=window4_sequential
