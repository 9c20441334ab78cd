#!/usr/bin/env bash
# Repair the translations of a first system with DocRepair.
#
#   bash repair.sh WORK CHECKPOINT FIRST SOURCE OUT [--target-lang de]
#       [options of fairseq-interactive, e.g. --decoding window]
#
# FIRST is the output of fairseq-generate or text with one translation per line, in the form of the
# training text (data_prep/apply_form.py), without --remove-bpe or --tokenizer.  SOURCE is the text
# that was translated, a blank line between documents; if FIRST has the blank lines, FIRST itself.
# Writes OUT/repaired.de, in the same form, and OUT/first.de, what it was made from.
# Before this: train.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../flags.sh"
read_arguments WORK CHECKPOINT FIRST SOURCE OUT --target-lang=de \
  "[options of fairseq-interactive]" -- "$@"
tgt=$target_lang
export PYTHONWARNINGS=ignore
fairseq-docmt convert --source "$source" --to text --empty '<unk>' \
  --out "$out/first.$tgt" "$first"
bash "$here/translate.sh" "$work/bin" "$checkpoint" "$out/first.$tgt" "$out/repaired.$tgt" \
  -s roundtrip -t "$tgt" --decoding sequential --beam 4 --lenpen 0.6 "${more[@]}"
