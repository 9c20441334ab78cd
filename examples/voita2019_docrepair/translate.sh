#!/usr/bin/env bash
# Translate text with blank lines between documents to text of the same form.
#
#   bash translate.sh DATA FROM TO CHECKPOINT INPUT OUTPUT [options of fairseq-interactive]
#
# DATA is the binarised folder of the model; INPUT has the form of its training text.  An empty
# translation becomes <unk>, as a blank line would end the document.  OUTPUT.log has scores too.
# Environment: BUFFER, lines that are read at once (10000).
set -euo pipefail
: "${6:?usage: bash translate.sh DATA FROM TO CHECKPOINT INPUT OUTPUT [options of fairseq-interactive]}"
data=$1 from=$2 to=$3 checkpoint=$4 input=$5 output=$6
shift 6
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
mkdir -p "$(dirname "$output")"
fairseq-interactive "$data" --user-dir "$user_dir" --task sliding_window_translation \
  -s "$from" -t "$to" --path "$checkpoint" --input "$input" --buffer-size "${BUFFER:-10000}" \
  --max-tokens 4000 "$@" > "$output.log"
fairseq-docmt convert --source "$input" --to text --empty '<unk>' \
  --out "$output" "$output.log"
