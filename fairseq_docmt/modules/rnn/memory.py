"""Document memories of ``memnet_rnn`` (Maruf and Haffari 2018, section 4)."""

from collections import OrderedDict
from typing import Callable, Dict, Iterable, List, Optional

import torch
import torch.nn.functional as F
from fairseq.modules import FairseqDropout
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_sequence

from fairseq_docmt.modules.rnn.gru_decoder import GRUDecoder, GRUState, PerSentence
from fairseq_docmt.modules.rnn.gru_encoder import GRUEncoder, init_uniform, placed
from fairseq_docmt.ops.recall import recall_others, sentences_per_document


class VectorCache:
    """Cache of sentence vectors in CPU memory.

    A full cache drops the least recently used vectors. Each process has its own cache, which is not
    saved in checkpoints.

    Args:
        most: maximum number of vectors.
    """

    def __init__(self, most: int):
        self.most = most
        self.vectors: OrderedDict = OrderedDict()
        self.weights = None

    def __call__(
        self,
        sentences: List[Tensor],
        compute: Callable[[List[Tensor]], Tensor],
        weights: Iterable[Tensor],
    ) -> Tensor:
        """Look up the vectors of sentences, or compute and store those not in the cache.

        Args:
            sentences: words of each sentence, on the CPU.
            compute: function that computes the (rows, d) vectors of a list of sentences.
            weights: parameters that ``compute`` uses. When one is replaced or changed in place, the
                cache is cleared; changes through ``weight.data`` are not detected.

        Returns:
            (rows, d) vectors of the sentences, on the CPU.
        """
        weights = [(w.data_ptr(), w._version, w.dtype) for w in weights]
        if weights != self.weights:
            self.vectors.clear()
            self.weights = weights
        keys = [sentence.numpy().tobytes() for sentence in sentences]
        new = {key: s for key, s in zip(keys, sentences) if key not in self.vectors}
        if new:
            computed = compute(list(new.values())).cpu()
            # Copy rows: a view would keep the whole result in memory.
            self.vectors.update((key, row.clone()) for key, row in zip(new, computed))
        for key in keys:
            self.vectors.move_to_end(key)
        found = torch.stack([self.vectors[key] for key in keys])
        while len(self.vectors) > self.most:
            self.vectors.popitem(last=False)
        return found


INSERTIONS = ("context", "output")
DIRECTIONS = ("forward", "backward")
#: batch size of the language models
BLOCK = 32
#: size of the cache of sentence vectors: 262,144 vectors of the paper's size
KEPT_BYTES = 2**30


