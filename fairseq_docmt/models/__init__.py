"""Model architectures, selected by ``--arch``."""

from fairseq_docmt.models import (  # noqa: F401
    cache_rnn,
    context_rnn,
    g_transformer,
    han_transformer,
    lst_transformer,
    memnet_rnn,
    memory_transformer,
    multi_encoder_transformer,
    rfa_transformer,
    rnnsearch,
    window_attn_transformer,
)
