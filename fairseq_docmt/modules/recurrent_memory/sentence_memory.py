"""The recurrent memory of Feng et al. (2022): vectors that carry sentences on to later ones."""

from typing import List, NamedTuple, Optional, Tuple

import torch
from fairseq.modules import FairseqDropout, SinusoidalPositionalEmbedding
from fairseq.utils import get_activation_fn
from torch import Tensor, nn

from fairseq_docmt.modules.shared.document_state import DocumentState
from fairseq_docmt.modules.shared.full_attention import AttendedSource, SourceAttention


class ReadSentence(NamedTuple):
    """States of a sentence that a memory is updated from.

    Attributes:
        states: (B, T, C).
        present: (B, T) where tokens stand; nowhere in rows that had no sentence.
    """

    states: Tensor
    present: Tensor


class MemoryState(NamedTuple):
    """What a memory carries from sentence to sentence.

    The memory itself lags behind by the sentences that gradients are to flow into: what is
    learned from them depends on the update that is still to come.

    Attributes:
        memory: (B, m, C) memory before the sentences.
        sentences: the latest ones, oldest first, not yet in the memory.
    """

    memory: Tensor
    sentences: List[ReadSentence]

    def as_doc_state(self, prefix: str) -> DocumentState:
        """The same as named tensors."""
        doc_state = {f"{prefix}.memory": self.memory}
        for number, sentence in enumerate(self.sentences):
            doc_state[f"{prefix}.states.{number}"] = sentence.states
            doc_state[f"{prefix}.present.{number}"] = sentence.present
        return doc_state

    @classmethod
    def of_doc_state(
        cls, doc_state: Optional[DocumentState], prefix: str
    ) -> Optional["MemoryState"]:
        """The inverse of :meth:`as_carry`; None without a carry."""
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
    """Memory of one layer: update attention, output attention and the first memory.

    Feng et al. (2022), equations 2 to 5.  As in the authors' code the output attention is a
    sublayer with residual and norm of its own, and the first memory is normalised.

    Args:
        embed_dim: size of states and memory vectors.
        heads: attention heads.
        ffn_dim: inner size of the feed-forward network of the update.
        size: memory vectors.
        gradient_sentences: previous sentences that the gradient of a sentence flows into; 0: all
            of a batch.
        dropout, attention_dropout: probabilities, as in the layer.
        activation: name of the function in the feed-forward network.
        normalize_before: norms stand before their sublayers, as in the layer.
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

    def first(self, rows: int) -> Tensor:
        """(rows, m, C) memory at the beginning of documents."""
        return self.initial_norm(self.initial).expand(rows, -1, -1)

    def update(self, memory: Tensor, sentence: ReadSentence) -> Tensor:
        """(B, m, C) memory after a sentence (equations 2 to 4); as before where there is none.

        Dropout is where the authors' code has it: what attention is added to has it too.
        """
        absent = ~sentence.present.any(dim=1)
        # Attention over nothing is not a number; its result is not used.
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
        """Memory that a sentence reads.

        Args:
            before: what is carried, None if nothing is.
            starts: (B,) rows that begin a document, so that nothing is carried into them.

        Returns:
            (B, m, C) memory, and what is carried once this sentence is read too.
        """
        memory = self.first(len(starts))
        if before is None:
            # In training an update from nothing, so that every parameter takes part in every batch,
            # as data parallel training expects.
            nothing = ReadSentence(memory[:, :1].detach(), starts.new_zeros(len(starts), 1))
            before = MemoryState(memory, [nothing] if self.training else [])
        memory = torch.where(starts[:, None, None], memory, before.memory.to(memory.dtype))
        going_on = ~starts.unsqueeze(1)
        sentences = [s._replace(present=s.present & going_on) for s in before.sentences]
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
    ) -> Tuple[Tensor, MemoryState]:
        """Consecutive sentences of each of B documents.

        Args:
            states: (K * B, T, C) of K sentences, the first of every document first.
            present: (K * B, T) where tokens stand.
            starts: (K * B,) rows that begin a document.
            lanes: number of documents B.
            before: what was carried before them, with rows B.
            begun: what :meth:`begin_sentence` has given for the first ones, if that is known.

        Returns:
            (K * B, m, C) memory that each sentence reads, and what is carried after them.
        """
        memories, state = [], before
        for sentence in zip(*(x.unflatten(0, (-1, lanes)) for x in (states, present, starts))):
            memory, state = begun or self.begin_sentence(state, sentence[2])
            begun = None
            memories.append(memory)
            state = state._replace(sentences=[*state.sentences, ReadSentence(*sentence[:2])])
        return torch.cat(memories), state

    # ---- the sublayer of its layer -------------------------------------------------------------

    def states_of(self, x: Tensor) -> Tensor:
        """What the memory is updated from, given the input of the sublayer."""
        return self.output_norm(x) if self.normalize_before else x

    def remember(self, memory: Tensor) -> AttendedSource:
        """Keys and values of a memory (B, m, C) for output attention."""
        return self.output_attention.project_source(memory)

    def forward(self, x: Tensor, source: AttendedSource) -> Tensor:
        """(B * N, T, C) states that know of the memory (equation 5), N rows for each memory."""
        y = self.output_attention(self.states_of(x), source)
        return (
            x + self.dropout(y) if self.normalize_before else self.output_norm(x + self.dropout(y))
        )