class SentenceVectors(nn.Module):
    """Frozen sentence encoder: last states of a forward and a backward language model.

    The vectors are standardised, because the states of language models have a large component that
    is the same for all sentences. A memory computed from such states hardly learns.

    Each sentence is encoded once and cached until the weights change. Its vector does not depend on
    the other sentences of the batch, so it is bitwise reproducible, for example after resuming.

    Args:
        words: size of the vocabulary.
        padding_idx, eos: indices of padding and ``</s>``.
        embed_dim, hidden_size: sizes of each language model.
    """

    def __init__(self, words: int, padding_idx: int, eos: int, embed_dim: int, hidden_size: int):
        super().__init__()
        self.padding_idx, self.eos = padding_idx, eos
        self.embeddings = nn.ModuleList(nn.Embedding(words, embed_dim) for _ in DIRECTIONS)
        self.lstms = nn.ModuleList(
            nn.LSTM(embed_dim, hidden_size, batch_first=True) for _ in DIRECTIONS
        )
        self.size = 2 * hidden_size
        self.register_buffer("mean", torch.zeros(self.size))
        self.register_buffer("deviation", torch.ones(self.size))
        for parameter in self.parameters():
            parameter.requires_grad = False
        self.kept = VectorCache(KEPT_BYTES // (4 * self.size))

    @torch.no_grad()
    def forward(self, src_tokens: Tensor) -> Tensor:
        """Compute the standardised vectors of sentences, (rows, 2 * hidden_size).

        The sentences are the rows of ``src_tokens``, (rows, S). They end with ``</s>``, and padding
        may be anywhere.
        """
        words = [self._words(row) for row in src_tokens.cpu()]
        vectors = self.kept(words, self.last_states, self.parameters()).to(self.mean.device)
        return (vectors - self.mean) / self.deviation

    def _words(self, sentence: Tensor) -> Tensor:
        """Return the words of a sentence, without ``</s>`` or padding."""
        return sentence[sentence.ne(self.padding_idx)][:-1]

    @torch.no_grad()
    def last_states(self, sentences: List[Tensor]) -> Tensor:
        """Compute the last states of both language models, without standardising them.

        Args:
            sentences: 1-D tensors of words, without ``</s>`` or padding.

        Returns:
            (sentences, 2 * hidden_size) states.
        """
        order = sorted(range(len(sentences)), key=lambda row: len(sentences[row]))
        states = self.mean.new_empty(
            len(sentences), self.size, dtype=self.lstms[0].weight_ih_l0.dtype
        )
        with torch.autocast(states.device.type, enabled=False):
            for at in range(0, len(order), BLOCK):
                rows = order[at : at + BLOCK]
                forward = [sentences[row] for row in rows]
                backward = [words.flip(0) for words in forward]
                parts = zip(self.embeddings, self.lstms, (forward, backward))
                states[rows] = torch.cat([self._read(*part) for part in parts], dim=-1)
        return states

    def _read(self, embedding: nn.Embedding, lstm: nn.LSTM, sentences: List[Tensor]) -> Tensor:
        """Compute the (rows, d) last states of one language model for up to BLOCK sentences.

        Every matrix product has BLOCK rows, even for fewer sentences: a different number of rows
        may change the order of summation, and so the rounding.
        """
        weights = (lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0, lstm.bias_hh_l0)
        device = weights[0].device
        # The first input of a language model is </s>.
        first = torch.tensor([self.eos])
        rows = [torch.cat([first, words]) for words in sentences]
        lengths = F.pad(torch.tensor([len(row) for row in rows]), (0, BLOCK - len(rows)))
        # What follows the end of a row is read, but its states are not kept.
        tokens = F.pad(pad_sequence(rows), (0, BLOCK - len(rows))).to(device)
        ends = lengths.to(device).unsqueeze(1) - 1
        hidden = cell = last = weights[0].new_zeros(BLOCK, lstm.hidden_size)
        for step, words in enumerate(tokens):
            hidden, cell = torch.lstm_cell(embedding(words), (hidden, cell), *weights)
            last = torch.where(ends == step, hidden, last)
        return last[: len(rows)]

    @torch.no_grad()
    def standardise(self, sentences: Iterable[Tensor]) -> None:
        """Set the mean and standard deviation for standardisation, computed from sample sentences.

        Args:
            sentences: 1-D tensors of tokens that end with ``</s>``.
        """
        states = self.last_states([self._words(sentence) for sentence in sentences])
        self.mean.copy_(states.mean(dim=0))
        self.deviation.copy_(states.std(dim=0, unbiased=False).clamp(min=1e-4))

    def load(self, direction: str, language_model: Dict[str, Tensor]) -> None:
        """Load the parameters of a one-layer language model trained with ``--arch lstm_lm``.

        Args:
            direction: ``forward`` or ``backward``, the direction in which the model reads
                sentences.
            language_model: its state dict; its vocabulary may lack up to two symbols that were
                added at the end of the source dictionary.

        Raises:
            ValueError: the model has a different architecture, size or vocabulary.
        """
        at = DIRECTIONS.index(direction)
        lstm, embedding = self.lstms[at], self.embeddings[at].weight
        pairs = {
            f"decoder.layers.0.{part}": getattr(lstm, f"{part}_l0")
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        }
        words = language_model.get("decoder.embed_tokens.weight")
        found = {key: language_model.get(key) for key in pairs}
        if (
            words is None
            or None in found.values()
            or "decoder.layers.1.weight_ih" in language_model
        ):
            raise ValueError("is not a language model with one layer of --arch lstm_lm")
        for key, parameter in pairs.items():
            if found[key].shape != parameter.shape:
                raise ValueError(
                    f"has states of {found[key].size(0) // 4} and embeddings of {words.size(1)}, "
                    f"not {lstm.hidden_size} and {embedding.size(1)}"
                )
        if not 0 <= len(embedding) - len(words) <= 2:
            raise ValueError(
                f"has {len(words)} words, but the source dictionary has {len(embedding)}"
            )
        with torch.no_grad():
            for key, parameter in pairs.items():
                parameter.copy_(found[key])
            embedding[: len(words)] = words


class SourceMemory(nn.Module):
    """Source memory: a bidirectional GRU over the sentence vectors of a document.

    Args:
        sentences: sentence encoder that computes these vectors.
        hidden_size: size of each direction of the GRU.
        dropout: dropout of the vectors and of the memory cells.
    """

    def __init__(self, sentences: SentenceVectors, hidden_size: int, dropout: float):
        super().__init__()
        self.sentences = sentences
        self.dropout = FairseqDropout(dropout, module_name=type(self).__name__)
        self.document_gru = nn.GRU(
            sentences.size, hidden_size, batch_first=True, bidirectional=True
        )

    def forward(self, src_tokens: Tensor, documents: Tensor) -> Tensor:
        """Compute the memory cells of source sentences, one for each sentence.

        Args:
            src_tokens: (rows, S) tokens.
            documents: (rows,) document number of each sentence; the sentences of a document are
                consecutive.

        Returns:
            (rows, 2 d) cells, for GRU states of size d.
        """
        vectors = self.sentences(src_tokens).to(next(self.document_gru.parameters()).dtype)
        vectors = self.dropout(vectors)
        lengths, rows = sentences_per_document(documents), torch.arange(len(vectors))
        packed, packed_rows = (
            pack_sequence(values.split(lengths), enforce_sorted=False) for values in (vectors, rows)
        )
        states, _ = self.document_gru(packed)
        cells = placed(states.data, packed_rows.data.to(vectors.device), len(vectors))
        return self.dropout(cells)


class MemnetEncoder(GRUEncoder):
    """GRU encoder that also computes the source memory of each document.

    Args:
        *args: see :class:`~fairseq_docmt.modules.rnn.gru_encoder.GRUEncoder`.
        memory: source memory, or None.
    """

    def __init__(self, *args, memory: SourceMemory = None):
        super().__init__(*args)
        self.source_memory = memory

    def forward(self, src_tokens, src_lengths=None, documents=None, **kwargs):
        """Encode sentences and compute the source memory.

        Args:
            src_tokens, src_lengths, **kwargs: see :class:`GRUEncoder`.
            documents: (rows,) document number of each sentence; the sentences of a document are
                consecutive. None for isolated sentences.

        Returns:
            Output of :class:`GRUEncoder` with two further lists. ``source_cells`` has the
            (rows, 2 d) cells that :class:`SourceMemory` returns; it is empty without source memory
            or ``documents``. ``readings`` is empty; the vectors that the decoder reads from the
            memories are put there later.
        """
        output = super().forward(src_tokens, src_lengths, **kwargs)
        cells = []
        if documents is not None and self.source_memory is not None:
            cells = [self.source_memory(src_tokens, documents)]
        return {**output, "source_cells": cells, "readings": []}

    def _select(self, encoder_out, sentences, beams):
        selected = super()._select(encoder_out, sentences, beams)
        chosen = {
            key: [x.index_select(0, sentences) for x in encoder_out[key]]
            for key in ("source_cells", "readings")
        }
        return {**selected, **chosen}


class MemnetDecoder(GRUDecoder):
    """GRU decoder that reads memories of the other sentences of the document.

    A memory has one cell per sentence. The reading of a sentence from a memory is the
    attention-weighted sum of the other sentences' cells.

    Args:
        *args: see :class:`~fairseq_docmt.modules.rnn.gru_decoder.GRUDecoder`.
        source_size: size of the cells of the source memory, 0 without source memory.
        target_memory: whether there is a target memory.
        insertion: where a projection of the readings is added: ``context`` for the gates of the
            lowest layer (Memory-to-Context), ``output`` for the logits (Memory-to-Output).
    """

    def __init__(self, *args, source_size: int, target_memory: bool, insertion: str):
        super().__init__(*args)
        self.insertion = insertion
        hidden_size, encoder_units = self.attending.hidden_dim, self.initial.in_features * 2
        self.target_query = None
        if target_memory:
            self.target_query = nn.Linear(encoder_units, hidden_size, bias=False)
            init_uniform(self.target_query, hidden_size)
        self.readings_size = source_size + hidden_size * int(target_memory)
        outputs = 3 * hidden_size if insertion == "context" else len(self.dictionary)
        self.of_memory = nn.Linear(self.readings_size, outputs, bias=False)
        # Start from the pre-trained model: readings are random at first, and training would learn
        # to ignore them.
        nn.init.zeros_(self.of_memory.weight)

    def recall_source(self, encoder_out: dict, documents: Tensor) -> Optional[Tensor]:
        """Return the (rows, s) vectors that sentences read from the source memory.

        Without a source memory, None is returned.

        Args:
            encoder_out: encoder output of the rows, with a memory cell of size s for each row.
            documents: (rows,) document number of each sentence.
        """
        if not encoder_out["source_cells"]:
            return None
        return recall_others(encoder_out["summary"][0], encoder_out["source_cells"][0], documents)

    @torch.no_grad()
    def target_cells(
        self,
        previous: Tensor,
        encoder_out: dict,
        source_readings: Optional[Tensor] = None,
        groupings: Optional[dict] = None,
    ) -> Tensor:
        """Compute the (rows, d) cells of the target memory from translations.

        The cell of a sentence is the last decoder state of its translation. As in the authors'
        code, the decoder gets the vectors read from the source memory, if any, but does not read
        the target memory.

        Args:
            previous: (rows, T) translations as decoder input.
            encoder_out: encoder output of the rows.
            source_readings: (rows, s) vectors read from the source memory, or None.
            groupings: groups of rows by the lengths of these translations; None for one group.
        """
        state = super().init_state(encoder_out)
        if source_readings is not None:
            state = state._replace(history=PerSentence(self._filled_up(source_readings)))
        stream = encoder_out["stream"]._replace(row_groups=groupings)
        targets, groups = self._in_groups(previous, state, stream)
        hidden = [self._forward_sequence(*group).hidden for group in groups]
        hidden = targets.join(hidden, previous.size(1))
        last = previous.ne(self.padding_idx).sum(dim=1) - 1
        return hidden[torch.arange(len(last), device=last.device), last]

    def _filled_up(self, readings: Tensor) -> Tensor:
        """Append zeros to source memory readings, where target memory readings would be."""
        return F.pad(readings, (0, self.readings_size - readings.size(1)))

    def recall(self, encoder_out: dict, documents: Tensor, cells=None, own: bool = True) -> Tensor:
        """Compute the vectors that the sentences read from their source and target memories.

        Args:
            encoder_out: encoder output of the rows.
            documents: (rows,) document number of each sentence; the sentences of a document are
                consecutive.
            cells: (rows, d) target memory cells. If None, zeros replace the vectors read from the
                target memory.
            own: whether a sentence's target memory cell is added to its target memory query.

        Returns:
            (rows, s + d) vectors read from the source memory and the target memory, concatenated;
            the part of a memory that the model lacks is left out.
        """
        summary, source = encoder_out["summary"][0], self.recall_source(encoder_out, documents)
        readings = summary.new_zeros(len(summary), 0) if source is None else source
        if self.target_query is None or cells is None:
            return self._filled_up(readings)
        queries = self.target_query(summary) + (cells if own else 0)
        return torch.cat([readings, recall_others(queries, cells, documents)], dim=-1)

    def init_state(self, encoder_out: dict) -> GRUState:
        """Return the state before the first token, with the memory readings of each sentence."""
        state = super().init_state(encoder_out)
        for values in encoder_out["readings"]:
            state = state._replace(history=PerSentence(values))
        return state

    def _context_vector(self, history, num_rows: int):
        if history is None or self.insertion != "context":
            return None
        return self.of_memory(history.for_rows(num_rows))

    def forward(
        self,
        prev_output_tokens,
        encoder_out=None,
        incremental_state=None,
        features_only=False,
        **_,
    ):
        """Return (rows, T, vocabulary) logits, or features if requested, and extra outputs.

        With Memory-to-Output, a projection of the memory readings is added to the logits.
        """
        output, extra = super().forward(
            prev_output_tokens, encoder_out, incremental_state, features_only
        )
        if self.insertion == "output" and not features_only:
            for values in encoder_out["readings"]:
                logits = self.of_memory(PerSentence(values).for_rows(len(prev_output_tokens)))
                if "positions" in extra:
                    rows = extra["positions"] // prev_output_tokens.size(1)
                    output = output + logits.index_select(0, rows)
                else:
                    output = output + logits.unsqueeze(1)
        return output, extra
