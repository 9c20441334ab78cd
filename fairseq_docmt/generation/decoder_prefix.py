"""Decoder prefixes: target context that a decoder reads before the search begins.

With an incremental state, fairseq's decoders read one token per call.  The functions here read all
tokens of a prefix in one parallel pass if the decoder allows it, also in batches whose prefixes
have different lengths.
"""

import contextlib
from typing import Dict, Iterator, List, NamedTuple, Optional

import torch
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules import MultiheadAttention
from torch import Tensor

from fairseq_docmt.models.interface import prefill_of

IncrementalState = Dict[str, Dict[str, Optional[Tensor]]]


class DecoderPrefix(NamedTuple):
    """State of one model's decoder after it has read a batch of target prefixes.

    A prefix may be read in several calls of :func:`extend`.

    Attributes:
        tokens: (bsz, P) tokens of the prefixes, beginning with the first token of the decoder's
            input, usually ``</s>``.  If a row gets fewer tokens than others in a call, padding
            remains in the middle of the row.
        state: incremental state of the decoder for the bsz rows.
        features: (bsz, 1, C) decoder output at the last token of each row.
        new_features: (bsz, n, C) decoder output at the n tokens read in the latest call.
        attention: (bsz, 1, S) attention to the S source tokens at the last token of each row;
            None if the decoder returns no attention.
    """

    tokens: Tensor
    state: IncrementalState
    features: Tensor
    new_features: Tensor
    attention: Optional[Tensor]


def prefills_in_parallel(decoder) -> bool:
    """Return whether a decoder can read prefixes of different lengths in one parallel pass.

    This is the case for decoders with a ``prefill`` method and for fairseq's transformer decoders
    with standard self-attention, which ignores padding at any position.  Other decoders have to
    read prefixes token by token, one row at a time.
    """
    return prefill_of(decoder) is not None or _is_stock(decoder)


def _is_stock(decoder) -> bool:
    return (
        isinstance(decoder, TransformerDecoderBase)
        and not decoder.cross_self_attention
        and all(
            type(getattr(layer, "self_attn", None)) is MultiheadAttention
            for layer in decoder.layers
        )
    )


def extend(decoder, encoder_out, new_tokens: Tensor, before: Optional[DecoderPrefix]):
    """Let a decoder read more target tokens, and return the extended prefix.

    Args:
        decoder: fairseq decoder that supports incremental decoding.
        encoder_out: encoder output of the bsz rows; None for a language model.
        new_tokens: (bsz, n) tokens to read, right-padded, at least one in each row.
        before: prefix that the decoder has read so far.  None if it has read nothing; new_tokens
            then begin with the first token of the decoder's input, usually ``</s>``.

    Returns:
        The extended prefix.  ``before`` is not changed.

    Raises:
        ValueError: there are several rows, but the decoder cannot read them in parallel (see
            :func:`prefills_in_parallel`).
    """
    tokens = new_tokens if before is None else torch.cat([before.tokens, new_tokens], dim=1)
    state = {} if before is None else {key: dict(entry) for key, entry in before.state.items()}
    if prefills_in_parallel(decoder):
        features, attention = _read_at_once(decoder, encoder_out, tokens, new_tokens, state)
    else:
        features, attention = _read_step_by_step(decoder, encoder_out, tokens, new_tokens, state)
    last = new_tokens.ne(decoder.dictionary.pad()).sum(1) - 1
    rows = torch.arange(len(last), device=last.device)
    if attention is not None:
        attention = attention[rows, last].unsqueeze(1)
    return DecoderPrefix(tokens, state, features[rows, last].unsqueeze(1), features, attention)


def _read_at_once(decoder, encoder_out, tokens, new_tokens, state):
    prefill = prefill_of(decoder)
    if prefill is not None:
        features, extra = prefill(new_tokens, encoder_out, state)
    else:
        with contextlib.ExitStack() as hooks:
            for hook in _prefill_hooks(decoder, tokens, new_tokens.size(1), state):
                hooks.enter_context(hook)
            features, extra = decoder.extract_features(new_tokens, encoder_out)
    return features, _attention(extra)


