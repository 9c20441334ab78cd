"""Base class of transformer decoders whose layers define their own incremental state.

fairseq's decoder stores keys and values of all tokens and copies them at every step of beam search.
Here each layer defines its own state, and all states are reordered together.

In shapes, T and S are the numbers of target and source positions, and C is the model dimension.
"""

import contextlib
from functools import partial
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from fairseq_docmt.modules.layers import DecoderLayer, LayerState
from fairseq_docmt.modules.search_state import KeepsState, split_order, store_state


class DecoderState(NamedTuple):
    """Incremental state of a decoder for B sentences with N beams each.

    Attributes:
        layers: state of each layer.
        rest: state that all layers share, with a method ``reorder(rows: BeamRows)``; None if there
            is no such state.
        positions: (B * N,) position of the last token that each row has read, counted from 1; 0
            before the first token. The beams of a sentence are adjacent rows. If the decoder
            restarts positions, they are counted within the sentence.
        most: upper bound on ``positions``.
        bsz: number of sentences B.
        beams: number of beams N of each sentence.
    """

    layers: List[LayerState]
    rest: Any
    positions: Tensor
    most: int
    bsz: int
    beams: int

    def reorder(self, order: Tensor) -> "DecoderState":
        """Return the state with its batch rows reordered, repeated or dropped.

        Args:
            order: (rows,) former index of each new row.
        """
        rows = split_order(order, self.bsz, self.beams)
        return self._replace(
            layers=[layer.reorder(rows) for layer in self.layers],
            rest=None if self.rest is None else self.rest.reorder(rows),
            positions=self.positions.index_select(0, order),
            bsz=self.bsz if rows.sentences is None else len(rows.sentences),
            beams=rows.beams,
        )


