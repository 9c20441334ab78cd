#!/usr/bin/env bash
# Repair the translations of a first system with DocRepair.
#
#   bash repair.sh WORK/bin TGT CHECKPOINT FIRST SOURCE OUT [more options]
#
# FIRST is the output of fairseq-generate or text with one translation per line, in the form of the
# training text (data_prep/apply_form.py), without --remove-bpe or --tokenizer.  SOURCE is the text
# that was translated, a blank line between documents; if FIRST has the blank lines, FIRST itself.
# Writes OUT/repaired.TGT, in the same form, and OUT/first.TGT, what it was made from.
# Environment: DECODING, sequential (default) or window.
# Before this: train.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${6:?usage: bash repair.sh WORK/bin TGT CHECKPOINT FIRST SOURCE OUT [more options]}"
data=$1 tgt=$2 checkpoint=$3 first=$4 source=$5 out=$6
shift 6
export PYTHONWARNINGS=ignore
fairseq-docmt convert --source "$source" --to text --empty '<unk>' \
  --out "$out/first.$tgt" "$first"
bash "$here/translate.sh" "$data" roundtrip "$tgt" "$checkpoint" "$out/first.$tgt" \
  "$out/repaired.$tgt" --decoding "${DECODING:-sequential}" --beam 4 --lenpen 0.6 "$@"