def _read_step_by_step(decoder, encoder_out, tokens, new_tokens, state):
    if len(tokens) > 1:
        raise ValueError("decoders that cannot read in parallel read one row at a time")
    start, features, attention = tokens.size(1) - new_tokens.size(1), [], []
    for end in range(start + 1, tokens.size(1) + 1):
        x, extra = decoder.extract_features(tokens[:, :end], encoder_out, incremental_state=state)
        features.append(x[:, -1:])
        attention.append(_attention(extra))
    attention = None if attention[0] is None else torch.cat([a[:, -1:] for a in attention], dim=1)
    return torch.cat(features, dim=1), attention


def _attention(extra) -> Optional[Tensor]:
    """Return the attention weights from a decoder's extra outputs, or None if they contain none.

    The weights have the shape (bsz, target tokens, source tokens).
    """
    attention = extra.get("attn") if isinstance(extra, dict) else extra
    if isinstance(attention, (list, tuple)):
        attention = attention[0] if attention else None
    return attention


def _prefill_hooks(decoder, tokens: Tensor, new: int, state: IncrementalState) -> list:
    """Register hooks that let a fairseq decoder read several tokens in one pass.

    After the pass, ``state`` is the same as if the tokens had been decoded one by one.

    Args:
        decoder: fairseq's transformer decoder.
        tokens: (bsz, P) all tokens of the prefixes, including the new ones.
        new: number of new tokens, which are the last columns of ``tokens``.
        state: incremental state after the earlier tokens; the pass extends it in place.

    Returns:
        The hooks, which must be removed after the pass.
    """
    past = tokens.size(1) - new

    def attend_to_past(module, args, kwargs):
        mask = kwargs.get("attn_mask")
        if mask is not None and past > 0:
            kwargs["attn_mask"] = torch.cat([mask.new_zeros(new, past), mask], dim=1)
        kwargs["incremental_state"] = state
        return args, kwargs

    def positions_of_all(module, args, kwargs):
        return (tokens,), {}

    def positions_of_new(module, args, output):
        return output[:, -new:]

    hooks = [
        layer.self_attn.register_forward_pre_hook(attend_to_past, with_kwargs=True)
        for layer in decoder.layers
    ]
    if decoder.embed_positions is not None:
        embed = decoder.embed_positions
        hooks.append(embed.register_forward_pre_hook(positions_of_all, with_kwargs=True))
        hooks.append(embed.register_forward_hook(positions_of_new))
    return hooks


@contextlib.contextmanager
def positions_by_row(decoders) -> Iterator[None]:
    """Make fairseq's decoders skip padding when they count the positions of tokens.

    This applies inside the ``with`` block.  In incremental decoding, fairseq takes the column
    number of a token as its position.  This is wrong if there is padding between the tokens of a
    row, as in batches of prefixes with different lengths.
    """

    def from_tokens(module, args, kwargs):
        return args, {**kwargs, "incremental_state": None}

    stock = [decoder for decoder in decoders if _is_stock(decoder)]
    with contextlib.ExitStack() as hooks:
        for decoder in stock:
            embed = decoder.embed_positions
            if embed is not None:
                hook = embed.register_forward_pre_hook(from_tokens, with_kwargs=True)
                hooks.enter_context(hook)
        yield


def select_state(decoder, state: IncrementalState, order: Tensor) -> IncrementalState:
    """Return a copy of an incremental state that contains the batch rows ``order``, in this order.

    ``order`` (int64 row numbers) can repeat a row, for example to give its state to each of its
    hypotheses.
    """
    chosen = {key: dict(entry) for key, entry in state.items()}
    decoder.reorder_incremental_state_scripting(chosen, order)
    return chosen


