"""Recurrent models: RNNSearch, the cache, document memories and local contexts."""
