"""Hierarchical attention to previous sentences for ``han_transformer`` (Miculicich et al. 2018)."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from fairseq_docmt.modules.decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.layers import AttentionDropout, AttentionProjections
from fairseq_docmt.modules.previous_sentences import state_of, with_previous
from fairseq_docmt.modules.search_state import BeamRows
from fairseq_docmt.modules.stream import DocumentState, Stream, of_equal_width
from fairseq_docmt.modules.stream_encoder import StreamEncoder


class PreviousStates(NamedTuple):
    """States of the sentences in and before a batch, with indices of each row's previous sentences.

    M is the number of all sentences and W their padded length.

    Attributes:
        states: (M, W, C) encoder or decoder states of each sentence. The sentences from the
            document state before the batch come first, then the sentences of the batch.
        present: (M, W) True at tokens, False at padding.
        place: (rows, n) indices in ``states`` of the n previous sentences of each row, the farthest
            first.
        known: (rows, n) True where the previous sentence exists, that is, belongs to the document
            of the row.
        doc_state: document state of each lane after the batch. ``SIDE.states.1`` (lanes, W, C) and
            ``SIDE.present.1`` (lanes, W) describe the last sentence of each lane, ``SIDE.states.2``
            the sentence before it, and so on. SIDE is ``encoder`` or ``decoder``.
    """

    states: Tensor
    present: Tensor
    place: Tensor
    known: Tensor
    doc_state: DocumentState

    @classmethod
    def of(
        cls, side: str, states: Tensor, present: Tensor, stream: Stream, count: int
    ) -> "PreviousStates":
        """Find the previous ``count`` sentences of each row of a batch.

        Args:
            side: ``encoder`` or ``decoder``, the prefix of names in the document state.
            states: (rows, W, C) states of the batch.
            present: (rows, W) True at tokens.
            stream: documents of the batch rows, and the document state before the batch.
            count: number n of previous sentences.

        Raises:
            UserError: the document state was saved with a different number of previous sentences.
        """
        sentences = with_previous(states, stream, count, f"{side}.states")
        masks = with_previous(present, stream, count, f"{side}.present")
        states, present = (torch.stack(of_equal_width(x)) for x in (sentences, masks))
        filled = present[:count].any(dim=2).sum(dim=0)
        place, known, kept = stream.previous(filled, count)
        masks = [x & still_known.unsqueeze(1) for x, still_known in zip(masks[-count:], kept.t())]
        doc_state = {
            **state_of(f"{side}.states", sentences[-count:]),
            **state_of(f"{side}.present", masks),
        }
        return cls(states.flatten(0, 1), present.flatten(0, 1), place, known, doc_state)


class AttendedSentences(NamedTuple):
    """Keys and values for the words in the n previous sentences of each of B sentences.

    Attributes:
        keys, values: (B, n, H, W, d), for previous sentences of up to W words.
        words: (B, n, W) True at words, False at padding.
        known: (B, n) True if the previous sentence exists.
    """

    keys: Tensor
    values: Tensor
    words: Tensor
    known: Tensor

    def of_sentences(self, sentences: Tensor) -> "AttendedSentences":
        """Select the keys, values and masks of some sentences by a 1-D tensor of indices."""
        return AttendedSentences(*(x.index_select(0, sentences) for x in self))

    def reorder(self, rows: BeamRows) -> "AttendedSentences":
        """Select the sentences that remain in a beam search.

        The beams of a sentence share its keys and values, so their order does not matter.
        """
        return self if rows.sentences is None else self.of_sentences(rows.sentences)


class HierarchicalAttention(nn.Module):
    """Attention to the words of each previous sentence, then to the resulting sentence summaries.

    A gate combines each state with the result. The module follows Miculicich et al. (2018); its
    layer norms and the residual connection of the feed-forward network follow the authors' code.
    Without previous sentences the output is the input.

    Args:
        embed_dim: size C of states.
        heads: number of attention heads.
        ffn_dim: inner size of the feed-forward network.
        dropout, attention_dropout: dropout probabilities.
    """

    def __init__(
        self, embed_dim: int, heads: int, ffn_dim: int, dropout: float, attention_dropout: float
    ):
        super().__init__()
        self.attention_dropout = AttentionDropout(attention_dropout, self)
        self.dropout = FairseqDropout(dropout, module_name=type(self).__name__)
        self.word_attention = AttentionProjections(embed_dim, heads)
        self.sentence_attention = AttentionProjections(embed_dim, heads)
        self.word_query_norm = nn.LayerNorm(embed_dim)
        self.sentence_query_norm = nn.LayerNorm(embed_dim)
        self.word_norm, self.ffn_norm = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.fc1, self.fc2 = nn.Linear(embed_dim, ffn_dim), nn.Linear(ffn_dim, embed_dim)
        self.gate = nn.Linear(2 * embed_dim, embed_dim)
        for linear in (self.fc1, self.fc2, self.gate):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def attended(self, previous: PreviousStates) -> AttendedSentences:
        """Compute the keys and values of the words of each row's previous sentences."""
        keys, values = self.word_attention.keys_and_values(previous.states)
        place = previous.place
        return AttendedSentences(
            keys[place], values[place], previous.present[place], previous.known
        )

    def forward(self, x: Tensor, sentences: AttendedSentences) -> Tensor:
        """Add context from previous sentences to encoder or decoder states.

        Args:
            x: (B * N, T, C) states h_t; the N rows (beams) of a sentence are adjacent.
            sentences: keys and values of the previous sentences of B sentences.

        Returns:
            (B * N, T, C) states with context; unchanged for sentences without previous sentences.
        """
        states = x.unflatten(0, (len(sentences.known), -1)).flatten(1, 2)
        context = self._read_sentences(states, self._read_words(states, sentences), sentences.known)
        gate = self.gate(torch.cat([states, context], dim=-1)).sigmoid()
        output = gate * states + (1 - gate) * context
        anything = sentences.known.any(dim=1)[:, None, None]
        return torch.where(anything, output, states).view_as(x)

    def _read_words(self, states: Tensor, sentences: AttendedSentences) -> Tensor:
        """Summarise each previous sentence by attention to its words.

        Args:
            states: (B, T, C) states h_t, from which the queries are computed.
            sentences: keys and values of the n previous sentences.

        Returns:
            (B, n, T, C) summaries s_t^j: one of each previous sentence j for each state h_t.
        """
        attention = self.word_attention
        q = attention.split_heads(attention.q_proj(self.word_query_norm(states))).unsqueeze(1)
        # Unknown sentences are masked later; here all their positions are attended to, against NaN.
        seen = sentences.words | ~sentences.known.unsqueeze(2)
        q = q.expand(-1, seen.size(1), -1, -1, -1)
        read = self._attend(q, sentences.keys, sentences.values, seen[:, :, None, None])
        return self.word_norm(attention.out_proj(read.transpose(2, 3).flatten(3)))

    def _read_sentences(self, states: Tensor, summaries: Tensor, known: Tensor) -> Tensor:
        """Compute the (B, T, C) context vectors d_t by attention to the sentence summaries.

        Args:
            states: (B, T, C) states, from which the queries are computed.
            summaries: (B, n, T, C) summary of each previous sentence for each state.
            known: (B, n) True if the previous sentence exists.
        """
        attention = self.sentence_attention
        sizes = (attention.num_heads, attention.head_dim)
        # (B, T, H, 1, d) and (B, T, H, n, d)
        q = attention.q_proj(self.sentence_query_norm(states)).unflatten(-1, sizes).unsqueeze(3)
        keys, values = (
            projection(summaries).unflatten(-1, sizes).permute(0, 2, 3, 1, 4)
            for projection in (attention.k_proj, attention.v_proj)
        )
        seen = known | ~known.any(dim=1, keepdim=True)
        read = self._attend(q, keys, values, seen[:, None, None, None])
        read = attention.out_proj(read.squeeze(3).flatten(2))
        hidden = self.dropout(F.relu(self.fc1(self.ffn_norm(read))))
        return read + self.dropout(self.fc2(hidden))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, seen, self.attention_dropout.rate)


