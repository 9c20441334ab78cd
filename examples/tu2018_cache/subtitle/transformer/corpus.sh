# The corpus, for tvsub_zh_en/run.sh: that of ../small, with transformers of base size.
source "$recipe/../small/corpus.sh"
transformer=(--encoder-layers 6 --decoder-layers 6
  --encoder-embed-dim 512 --encoder-ffn-embed-dim 2048 --encoder-attention-heads 8
  --decoder-embed-dim 512 --decoder-ffn-embed-dim 2048 --decoder-attention-heads 8
  --share-decoder-input-output-embed --encoder-normalize-before --decoder-normalize-before)
tokens=([base]=37500000)
