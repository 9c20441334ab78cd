# The corpus, for run.sh.
src_lang=en tgt_lang=de
# test sets in the order of prepare.sh: talks, news, debates; the first is "test"
sets=(test news europarl)
# the set that is also translated with limited contexts; no dropped pronouns are marked
limited=test marks=
# target tokens that are read after each base
declare -A tokens=([base]=1200000 [rnnsearch]=1200000)
# systems whose context is cut, and the same with their context
context_of=([memory-control]=memory-both)
