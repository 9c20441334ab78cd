# The corpus, for run.sh.
src_lang=zh tgt_lang=en
# test sets in the order of prepare.sh; the first is "test"
sets=(test zpdev)
# the set that is also translated with limited contexts, and its source with marked dropped pronouns
limited=zpdev marks=zpdev.zp.zh
# target tokens that are read after each base
declare -A tokens=([base]=12000000 [rnnsearch]=6000000 [base2]=8000000 [rnnsearch2]=4000000)
# systems whose context is cut, and the same with their context
context_of=([memory-control2]=memory-both2 [group-control2]=group2 [group-control3]=group3)
