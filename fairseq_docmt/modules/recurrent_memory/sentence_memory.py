"""Recurrent memory that summarises earlier sentences (Feng et al. 2022)."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq.modules import FairseqDropout, SinusoidalPositionalEmbedding
from fairseq.utils import get_activation_fn
from torch import Tensor, nn

from fairseq_docmt.modules.shared.document_state import DocumentState
from fairseq_docmt.modules.shared.full_attention import AttendedSource, SourceAttention


class ReadSentence(NamedTuple):
    """States of a sentence, the input of a memory update.

    Attributes:
        states: (B, T, C).
        present: (B, T) True at tokens; False throughout for rows without a sentence.
    """

    states: Tensor
    present: Tensor


class MemoryState(NamedTuple):
    """State of a memory between sentences.

    The memory excludes the latest sentences, those that gradients reach: their updates are computed
    with the next sentence, so that they are part of its graph.

    Attributes:
        memory: (B, m, C) memory before these sentences.
        sentences: latest sentences, oldest first, not yet in the memory.
    """

    memory: Tensor
    sentences: List[ReadSentence]

    def as_doc_state(self, prefix: str) -> DocumentState:
        """Convert to a document state with names that start with ``prefix``."""
        doc_state = {f"{prefix}.memory": self.memory}
        for number, sentence in enumerate(self.sentences):
            doc_state[f"{prefix}.states.{number}"] = sentence.states
            doc_state[f"{prefix}.present.{number}"] = sentence.present
        return doc_state

    @classmethod
    def of_doc_state(
        cls, doc_state: Optional[DocumentState], prefix: str
    ) -> Optional["MemoryState"]:
        """Convert from a document state, see :meth:`as_doc_state`; None stays None."""
        if doc_state is None:
            return None
        sentences = []
        while f"{prefix}.states.{len(sentences)}" in doc_state:
            at = len(sentences)
            sentences.append(
                ReadSentence(
                    doc_state[f"{prefix}.states.{at}"], doc_state[f"{prefix}.present.{at}"]
                )
            )
        return cls(doc_state[f"{prefix}.memory"], sentences)


class SentenceMemory(nn.Module):
    """Memory of one layer: initial memory, update and output attention.

    Feng et al. (2022), equations 2 to 5. As in the authors' code, output attention is a sublayer
    with its own residual connection and layer norm, and the initial memory is normalised.

    Args:
        embed_dim: size of states and memory vectors.
        heads: number of attention heads.
        ffn_dim: inner size of the feed-forward network of the update.
        size: number of memory vectors.
        gradient_sentences: number of previous sentences that the gradient of a sentence reaches; 0:
            all of a batch.
        dropout, attention_dropout: dropout probabilities of the layer.
        activation: name of the activation function of the feed-forward network.
        normalize_before: whether the layer is pre-norm.
    """

    def __init__(
        self,
        embed_dim: int,
        heads: int,
        ffn_dim: int,
        size: int,
        gradient_sentences: int = 1,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation: str = "relu",
        normalize_before: bool = False,
    ):
        super().__init__()
        self.gradient_sentences = gradient_sentences
        self.dropout = FairseqDropout(dropout, module_name=type(self).__name__)
        self.activation = get_activation_fn(activation)
        self.normalize_before = normalize_before
        self.initial = nn.Parameter(torch.randn(size, embed_dim))
        self.initial_norm = nn.LayerNorm(embed_dim)
        self.update_attention = SourceAttention(embed_dim, heads, attention_dropout)
        self.update_norm = nn.LayerNorm(embed_dim)
        self.fc1, self.fc2 = nn.Linear(embed_dim, ffn_dim), nn.Linear(ffn_dim, embed_dim)
        for linear in (self.fc1, self.fc2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.final_norm = nn.LayerNorm(embed_dim)
        self.output_attention = SourceAttention(embed_dim, heads, attention_dropout)
        self.output_norm = nn.LayerNorm(embed_dim)
        positions = SinusoidalPositionalEmbedding.get_embedding(size, embed_dim)
        self.register_buffer("positions", positions, persistent=False)

    # ---- the memory ----------------------------------------------------------------------------

    def first(self, num_rows: int) -> Tensor:
        """Return the (rows, m, C) memory at the start of documents."""
        return self.initial_norm(self.initial).expand(num_rows, -1, -1)

    def update(self, memory: Tensor, sentence: ReadSentence) -> Tensor:
        """Update a memory by a sentence (equations 2 to 4).

        As in the authors' code, dropout also applies to the residual input.

        Args:
            memory: (B, m, C) memory before the sentence.
            sentence: states of the sentence.

        Returns:
            (B, m, C) memory after the sentence; unchanged in rows without a sentence.
        """
        absent = ~sentence.present.any(dim=1)
        # Full masking of rows without a sentence would give NaN; their result is unused.
        padding = ~sentence.present & ~absent.unsqueeze(1)
        query = self.dropout(memory + self.positions.to(memory.dtype))
        source = self.update_attention.project_source(sentence.states, padding)
        x = self.dropout(self.update_attention(query, source))
        x = self.update_norm(query + x)
        x = self.final_norm(x + self.dropout(self.fc2(self.dropout(self.activation(self.fc1(x))))))
        return torch.where(absent[:, None, None], memory, x)

    def begin_sentence(
        self, before: Optional[MemoryState], starts: Tensor
    ) -> Tuple[Tensor, MemoryState]:
        """Compute the memory read by the next sentence.

        Args:
            before: incoming state, None for none.
            starts: (B,) True for rows that start a document, which ignore the incoming state.

        Returns:
            (B, m, C) memory, and the state to which the next sentence is to be appended.
        """
        memory = self.first(len(starts))
        if before is None:
            # In training, update from an empty sentence, so that every parameter has a gradient in
            # every batch, as data-parallel training requires.
            nothing = ReadSentence(memory[:, :1].detach(), starts.new_zeros(len(starts), 1))
            before = MemoryState(memory, [nothing] if self.training else [])
        memory = torch.where(starts[:, None, None], memory, before.memory.to(memory.dtype))
        going_on = ~starts.unsqueeze(1)
        # A checkpoint of training in another precision may have been resumed.
        sentences = [
            ReadSentence(s.states.to(memory.dtype), s.present & going_on) for s in before.sentences
        ]
        chain = [memory]
        for sentence in sentences:
            chain.append(self.update(chain[-1], sentence))
        full = int(len(sentences) == max(self.gradient_sentences, 1))
        base = chain[full].detach() if self.gradient_sentences else chain[full]
        return chain[-1], MemoryState(base, sentences[full:])

    def read_sentences(
        self,
        states: Tensor,
        present: Tensor,
        starts: Tensor,
        lanes: int,
        before: Optional[MemoryState],
        begun: Optional[Tuple[Tensor, MemoryState]] = None,
        columns: Optional[Sequence[slice]] = None,
    ) -> Tuple[Tensor, MemoryState]:
        """Read and update the memory over K consecutive sentences of B lanes.

        Args:
            states: (K * B, T, C) states; the first sentences of all lanes come first.
            present: (K * B, T) True at tokens.
            starts: (K * B,) True for rows that start a document.
            lanes: number of lanes B.
            before: incoming state of the B lanes, None for none.
            begun: precomputed result of :meth:`begin_sentence` for the first sentences, if
                available.
            columns: the columns of T that the k-th sentences use; None for all.

        Returns:
            (K * B, m, C) memory read by each sentence, and the state after the last.
        """
        memories, state = [], before
        steps = zip(*(x.unflatten(0, (-1, lanes)) for x in (states, present, starts)))
        for number, (step_states, step_present, step_starts) in enumerate(steps):
            used = slice(None) if columns is None else columns[number]
            memory, state = begun or self.begin_sentence(state, step_starts)
            begun = None
            memories.append(memory)
            sentence = ReadSentence(step_states[:, used], step_present[:, used])
            state = state._replace(sentences=[*state.sentences, sentence])
        return torch.cat(memories), state

    # ---- output attention ----------------------------------------------------------------------

    def states_of(self, x: Tensor) -> Tensor:
        """Return the states that update the memory, given the input of the sublayer."""
        return self.output_norm(x) if self.normalize_before else x

    def project_memory(self, memory: Tensor) -> AttendedSource:
        """Compute keys and values of a memory (B, m, C) for output attention."""
        return self.output_attention.project_source(memory)

    def forward(self, x: Tensor, source: AttendedSource) -> Tensor:
        """Add the memory to states (equation 5).

        Args:
            x: (B * N, T, C) states; N consecutive rows share a memory.
            source: keys and values of the memory, see :meth:`project_memory`.

        Returns:
            (B * N, T, C) states.
        """
        y = self.output_attention(self.states_of(x), source)
        return (
            x + self.dropout(y) if self.normalize_before else self.output_norm(x + self.dropout(y))
        )
