"""Model ensembles for fairseq's generator: shallow fusion, and decoding after a prefix.

Shallow fusion adds a document language model to the search.  The translation model may see only a
window or a document state, whereas the language model reads the previous target sentences
themselves.  (Yu et al., 2020, combine two such models by reranking.)

A prefix is target context that the decoders have read before the search.
"""

import contextlib
import math
from typing import AbstractSet, Iterable, List, Optional, Sequence

import torch
from fairseq.sequence_generator import EnsembleModel
from torch import Tensor, nn

from fairseq_docmt.data import pad_rows
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import decoder_prefix
from fairseq_docmt.generation.decoder_prefix import DecoderPrefix, GrowingDocuments
from fairseq_docmt.models.interface import can_grow


class ShallowFusion(nn.Module):
    """Document language model for shallow fusion, used as ``lm_model`` of fairseq's generator.

    At each step the generator adds ``--lm-weight`` times the language model's log-probabilities of
    the next word, given the previous target sentences of the document and the current sentence so
    far.  The language model reads a document as ``</s> s1 </s> s2 </s> …``, as in ``fairseq-docmt
    rerank``.  If the document exceeds the maximum positions of the language model, the earliest
    sentences are left out.

    Args:
        model: fairseq language model with a transformer decoder.
        dictionary: target dictionary of the translation models.  The language model must have the
            same words, but may have them in another order.
        symbols: indices in ``dictionary`` of special symbols, which the language model may lack.

    Raises:
        UserError: the decoder is not a transformer, or its dictionary lacks target words.
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
        """Prepare for the search of a batch of sentences.

        Args:
            before: previous target sentences of each row, without ``</s>``.
            marks: number of marks (language tag, ``<bod>``) at the beginning of each row's output,
                which the language model does not score.
        """
        self._before, self._marks = list(map(list, before)), list(marks)
        self._make_room(0)

    def _make_room(self, step: int) -> None:
        """Drop the earliest context sentences of rows that would exceed the maximum positions.

        Afterwards, there is room for ``step`` output tokens after the remaining context.
        """
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
        """Reorder the language model's state to follow the hypotheses that the beam has kept."""
        self._rows, self._tokens = self._rows[order], self._tokens[order]
        self._state = decoder_prefix.select_state(self.decoder, self._state, order)

    # ---- called by the generator ---------------------------------------------------------------

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the log-probabilities of the next word after each hypothesis.

        The language model does not score marks before the sentence (language tag, ``<bod>``), so
        all log-probabilities are 0 if the next token is a mark.  Otherwise, symbols that the
        language model lacks get minus infinity.

        Args:
            tokens: (hypotheses, n) hypotheses so far, with the first token of the decoder's input.

        Returns:
            (hypotheses, 1, target words) log-probabilities.
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
        """Return ``net_output`` unchanged, as :meth:`forward` already returns log-probabilities."""
        return net_output

    def _read(self, tokens: Tensor) -> Tensor:
        """Let the language model read the context and all hypotheses from the beginning.

        In the first step all hypotheses of a row are identical, so each row is read only once.

        Returns:
            (hypotheses, 1, channels) decoder output at the last token of each hypothesis.
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
        return decoder_prefix.extend(self.decoder, None, self.index[padded], None)

    def _read_next(self, words: Tensor) -> Tensor:
        """Read one more word of each hypothesis, using the stored state.

        Args:
            words: (hypotheses, 1) target dictionary indices of the words.

        Returns:
            (hypotheses, 1, channels) decoder output at these words.
        """
        self._tokens = torch.cat([self._tokens, self.index[words]], dim=1)
        with decoder_prefix.positions_by_row([self.decoder]):
            features, _ = self.decoder.extract_features(
                self._tokens, None, incremental_state=self._state
            )
        return features


class FusedEnsemble(EnsembleModel):
    """fairseq's ensemble with a language model whose state is also reordered in beam search.

    Args:
        models: models of the ensemble.
        lm_model: language model for shallow fusion, or None.
    """

    def __init__(self, models, lm_model: Optional[ShallowFusion] = None):
        super().__init__(models)
        self._lm_model = lm_model

    def reorder_incremental_state(self, incremental_states, new_order):
        """Reorder the states of all models, including the language model."""
        super().reorder_incremental_state(incremental_states, new_order)
        if self._lm_model is not None:
            self._lm_model.reorder(new_order)


#: number of prefix tokens scored at once, which limits the memory for word probabilities
TOKENS_AT_ONCE = 1024


class PrefixEnsemble(FusedEnsemble):
    """Ensemble whose decoders have read target context that fairseq's generator does not see.

    For the generator, the output begins with the current sentence.  Length limits, penalties,
    n-gram blocking and scores therefore do not include the target context.

    The decoders end the last sentence of a document or part with ``</s>``, and all others with
    ``<sep>``.  The generator knows only ``</s>``.  It therefore gets the probability of the symbol
    that should end the sentence as the probability of ``</s>``; the other symbol cannot be chosen.

    Args:
        models: models of the ensemble.
        eos, separator: indices of ``</s>`` and ``<sep>``.
        pad: index of padding.
        score_prefix: whether to compute the log-probability of the prefix as well, to rank
            hypotheses together with their target context (``--normalize-with-context``).
        lm_model: language model for shallow fusion, or None.
    """

    def __init__(
        self,
        models,
        eos: int,
        separator: int,
        pad: int,
        score_prefix: bool = False,
        lm_model=None,
    ):
        super().__init__(models, lm_model)
        self.eos, self.separator, self.pad = eos, separator, pad
        self.score_prefix = score_prefix
        #: (bsz,) log-probability of the prefix of each row, with ``score_prefix``
        self.prefix_scores: Optional[Tensor] = None
        self.encoder_outs: Optional[list] = None
        self.prefixes: List[DecoderPrefix] = []
        #: for each model the states of documents whose source grows, None if they are not reused
        self._documents: List[Optional[GrowingDocuments]] = []
        #: number of the growing document of each row of the latest batch
        self._growing: List[int] = []
        #: (bsz,) symbol that ends the sentence of each row
        self.ends: Optional[Tensor] = None
        #: for each hypothesis: tokens of its prefix, and symbol that ends it
        self._prefix_tokens: Optional[Tensor] = None
        self._ends: Optional[Tensor] = None

    @property
    def side_by_side(self) -> bool:
        """Whether rows with prefixes of different lengths can be decoded in one batch."""
        return all(decoder_prefix.prefills_in_parallel(m.decoder) for m in self.models)

    @property
    def grows(self) -> bool:
        """Whether any model reuses its states when a sentence is appended to a document."""
        # Stored prefixes have states but no scores of their tokens.
        reusable = self.side_by_side and not self.score_prefix
        return reusable and any(map(can_grow, self.models))

    def encode(self, net_input: dict) -> None:
        """Encode the source of a new batch, and forget the prefixes of the previous one."""
        self.encoder_outs = super().forward_encoder(net_input)
        self.prefixes, self.prefix_scores = [], None

    def begin_documents(self) -> None:
        """Forget all documents, so that the next :meth:`extend_documents` begins new ones."""
        self._documents = [GrowingDocuments(m) if can_grow(m) else None for m in self.models]
        self._growing = []

    def extend_documents(self, net_input: dict, tokens: Tensor, documents: List[int]) -> None:
        """Encode documents that grow from call to call, and read their target tokens so far.

        Each call gets the whole source and target so far.  Models that allow it reuse their states
        from the last call.

        Args:
            net_input: encoder input with all source sentences so far.
            tokens: (bsz, P) all target tokens so far, right-padded, at least one in each row.
            documents: number of the document of each row.  After the first call, documents may be
                left out because they have ended, but no new ones may begin.
        """
        before, self._growing = self._growing, documents
        known = [before.index(number) for number in documents] if before else None
        self.encoder_outs, self.prefixes = [], []
        for model, documents in zip(self.models, self._documents):
            if documents is None:
                encoder_out = model.encoder.forward_torchscript(net_input)
                prefix = decoder_prefix.extend(model.decoder, encoder_out, tokens, None)
            else:
                encoder_out = documents.encode(net_input["src_tokens"], known)
                prefix = documents.read(tokens, encoder_out)
            self.encoder_outs.append(encoder_out)
            self.prefixes.append(prefix)

    def read(self, new_tokens: Tensor) -> None:
        """Let the decoders read (bsz, n) right-padded tokens as a continuation of the prefixes.

        With ``score_prefix``, the log-probabilities of the tokens are added to ``prefix_scores``.
        """
        before = self.prefixes or [None] * self.models_size
        self.prefixes = [
            decoder_prefix.extend(model.decoder, encoder_out, new_tokens, prefix)
            for model, encoder_out, prefix in zip(self.models, self.encoder_outs, before)
        ]
        if self.score_prefix:
            scores = self._scores(new_tokens, before)
            known = self.prefix_scores
            self.prefix_scores = scores if known is None else known + scores

    def _scores(self, new_tokens: Tensor, before: List[Optional[DecoderPrefix]]) -> Tensor:
        """Return the (bsz,) log-probability of the tokens that each row has just read.

        The first token of the decoder's input, usually ``</s>``, is not scored.

        Args:
            new_tokens: (bsz, n) right-padded tokens that were read in the latest call.
            before: prefix of each model before this call; None for all models in the first call.
        """
        if before[0] is None:
            new_tokens = new_tokens[:, 1:]
        is_token = new_tokens.ne(self.pad)
        total = self.prefixes[0].features.new_zeros(len(new_tokens), dtype=torch.float)
        if not is_token.any():
            return total
        features = []
        for prefix, earlier in zip(self.prefixes, before):
            first = [] if earlier is None else [earlier.features]
            features.append(torch.cat([*first, prefix.new_features[:, :-1]], dim=1)[is_token])
        scores = [
            self._lprobs(parts).gather(1, tokens.unsqueeze(1)).squeeze(1)
            for tokens, *parts in zip(
                new_tokens[is_token].split(TOKENS_AT_ONCE),
                *(f.split(TOKENS_AT_ONCE) for f in features),
            )
        ]
        return total.index_add(0, is_token.nonzero()[:, 0], torch.cat(scores).float())

    def _lprobs(self, features: Sequence[Tensor], temperature: float = 1.0) -> Tensor:
        """Compute the next-word log-probabilities of the ensemble from n decoder outputs per model.

        Args:
            features: (n, channels) decoder outputs of each model.
            temperature: divisor of the logits.

        Returns:
            (n, vocabulary) log-probabilities.
        """
        lprobs = []
        for model, x in zip(self.models, features):
            logits = model.decoder.output_layer(x.unsqueeze(1)) / temperature
            lprobs.append(model.get_normalized_probs((logits, None), log_probs=True, sample=None))
        return torch.logsumexp(torch.stack(lprobs), 0)[:, -1] - math.log(self.models_size)

    def keep_rows(self, order: Tensor) -> None:
        """Keep only some rows of the encoder outputs and prefixes.

        Args:
            order: int64 indices of the rows to keep, in their new order.
        """
        self.encoder_outs = self.reorder_encoder_out(self.encoder_outs, order)
        self.prefixes = [
            decoder_prefix.take_rows(model.decoder, prefix, order)
            for model, prefix in zip(self.models, self.prefixes)
        ]
        if self.prefix_scores is not None:
            self.prefix_scores = self.prefix_scores[order]

    @contextlib.contextmanager
    def writing(self, inside: Sequence[bool]):
        """Return a context manager in which the generator searches for each row's next sentence.

        Args:
            inside: for each row, whether more sentences follow, so that the next sentence ends with
                ``<sep>`` and not with ``</s>``.
        """
        ends = [self.separator if i else self.eos for i in inside]
        self.ends = torch.tensor(ends, device=self.prefixes[0].tokens.device)
        with decoder_prefix.positions_by_row([m.decoder for m in self.models]):
            yield

    # ---- called by the generator ---------------------------------------------------------------

    def forward_encoder(self, net_input):
        """Return the encoder outputs stored by :meth:`encode` or :meth:`extend_documents`."""
        return self.encoder_outs

    def forward_decoder(self, tokens, encoder_outs, incremental_states, temperature: float = 1.0):
        """Predict the next token of each hypothesis, given the prefix and the hypothesis so far.

        Returns:
            (hypotheses, words) log-probabilities, in which ``</s>`` stands for the symbol that ends
            the sentence; and (hypotheses, source tokens) attention, or None if the decoders return
            no attention.
        """
        if tokens.size(1) == 1:
            lprobs, attention = self._first_step(tokens, incremental_states, temperature)
        else:
            all_tokens = torch.cat([self._prefix_tokens, tokens[:, 1:]], dim=1)
            lprobs, attention = super().forward_decoder(
                all_tokens, encoder_outs, incremental_states, temperature
            )
        end = lprobs.gather(1, self._ends.unsqueeze(1)).squeeze(1)
        lprobs[:, self.separator] = -math.inf
        lprobs[:, self.eos] = end
        return lprobs, attention

    def reorder_incremental_state(self, incremental_states, new_order):
        """Reorder decoder states and prefixes to follow the hypotheses that the beam has kept."""
        super().reorder_incremental_state(incremental_states, new_order)
        self._prefix_tokens = self._prefix_tokens.index_select(0, new_order)
        self._ends = self._ends.index_select(0, new_order)

    def _first_step(self, tokens, incremental_states, temperature):
        """Copy the states after the prefixes to all hypotheses, and predict their first token.

        Returns:
            (hypotheses, words) log-probabilities; and (hypotheses, source tokens) attention, or
            None if the decoders return no attention.
        """
        rows = len(self.prefixes[0].tokens)
        beams = torch.arange(rows, device=tokens.device).repeat_interleave(len(tokens) // rows)
        self._prefix_tokens = self.prefixes[0].tokens[beams]
        self._ends = self.ends[beams]
        all_attention = []
        for model, prefix, state in zip(self.models, self.prefixes, incremental_states):
            state.update(decoder_prefix.select_state(model.decoder, prefix.state, beams))
            if prefix.attention is not None:
                all_attention.append(prefix.attention[:, -1])
        lprobs = self._lprobs([prefix.features[:, 0] for prefix in self.prefixes], temperature)
        attention = None
        if all_attention:
            attention = torch.stack(all_attention).sum(0)[beams] / self.models_size
        return lprobs[beams], attention