def take_rows(decoder, prefix: DecoderPrefix, order: Tensor) -> DecoderPrefix:
    """Return a prefix with only the batch rows ``order`` (int64 row numbers), in this order."""
    attention = prefix.attention
    return DecoderPrefix(
        prefix.tokens[order],
        select_state(decoder, prefix.state, order),
        prefix.features[order],
        prefix.new_features[order],
        None if attention is None else attention[order],
    )


# ---- documents whose source grows ----------------------------------------------------------------


class GrowingDocuments:
    """Encoder and decoder states of one model, reused while documents grow sentence by sentence.

    With windowed attention, appending a sentence does not change encoder outputs that are far
    enough from the end of the source.  These outputs are kept from one call to the next.  The
    decoder state is also kept, up to the first target token that attends to an encoder output that
    can still change.

    Args:
        model: model whose states can be reused, see
            :func:`~fairseq_docmt.models.interface.can_grow`.
    """

    def __init__(self, model):
        self.encoder, self.decoder = model.encoder, model.decoder
        self._source = None
        #: number of first source columns that have not changed since the last call in any row
        self._unchanged = 0
        #: prefix of the target tokens that do not depend on later source columns
        self._settled: Optional[DecoderPrefix] = None

    def encode(self, src_tokens: Tensor, known: Optional[List[int]]) -> dict:
        """Encode all source tokens that each document has so far; return the encoder output.

        Args:
            src_tokens: (documents, tokens) all source tokens so far, padded on either side.
            known: for each document, its row number in the previous call; None if all documents are
                new.
        """
        before = None
        if known is None:
            self._settled = None
        else:
            order = torch.tensor(known, device=src_tokens.device)
            before = self._source.of_rows(order)
            self._unchanged = int(before.final.min())
            if self._settled is not None:
                self._settled = take_rows(self.decoder, self._settled, order)
        output, self._source = self.encoder.encode_further(src_tokens, before)
        return output

    def read(self, tokens: Tensor, encoder_out: dict) -> DecoderPrefix:
        """Let the decoder read the target tokens of each document so far; return them as a prefix.

        Only tokens that are new since the previous call, or whose states have changed, are read.

        Args:
            tokens: (documents, tokens) all target tokens so far, right-padded.  Each row begins
                with the tokens that its document had in the previous call.
            encoder_out: result of :meth:`encode` for the same documents.

        Returns:
            The prefix: all target tokens, and the state of the decoder after them.
        """
        settled = self._settled
        if settled is not None:
            state = self.decoder.with_source(settled.state, encoder_out, self._unchanged)
            settled = settled._replace(state=state)
            tokens = self._without(tokens, settled.tokens.ne(self._pad).sum(1))
        state = {} if settled is None else settled.state
        count = self.decoder.independent(tokens, encoder_out, state, self._source.final)
        # The last token of each row is read below.
        count = torch.minimum(count, tokens.ne(self._pad).sum(1) - 1)
        if count.any():
            columns = torch.arange(int(count.max()), device=tokens.device)
            new = tokens[:, : len(columns)].masked_fill(columns >= count.unsqueeze(1), self._pad)
            settled = extend(self.decoder, encoder_out, new, settled)
            tokens = self._without(tokens, count)
        self._settled = settled
        return extend(self.decoder, encoder_out, tokens, settled)

    @property
    def _pad(self) -> int:
        return self.decoder.padding_idx

    def _without(self, tokens: Tensor, count: Tensor) -> Tensor:
        """Drop the first tokens of each row, and return the others, right-padded.

        ``count`` (rows,) is the number of tokens to drop from each row.
        """
        left = int((tokens.ne(self._pad).sum(1) - count).max())
        columns = count.unsqueeze(1) + torch.arange(left, device=tokens.device)
        outside = columns >= tokens.size(1)
        columns = columns.clamp(max=tokens.size(1) - 1)
        return tokens.gather(1, columns).masked_fill(outside, self._pad)