class StatefulDecoder(KeepsState, TransformerDecoderBase):
    """Base class of this package's transformer decoders. Layers are batch-first.

    Subclasses must define the pass over whole sequences (:meth:`forward_sequence`). For decoding,
    they can override the initial state (:meth:`init_layers`) and the additional inputs that the
    layers need for new tokens, such as sentence numbers (:meth:`marks`). They can also define a
    faster :meth:`step` for a single token of each row.

    Args:
        cfg, dictionary, embed_tokens: see fairseq's decoder.
        separator: index of ``<sep>``.
    """

    #: class of the layers
    layer_class = DecoderLayer
    #: whether a search gets attention weights over the source, as it does from fairseq's decoder
    has_attention_weights = False
    #: whether positions are counted anew in each sentence
    restarts_positions = False

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens)
        self.separator = separator

    # ---- methods of subclasses -----------------------------------------------------------------

    def forward_sequence(
        self, x: Tensor, tokens: Tensor, encoder_out: dict, weights_of: Optional[int]
    ):
        """Compute the features of whole sequences (teacher forcing).

        Args:
            x: (B, T, C) embeddings.
            tokens: (B, T) decoder input.
            encoder_out: encoder output.
            weights_of: index of the layer whose cross-attention weights are returned; None to
                return no weights.

        Returns:
            (B, T, C) features and a dict of extra outputs. With ``weights_of``, the entry ``attn``
            is [(B, T, S)], the attention weights averaged over heads. Decoders that compute rows in
            groups of similar length may return (1, N, C) features
            (:mod:`fairseq_docmt.modules.stream`).
        """
        raise NotImplementedError

    def init_layers(self, encoder_out: dict) -> tuple:
        """Return the initial state of each layer, and the initial state that all layers share.

        Each state has one row per sentence. By default the layers share no state, and the second
        result is None.
        """
        source, padding, separators = batch_first_source(encoder_out)
        layers = [layer.init_state(source, padding, separators=separators) for layer in self.layers]
        return layers, None

    def marks(self, tokens: Tensor, rest: Any) -> Tuple[dict, Any]:
        """Compute marks of new tokens: additional inputs of the layers, such as sentence numbers.

        Args:
            tokens: (rows, T) new tokens, right-padded.
            rest: state that the layers share before these tokens, or None.

        Returns:
            The marks as keyword arguments of the layers, by default an empty dict; and the shared
            state after these tokens.
        """
        return {}, rest

    def read(self, x: Tensor, tokens: Tensor, state: DecoderState):
        """Run the layers over one or more new tokens of each row, starting from a state.

        Args:
            x: (rows, T, C) embeddings; in a search the beams of a sentence are adjacent rows.
            tokens: (rows, T) new tokens, right-padded.
            state: state before these tokens.

        Returns:
            (rows, T, C) features, the new state of each layer, and the new state that they share.
        """
        marks, rest = self.marks(tokens, state.rest)
        return (*self.extend_layers(x, state, self._padding(tokens), **marks), rest)

    def step(self, x: Tensor, tokens: Tensor, state: DecoderState):
        """Run the layers over a single new token of each row, starting from a state.

        By default this calls :meth:`read`.

        Args:
            x: (rows, C) embeddings.
            tokens: (rows,) new token of each row.
            state: state before these tokens.

        Returns:
            (rows, C) features, the new state of each layer, and the new state that they share.
        """
        x, layers, rest = self.read(x.unsqueeze(1), tokens.unsqueeze(1), state)
        return x.squeeze(1), layers, rest

    # ---- layers ----------------------------------------------------------------------------------

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        """Build a layer without fairseq's wrapper for activation checkpointing.

        :meth:`run_layers` takes care of activation checkpointing instead.
        """
        layer = self.layer_class(cfg, no_encoder_attn)
        self.layer_built(layer)
        least = 0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
        return fsdp_wrap(layer, min_num_params=least)

    def layer_built(self, layer: DecoderLayer) -> None:
        """Modify a layer that was just built.

        Subclasses can override this method, which is called for the lowest layer first and by
        default does nothing.
        """

    def run_layers(
        self,
        groups: List[Tensor],
        begin: Callable[[int, DecoderLayer, List[Tensor]], List[LayerState]],
        between: Callable = lambda number: None,
        weights_of: Optional[int] = None,
        **given,
    ) -> Tuple[List[Tensor], List[List[LayerState]], List[Tensor]]:
        """Run all layers over one or more new tokens, starting from given states.

        Args:
            groups: (rows, T, C) inputs, one tensor for each group of rows of similar length.
                Usually there is a single group; see :meth:`DecoderLayer.forward`.
            begin: function that takes the number of a layer, the layer and its inputs, and returns
                the states of this layer before the tokens, one for each group.
            between: function that takes the number of a layer and returns a sublayer to insert
                between its causal and cross attention, or None.
            weights_of: index of the layer whose cross-attention weights are returned, or None.
            **given: further arguments of the layers. If a value is a list, each layer gets one of
                its items; otherwise all layers get the value.

        Returns:
            Three lists: the output of each group; the new states of each layer, one per group; and
            the (rows, T, S) cross-attention weights of each group, averaged over heads. The last
            list is empty without ``weights_of``.
        """
        after, weights = [], []
        for number, layer in enumerate(self.layers):
            own = {name: x[number] if isinstance(x, list) else x for name, x in given.items()}
            wanted = weights if number == weights_of else None
            groups, states = self._run(layer)(
                groups, partial(begin, number), between=between(number), weights=wanted, **own
            )
            after.append(states)
        return groups, after, weights

    def _run(self, layer: DecoderLayer) -> Callable:
        """Return a function that runs a layer, with activation checkpointing if it is switched on.

        Activation checkpointing is only used in training. fairseq's own wrapper does not work here,
        as it passes gradients only to arguments that are tensors.
        """
        if not (self.cfg.checkpoint_activations and self.training):
            return layer

        def checkpointed(*args, **kwargs):
            with save_on_cpu() if self.cfg.offload_activations else contextlib.nullcontext():
                return checkpoint(layer, *args, use_reentrant=False, **kwargs)

        return checkpointed

    def extend_layers(
        self, x: Tensor, state: DecoderState, padding: Optional[Tensor] = None, **given
    ) -> Tuple[Tensor, List[LayerState]]:
        """Run all layers over new tokens, starting from the state of a decoder.

        Args:
            x: (rows, T, C) embeddings.
            state: state before these tokens.
            padding: (rows, T) True at padding; None without padding.
            **given: further arguments of :meth:`run_layers`.

        Returns:
            (rows, T, C) output of the top layer, and the new state of each layer.
        """
        (x,), after, _ = self.run_layers(
            [x],
            lambda number, layer, _: [state.layers[number]],
            padding=padding,
            need_state=True,
            **given,
        )
        return x, [new for (new,) in after]

    # ---- methods that fairseq calls ------------------------------------------------------------

    def extract_features(
        self,
        prev_output_tokens,
        encoder_out,
        incremental_state=None,
        full_context_alignment=False,
        alignment_layer=None,
        alignment_heads=None,
    ):
        """Compute the features of all tokens or, with an incremental state, of the last token only.

        Args:
            alignment_layer: for whole sequences, passed on as ``weights_of`` to
                :meth:`forward_sequence`; ignored with an incremental state.

        Returns:
            (B, T, C) features, where T is 1 with an incremental state, and a dict of extra outputs.
        """
        if incremental_state is not None:
            last = prev_output_tokens[:, -1:]
            return self.prefill(last, encoder_out, incremental_state, in_search=True)
        x = self._embed(prev_output_tokens)
        encoder_out = _for_rows(encoder_out, len(prev_output_tokens))
        x, extra = self.forward_sequence(x, prev_output_tokens, encoder_out, alignment_layer)
        return self._project(x), {"attn": [None], "inner_states": [], **extra}

    def prefill(self, new_tokens, encoder_out, incremental_state, in_search: bool = False):
        """Run the decoder over one or more new tokens and update the incremental state.

        Args:
            new_tokens: (B, T) tokens, right-padded.
            encoder_out: encoder output.
            incremental_state: fairseq's dictionary of states, which is updated.
            in_search: whether to use :meth:`step`; this requires exactly one token in each row.

        Returns:
            (B, T, C) features and a dict of extra outputs.
        """
        state = self.current_state(incremental_state, encoder_out, len(new_tokens))
        positions, most = self._positions(new_tokens, state), state.most + new_tokens.size(1)
        x = self._embed(new_tokens, positions, most)
        if in_search:
            x, layers, rest = self.step(x.squeeze(1), new_tokens.squeeze(1), state)
            x, last = x.unsqueeze(1), positions.squeeze(1)
        else:
            x, layers, rest = self.read(x, new_tokens, state)
            read = new_tokens.ne(self.padding_idx).sum(dim=1, keepdim=True)
            last = positions.gather(1, (read - 1).clamp(min=0))
            last = torch.where(read > 0, last, state.positions.unsqueeze(1)).squeeze(1)
        state = state._replace(layers=layers, rest=rest, positions=last, most=most)
        store_state(incremental_state, state)
        return self._project(x), {"attn": [None], "inner_states": []}

    def init_state(self, encoder_out):
        """Return the decoder state before the first token, with one row per sentence."""
        bsz = encoder_out["encoder_padding_mask"][0].size(0)
        layers, rest = self.init_layers(encoder_out)
        positions = torch.zeros(bsz, dtype=torch.long, device=self.embed_tokens.weight.device)
        return DecoderState(layers, rest, positions, 0, bsz, 1)

    # ---- embeddings and output projection ------------------------------------------------------

    def _padding(self, tokens: Tensor) -> Optional[Tensor]:
        """Return the (B, T) padding mask of tokens, or None if there is no padding."""
        padding = tokens.eq(self.padding_idx)
        return padding if padding.any() else None

    def _positions(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Return the (rows, T) positions of new tokens that follow a state; 0 at right padding.

        If the decoder restarts positions, they are counted within the sentence.
        """
        is_token = tokens.ne(self.padding_idx)
        positions = (is_token.cumsum(dim=1) + state.positions.unsqueeze(1)) * is_token
        if not self.restarts_positions:
            return positions
        return sentence_positions(positions, tokens.eq(self.separator), ends=False)

    def _embed(self, tokens: Tensor, positions: Optional[Tensor] = None, most: int = 0) -> Tensor:
        """Return the (B, T, C) embeddings of tokens, with their position embeddings added.

        Args:
            tokens: (B, T) tokens.
            positions: (B, T) positions of the tokens. By default each row starts at the first
                position.
            most: upper bound on ``positions``; not needed without them.
        """
        x = self.embed_scale * self.embed_tokens(tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if self.embed_positions is not None:
            if positions is None:
                x = x + self.embed_positions(tokens)
            else:
                x = x + self._embedded(positions, most).to(x.dtype)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def _embedded(self, positions: Tensor, most: int) -> Tensor:
        """Look up the (..., C) embeddings of positions.

        If a sinusoidal table is too short for positions up to ``most``, it is extended.
        """
        embed = self.embed_positions
        sinusoidal = isinstance(embed, SinusoidalPositionalEmbedding)
        if sinusoidal and len(embed.weights) <= most + self.padding_idx:
            # A call with a longer sequence extends the sinusoidal table.
            embed(positions.new_full((1, 2 * most), self.padding_idx))
        return look_up(embed, positions)

    def _project(self, x):
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return x if self.project_out_dim is None else self.project_out_dim(x)


def _for_rows(encoder_out: dict, num_rows: int) -> dict:
    """Repeat the encoder output of each sentence for its beams, giving ``num_rows`` rows in all.

    This is for decoding without incremental state, where the decoder reads the whole prefix at
    every step.
    """
    bsz = encoder_out["encoder_padding_mask"][0].size(0)
    if num_rows == bsz:
        return encoder_out
    beams = num_rows // bsz
    return {
        **encoder_out,
        "encoder_out": [encoder_out["encoder_out"][0].repeat_interleave(beams, dim=1)],
        "encoder_padding_mask": [
            x.repeat_interleave(beams, 0) for x in encoder_out["encoder_padding_mask"]
        ],
        "separators": [x.repeat_interleave(beams, 0) for x in encoder_out["separators"]],
    }


def batch_first_source(encoder_out: dict):
    """Return the encoder states and their masks, with the batch as the first dimension.

    Returns:
        (B, S, C) states, (B, S) padding mask or None without padding, and (B, S) mask of ``<sep>``.
    """
    source = encoder_out["encoder_out"][0].transpose(0, 1)
    padding = encoder_out["encoder_padding_mask"][0]
    return source, padding if padding.any() else None, encoder_out["separators"][0]


def look_up(embed_positions: nn.Module, positions: Tensor) -> Tensor:
    """Return the (B, T, C) embeddings of positions.

    Args:
        embed_positions: fairseq's learned or sinusoidal positional embedding, with a table large
            enough for all positions.
        positions: (B, T) positions, counted from 1; 0 is padding.
    """
    sinusoidal = isinstance(embed_positions, SinusoidalPositionalEmbedding)
    table = embed_positions.weights if sinusoidal else embed_positions.weight
    return F.embedding(positions + embed_positions.padding_idx, table)


def sentence_positions(positions: Tensor, separators: Tensor, ends: bool) -> Tensor:
    """Convert positions within a row to positions within a sentence.

    Args:
        positions: (B, T) int64 position of each token in its row, from 1; 0 at padding.
        separators: (B, T) True at ``<sep>``.
        ends: whether ``<sep>`` ends a sentence, as in the source; otherwise it begins a sentence,
            as in decoder input.

    Returns:
        (B, T) position of each token in its sentence, from 1; 0 at padding.
    """
    if ends:
        before = F.pad(positions.masked_fill(~separators, 0), (1, -1))
    else:
        before = (positions - 1).masked_fill(~separators, 0)
    return (positions - before.cummax(dim=1).values).clamp(min=0)
