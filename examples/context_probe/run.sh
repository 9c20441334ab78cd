#!/usr/bin/env bash
# Quickstart: compare a sentence-level transformer with one that has windows of 4 sentences, on data
# whose answers are in other sentences.  Prints a table of accuracies.
#
#   bash run.sh [WORK] [--updates 1000] [--seed 1] [options of fairseq-train]
#
# Another architecture of the same size: bash run.sh WORK --arch rfa_transformer
#
# fairseq_docmt must be installed; `make quickstart` in the project folder installs it first.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../flags.sh"
read_arguments "[WORK]" --updates:count=1000 --seed:number=1 "[options of fairseq-train]" -- "$@"
work=${work:-$here/work}
model=(--arch transformer --share-decoder-input-output-embed "${more[@]}")
window=(--task sliding_window_translation)
# shellcheck source=steps.sh
. "$here/steps.sh"

prepare
# The same number of sentences per update: windows have about four times as many tokens.
train sentence "$updates" "${window[@]}" --window-size 1 --max-tokens 500 "${model[@]}"
train window4 "$updates" "${window[@]}" --window-size 4 --max-tokens 2000 "${model[@]}"
translate sentence window "${window[@]}"
translate window4 window "${window[@]}"
translate window4 sequential "${window[@]}"
score sentence=sentence_window window4=window4_window window4-sequential=window4_sequential
echo "accuracy of words that depend on other sentences, by distance in sentences to what decides them;"
echo "models and translations: $work; more: examples/context_probe/README.md"
