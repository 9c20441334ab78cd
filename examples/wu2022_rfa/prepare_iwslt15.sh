#!/usr/bin/env bash
# Prepare IWSLT 2015 zh-en as binarised talks: dev2010 for validation, tst2010-2013 for test.
#
#   bash prepare_iwslt15.sh CORPUS WORK [options of prepare.py]
#
# CORPUS is 2015-01.tgz, or the folder zh-en unpacked from it (see README.md for the download).
# Next: train.sh.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
source "$top/examples/flags.sh"
read_arguments CORPUS WORK "[options of prepare.py]" -- "$@"
archive=$corpus

if [ -f "$archive" ]; then
  mkdir -p "$work"
  tar -xzOf "$archive" --wildcards '*texts/zh/en/zh-en.tgz' | tar -xz -C "$work" || {
    echo "error: $archive cannot be unpacked into $work; if it is incomplete, download it again" >&2
    exit 1
  }
  archive=$work/zh-en
fi
sets=$archive/IWSLT15.TED

talks() {
  local name=$1
  shift
  python "$top/data_prep/tagged_documents.py" --source "${@/%/zh$end}" --target "${@/%/en$end}" \
    --out "$work/corpus/$name.zh" "$work/corpus/$name.en"
}

end= talks train "$archive/train.tags.zh-en."
end=.xml talks valid "$sets.dev2010.zh-en."
end=.xml talks test "$sets.tst2010.zh-en." "$sets.tst2011.zh-en." "$sets.tst2012.zh-en." \
  "$sets.tst2013.zh-en."
python "$top/data_prep/prepare.py" --source-lang zh --target-lang en --truecase \
  --train "$work/corpus/train" --valid "$work/corpus/valid" --test "$work/corpus/test" \
  --destdir "$work/data" --bpe-operations 30000 "${more[@]}"
