# The corpus, for tvsub_zh_en/run.sh: that of ../small, with the vocabularies and models of the paper.
source "$recipe/../small/corpus.sh"
rnn=(--encoder-embed-dim 620 --encoder-hidden-size 1000 --attention-dim 1000
  --decoder-embed-dim 620 --decoder-hidden-size 1000 --decoder-layers 1
  --max-source-positions 81 --max-target-positions 81 --skip-invalid-size-inputs-valid-test)
# Unknown words become translations of the source words with the most attention.
detokenizing=(--replace-unk "$work/dictionary" --dataset-impl raw)
# As many sentences fill a cache of 25 slots.
context=10
tokens=([base]=37500000)
context_of=()
