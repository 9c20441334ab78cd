"""Document language model inside the search (shallow fusion).

The translation model may read no more than a window or a document state; the language model reads
the previous target sentences themselves.  Yu et al. (2020) combine the two by reranking.
"""

import math
from typing import AbstractSet, Iterable, List, Optional, Sequence

import torch
from fairseq.sequence_generator import EnsembleModel
from torch import Tensor, nn

from fairseq_docmt.data import pad_rows
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import decoder_prefix


class ShallowFusion(nn.Module):
    """Document language model as the ``lm_model`` of the stock generator.

    At each step the generator adds ``--lm-weight`` times the log-probabilities of the next word
    after the previous target sentences of the document and the beginning of this one.  A document
    is the sequence ``</s> s1 </s> s2 </s> …``, as in
    :class:`~fairseq_docmt.scoring.document_lm.DocumentLanguageModel`.  While the model has too few
    positions, the earliest sentences are left out.

    Args:
        model: language model of fairseq with a transformer decoder.
        dictionary: target dictionary of the translation models, in the same or another order.
        symbols: indices of this dictionary that are no words of text.

    Raises:
        UserError: the model is of another kind, or words are not in its dictionary.
    """

    def __init__(self, model, dictionary, symbols: AbstractSet[int]):
        super().__init__()
        self.model, self.decoder, self.dictionary = model, model.decoder, dictionary
        if not decoder_prefix.prefills_in_parallel(self.decoder):
            raise UserError(
                "--lm-path needs a language model with a transformer decoder (--arch "
                f"transformer_lm); this one has a {type(self.decoder).__name__}"
            )
        known, device = self.decoder.dictionary, next(model.parameters()).device
        lacking = [word not in known.indices for word in dictionary.symbols]
        words = [w for i, w in enumerate(dictionary.symbols) if lacking[i] and i not in symbols]
        if words:
            raise UserError(
                f"the language model of --lm-path lacks {len(words)} words of the target "
                f"dictionary, such as {words[0]!r}; train it with this dictionary (--srcdict of "
                "fairseq-preprocess --only-source)"
            )
        #: index in the language model of each target word; that of ``<unk>`` for symbols
        index = torch.tensor(list(map(known.index, dictionary.symbols)), device=device)
        self.register_buffer("index", index)
        self.register_buffer("lacking", torch.tensor(lacking, device=device))
        #: number of tokens of the longest sentence that the model can score
        self.most_tokens = model.max_positions() - 1
        #: target sentences before each row of the batch
        self._before: List[List[Tensor]] = []
        #: number of tokens before the sentence of each row, such as ``<bod>``
        self._marks: List[int] = []
        #: number of output tokens of each row for which there are positions
        self._room: List[int] = []
        #: for each hypothesis: its row, the tokens read so far, and the state after them
        self._rows: Optional[Tensor] = None
        self._tokens: Optional[Tensor] = None
        self._state: decoder_prefix.IncrementalState = {}

    def begin(self, before: Sequence[Sequence[Tensor]], marks: Sequence[int]) -> None:
        """Prepare for the search of a batch.

        Args:
            before: previous target sentences of each row, without ``</s>``.
            marks: number of first output tokens of each row that are not scored.
        """
        self._before, self._marks = list(map(list, before)), list(marks)
        self._make_room(0)

    def _make_room(self, step: int) -> None:
        """Leave out the earliest sentences as far as there are too few positions."""
        self._room = []
        for row, marks in enumerate(self._marks):
            room, kept = self.most_tokens, 0
            for sentence in reversed(self._before[row]):
                if room - len(sentence) - 1 < step - marks:
                    break
                room -= len(sentence) + 1
                kept += 1
            self._before[row] = self._before[row][len(self._before[row]) - kept :]
            self._room.append(room + marks)

    def reorder(self, order: Tensor) -> None:
        """Reorder the hypotheses."""
        self._rows, self._tokens = self._rows[order], self._tokens[order]
        self._state = decoder_prefix.select_state(self.decoder, self._state, order)

    # ---- called by the generator ---------------------------------------------------------------

    def forward(self, tokens: Tensor) -> Tensor:
        """Return (n, 1, V) log-probabilities of the target word after (n, T) tokens.

        They are 0 for tokens before the sentence, else minus infinity for symbols.
        """
        step, marked = tokens.size(1) - 1, max(self._marks)
        if step > min(self._room):
            self._make_room(step)
            features = self._read(tokens)
        elif step <= marked:
            features = self._read(tokens)
        else:
            features = self._read_next(tokens[:, -1:])
        output = self.decoder.output_layer(features), None
        of_known = self.model.get_normalized_probs(output, log_probs=True)
        lprobs = of_known[..., self.index].masked_fill(self.lacking, -math.inf)
        if step < marked:
            marks = torch.tensor(self._marks, device=tokens.device)[self._rows]
            lprobs = lprobs.masked_fill((marks > step).view(-1, 1, 1), 0.0)
        return lprobs

    def get_normalized_probs(self, net_output: Tensor, log_probs: bool, sample=None) -> Tensor:
        """Return the log-probabilities of :meth:`forward`."""
        return net_output

    def _read(self, tokens: Tensor) -> Tensor:
        """Read the previous sentences and the hypotheses; return (n, 1, C) features.

        In the first step all hypotheses of a row are the same.
        """
        if tokens.size(1) == 1:
            rows, beams = len(self._before), len(tokens) // len(self._before)
            self._rows = torch.arange(rows, device=tokens.device).repeat_interleave(beams)
            read = self._read_texts(range(rows), tokens[::beams])
            self._tokens, features = read.tokens[self._rows], read.features[self._rows]
            self._state = decoder_prefix.select_state(self.decoder, read.state, self._rows)
            return features
        read = self._read_texts(self._rows.tolist(), tokens)
        self._tokens, self._state = read.tokens, read.state
        return read.features

    def _read_texts(self, rows: Iterable[int], tokens: Tensor) -> decoder_prefix.DecoderPrefix:
        end, texts = torch.tensor([self.dictionary.eos()]), []
        for row, written in zip(rows, tokens.cpu()):
            before = [part for sentence in self._before[row] for part in (sentence, end)]
            texts.append(torch.cat([end, *before, written[1 + self._marks[row] :]]))
        padded = pad_rows(texts, self.dictionary).to(tokens.device)
        return decoder_prefix.read(self.decoder, None, self.index[padded], None)

    def _read_next(self, words: Tensor) -> Tensor:
        """Read one more token of each hypothesis; return (n, 1, C) features."""
        self._tokens = torch.cat([self._tokens, self.index[words]], dim=1)
        with decoder_prefix.positions_by_row([self.decoder]):
            features, _ = self.decoder.extract_features(
                self._tokens, None, incremental_state=self._state
            )
        return features


class FusedEnsemble(EnsembleModel):
    """Stock ensemble beside which a language model may read the same hypotheses.

    Args:
        models: models of the ensemble.
        lm_model: language model of the generator, None for none.
    """

    def __init__(self, models, lm_model: Optional[ShallowFusion] = None):
        super().__init__(models)
        self._lm_model = lm_model

    def reorder_incremental_state(self, incremental_states, new_order):
        """Reorder the states, those of the language model too."""
        super().reorder_incremental_state(incremental_states, new_order)
        if self._lm_model is not None:
            self._lm_model.reorder(new_order)
