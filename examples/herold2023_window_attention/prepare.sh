#!/usr/bin/env bash
# Prepare a corpus of Herold and Ney (2023) from downloaded files as binarised documents: news (en-de),
# ted (en-it) or os (en-de).
#
#   CORPUS=news bash prepare.sh DOWNLOADS WORK
#
# DOWNLOADS is a folder with the files listed in README.md.  Environment: CORPUS (default: news),
# WORKERS, the number of processes (2), and BPE, the number of merges (default: as in the paper).
# Next: train.sh with WORK/data/bin.
set -euo pipefail
data_prep=$(cd "$(dirname "$0")/../../data_prep" && pwd)
: "${2:?usage: bash prepare.sh DOWNLOADS WORK}"
from=$1 texts=$2/corpus data=$2/data

# Convert tagged documents: tagged NAME SOURCE-FILES... -- TARGET-FILES...
tagged() {
  local name=$1 sources=()
  shift
  while [ "$1" != -- ]; do sources+=("$from/$1"); shift; done
  shift
  python "$data_prep/tagged_documents.py" --source "${sources[@]}" --target "${@/#/$from/}" \
    --out "$texts/$name.en" "$texts/$name.$target"
}

case ${CORPUS:-news} in
  news)
    target=de merges=15000
    python "$data_prep/tab_separated.py" "$from/news-commentary-v14.de-en.tsv.gz" \
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
    python "$data_prep/opus_documents.py" "$from"/OpenSubtitles.de-en.{en,de,ids} \
      --without "$from/contrapro.json" --out "$texts/all.en" "$texts/all.de"
    python "$data_prep/hold_out.py" "$texts/all.en" "$texts/all.de" --valid 5 --test 5 \
      --out "$texts"
    ;;
  *) echo "error: unknown corpus $CORPUS; see the head of $0" >&2; exit 1 ;;
esac
python "$data_prep/prepare.py" --source-lang en --target-lang "$target" \
  --train "$texts/train" --valid "$texts/valid" --test "$texts/test" \
  --destdir "$data" --bpe-operations "${BPE:-$merges}" --joined-dictionary \
  --workers "${WORKERS:-2}"
