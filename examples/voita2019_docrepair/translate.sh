#!/usr/bin/env bash
# Translate text with blank lines between documents to text of the same form.
#
#   bash translate.sh DATA CHECKPOINT INPUT OUTPUT [options of fairseq-interactive, e.g. -s de -t en]
#
# DATA is the binarised folder of the model; INPUT has the form of its training text, of which
# --buffer-size lines (10000) are read at once.  An empty translation becomes <unk>, as a blank line
# would end the document.  OUTPUT.log has scores too.
set -euo pipefail
source "$(dirname "$0")/../flags.sh"
read_arguments DATA CHECKPOINT INPUT OUTPUT "[options of fairseq-interactive]" -- "$@"
export PYTHONWARNINGS=ignore
user_dir=$(python -m fairseq_docmt)
mkdir -p "$(dirname "$output")"
fairseq-interactive "$data" --user-dir "$user_dir" --task sliding_window_translation \
  --path "$checkpoint" --input "$input" --buffer-size 10000 --max-tokens 4000 "${more[@]}" \
  > "$output.log"
fairseq-docmt convert --source "$input" --to text --empty '<unk>' \
  --out "$output" "$output.log"
