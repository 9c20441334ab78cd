# The corpus, for tvsub_zh_en/run.sh.
src_lang=zh tgt_lang=en
# the test set, and the tuning set of the paper
sets=(test valid)
# the set that is also translated with limited contexts, and its source with marked dropped pronouns
limited=test marks=corpus/test.marked.zh
# further references of the test set
references=(corpus/test.ref1.en corpus/test.ref2.en)
# The text is tokenised; scores are case-insensitive, over its tokens.
detokenizing=(--remove-bpe)
bleu=(--tokenize none --lowercase)
# target tokens that are read after each base
declare -A tokens=([base]=8000000)
# systems whose context is cut, and the same with their context
context_of=([memory-control]=memory-both)
