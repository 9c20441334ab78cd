#!/usr/bin/env bash
# Prepare a corpus of Herold and Ney (2023) from downloaded files as binarised documents: news (en-de),
# ted (en-it) or os (en-de).
#
#   bash prepare.sh DOWNLOADS WORK [--corpus news] [options of prepare.py, e.g. --workers 8]
#
# DOWNLOADS is a folder with the files listed in README.md.  Next: train.sh.
set -euo pipefail
data_prep=$(cd "$(dirname "$0")/../../data_prep" && pwd)
source "$data_prep/../examples/flags.sh"
read_arguments DOWNLOADS WORK --corpus=news "[options of prepare.py]" -- "$@"
texts=$work/corpus

# Convert tagged documents: tagged NAME SOURCE-FILES... -- TARGET-FILES...
tagged() {
  local name=$1 sources=()
  shift
  while [ "$1" != -- ]; do sources+=("$downloads/$1"); shift; done
  shift
  python "$data_prep/tagged_documents.py" --source "${sources[@]}" --target "${@/#/$downloads/}" \
    --out "$texts/$name.en" "$texts/$name.$target"
}

case $corpus in
  news)
    target=de merges=15000
    python "$data_prep/tab_separated.py" "$downloads/news-commentary-v14.de-en.tsv.gz" \
      --out "$texts/train.de" "$texts/train.en"
    tagged valid newstest2015-ende-src.en.sgm -- newstest2015-ende-ref.de.sgm
    tagged test newstest2018-ende-src.en.sgm -- newstest2018-ende-ref.de.sgm
    ;;
  ted)
    target=it merges=15000
    sets=IWSLT17.TED
    tagged train train.tags.en-it.en -- train.tags.en-it.it
    tagged valid "$sets".{dev2010,tst2010}.en-it.en.xml -- "$sets".{dev2010,tst2010}.en-it.it.xml
    # The references are the source files of the opposite direction.
    tagged test "$sets.tst2017.mltlng.en-it.en.xml" -- "$sets.tst2017.mltlng.it-en.it.xml"
    ;;
  os)
    target=de merges=32000
    python "$data_prep/opus_documents.py" "$downloads"/OpenSubtitles.de-en.{en,de,ids} \
      --without "$downloads/contrapro.json" --out "$texts/all.en" "$texts/all.de"
    python "$data_prep/hold_out.py" "$texts/all.en" "$texts/all.de" --valid 5 --test 5 \
      --out "$texts"
    ;;
  *) echo "error: unknown corpus $corpus; see bash ${0##*/} --help" >&2; exit 1 ;;
esac
python "$data_prep/prepare.py" --source-lang en --target-lang "$target" \
  --train "$texts/train" --valid "$texts/valid" --test "$texts/test" \
  --destdir "$work/data" --bpe-operations "$merges" --joined-dictionary --workers 2 "${more[@]}"