def _build_attention(cfg, side) -> HierarchicalAttention:
    """Create hierarchical attention with the sizes of ``side``.

    Args:
        cfg: options of the model.
        side: ``cfg.encoder`` or ``cfg.decoder``.
    """
    sizes = (side.embed_dim, side.attention_heads, side.ffn_embed_dim)
    return HierarchicalAttention(*sizes, cfg.dropout, cfg.attention_dropout)


class HANEncoder(StreamEncoder):
    """Transformer encoder whose output states attend to previous source sentences.

    With ``--context-side target``, the encoder reads no context.

    Args:
        cfg, dictionary, embed_tokens: see fairseq's transformer.
        separator: index of ``<sep>``.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.count, self.hierarchical = cfg.context_sentences, None
        if cfg.context_side != "target":
            self.hierarchical = _build_attention(cfg, cfg.encoder)

    def with_context(self, output, src_tokens, stream):
        """Let the encoder states attend to previous source sentences.

        Returns:
            The encoder output with new states and the new ``doc_state``. It is unchanged if the
            encoder does not read previous sentences.
        """
        if self.hierarchical is None:
            return output
        x, present = output["encoder_out"][0].transpose(0, 1), src_tokens.ne(self.padding_idx)
        previous = PreviousStates.of("encoder", x, present, stream, self.count)
        groups, attended = stream.groups("source"), self.hierarchical.attended(previous)
        x = groups.apply(self.hierarchical, x, attended)
        return {**output, "encoder_out": [x.transpose(0, 1)], "doc_state": previous.doc_state}


class HANDecoder(StatefulDecoder):
    """Transformer decoder whose output states attend to previous target sentences.

    With ``--context-side source``, the decoder reads no previous target sentences.

    Args:
        cfg, dictionary, embed_tokens: see fairseq's transformer.
        separator: index of ``<sep>``.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.count, self.hierarchical = cfg.context_sentences, None
        if cfg.context_side != "source":
            self.hierarchical = _build_attention(cfg, cfg.decoder)

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """Compute features with attention to previous target sentences (teacher forcing).

        Arguments and results are the same as for :meth:`StatefulDecoder.forward_sequence`. The
        extra outputs include the new document state, ``doc_state``.
        """
        stream = encoder_out["stream"].for_rows(len(tokens))
        stream = stream if weights_of is None else stream.ungrouped()
        targets, sources = stream.groups("target"), stream.groups("attended")
        source, padding, _ = batch_first_source(encoder_out)
        encoded = list(zip(sources.split(source), sources.split(padding)))
        groups, _, weights = self.run_layers(
            targets.split(x),
            lambda number, layer, _: [layer.init_state(*each) for each in encoded],
            weights_of=weights_of,
        )
        x = super()._project(targets.join(groups, x.size(1)))
        doc_state = dict(encoder_out["doc_state"])
        if self.hierarchical is not None:
            previous = self._previous(x, tokens.ne(self.padding_idx), stream)
            x = targets.apply(self.hierarchical, x, self.hierarchical.attended(previous))
            doc_state.update(previous.doc_state)
        extra = {"attn": weights or [None], "doc_state": doc_state, **stream.positions()}
        return stream.at_loss(x), extra

    def init_layers(self, encoder_out):
        """Return the initial state of each layer, and keys and values of previous target sentences.

        Both have one row per sentence. The second result is None if the decoder does not read
        previous sentences.
        """
        layers, _ = super().init_layers(encoder_out)
        if self.hierarchical is None:
            return layers, None
        # The sentence itself is not among those before it, so its states do not matter.
        bsz, size = len(encoder_out["stream"].starts), self.hierarchical.gate.out_features
        x = self.embed_tokens.weight.new_zeros(bsz, 1, size)
        present = torch.zeros_like(x[..., 0], dtype=torch.bool)
        previous = self._previous(x, present, encoder_out["stream"])
        return layers, self.hierarchical.attended(previous)

    def read(self, x, tokens, state):
        """Run the layers over new tokens, then attend to the previous target sentences.

        The arguments are the same as for :meth:`StatefulDecoder.read`.

        Returns:
            (rows, T, C) features, the new state of each layer, and the keys and values of the
            previous sentences, which do not change. The last is None if the decoder does not read
            previous sentences.
        """
        x, layers, previous = super().read(x, tokens, state)
        x = super()._project(x)
        return x if previous is None else self.hierarchical(x, previous), layers, previous

    def _previous(self, x: Tensor, present: Tensor, stream: Stream) -> PreviousStates:
        return PreviousStates.of("decoder", x, present, stream, self.count)

    def _project(self, x):
        # The final norm comes before the attention to previous sentences, in the methods above.
        return x
