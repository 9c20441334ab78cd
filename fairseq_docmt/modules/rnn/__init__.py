"""Recurrent models: RNNSearch, translation cache, document memories, local context."""
