"""Ensemble whose decoders continue a prefix that the generator does not see.

For the stock generator the output begins with the current sentence, so that lengths, penalties,
n-gram blocking and scores do not include the target context.
"""

import contextlib
import math
from typing import List, Optional, Sequence

import torch
from torch import Tensor

from fairseq_docmt.generation import decoder_prefix
from fairseq_docmt.generation.decoder_prefix import DecoderPrefix
from fairseq_docmt.generation.growing_documents import GrowingDocuments
from fairseq_docmt.generation.shallow_fusion import FusedEnsemble
from fairseq_docmt.models.interface import can_grow

#: number of prefix tokens scored at once, which limits the memory for word probabilities
TOKENS_AT_ONCE = 1024


class PrefixEnsemble(FusedEnsemble):
    """Stock ensemble whose decoders have read a prefix.

    The last sentence of a unit ends with ``</s>``, all others with ``<sep>``.  The generator gets
    the probability of the right symbol as that of ``</s>``; the other symbol cannot be chosen.

    Args:
        models: models of the ensemble.
        eos, separator: indices of ``</s>`` and ``<sep>``.
        pad: index of padding.
        score_prefix: compute the log-probability of the prefix.
        lm_model: see the base class.
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
        """Whether states are reused for documents whose source grows."""
        # Stored prefixes have states but no scores of their tokens.
        reusable = self.side_by_side and not self.score_prefix
        return reusable and any(map(can_grow, self.models))

    def encode(self, net_input: dict) -> None:
        """Encode the source and forget all prefixes."""
        self.encoder_outs = super().forward_encoder(net_input)
        self.prefixes, self.prefix_scores = [], None

    def begin_documents(self) -> None:
        """Forget the documents of :meth:`extend_documents`; those of the next call are new."""
        self._documents = [GrowingDocuments(m) if can_grow(m) else None for m in self.models]
        self._growing = []

    def extend_documents(self, net_input: dict, tokens: Tensor, documents: List[int]) -> None:
        """Encode and read documents whose source and target grow from call to call.

        Args:
            net_input: encoder input.
            tokens: (bsz, P) target tokens so far, right-padded, at least one in each row.
            documents: number of the document of each row. After the first call, all of them have
                been in the call before.
        """
        before, self._growing = self._growing, documents
        known = [before.index(number) for number in documents] if before else None
        self.encoder_outs, self.prefixes = [], []
        for model, documents in zip(self.models, self._documents):
            if documents is None:
                encoder_out = model.encoder.forward_torchscript(net_input)
                prefix = decoder_prefix.read(model.decoder, encoder_out, tokens, None)
            else:
                encoder_out = documents.encode(net_input["src_tokens"], known)
                prefix = documents.read(tokens, encoder_out)
            self.encoder_outs.append(encoder_out)
            self.prefixes.append(prefix)

    def read(self, new_tokens: Tensor) -> None:
        """Append (bsz, n) right-padded tokens to the prefixes."""
        before = self.prefixes or [None] * self.models_size
        self.prefixes = [
            decoder_prefix.read(model.decoder, encoder_out, new_tokens, prefix)
            for model, encoder_out, prefix in zip(self.models, self.encoder_outs, before)
        ]
        if self.score_prefix:
            scores = self._scores(new_tokens, before)
            known = self.prefix_scores
            self.prefix_scores = scores if known is None else known + scores

    def _scores(self, new_tokens: Tensor, before: List[Optional[DecoderPrefix]]) -> Tensor:
        """Return the (bsz,) log-probability of the latest tokens, without the initial ``</s>``."""
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
        """Return (n, V) log-probabilities, given the features (n, C) of each model."""
        lprobs = []
        for model, x in zip(self.models, features):
            logits = model.decoder.output_layer(x.unsqueeze(1)) / temperature
            lprobs.append(model.get_normalized_probs((logits, None), log_probs=True, sample=None))
        return torch.logsumexp(torch.stack(lprobs), 0)[:, -1] - math.log(self.models_size)

    def keep_rows(self, order: Tensor) -> None:
        """Keep only the rows ``order`` (int64)."""
        self.encoder_outs = self.reorder_encoder_out(self.encoder_outs, order)
        self.prefixes = [
            decoder_prefix.take_rows(model.decoder, prefix, order)
            for model, prefix in zip(self.models, self.prefixes)
        ]
        if self.prefix_scores is not None:
            self.prefix_scores = self.prefix_scores[order]

    @contextlib.contextmanager
    def writing(self, inside: Sequence[bool]):
        """Prepare a search for the next sentence of each row, for the duration of the context.

        Args:
            inside: for each row whether other sentences of the unit follow.
        """
        ends = [self.separator if i else self.eos for i in inside]
        self.ends = torch.tensor(ends, device=self.prefixes[0].tokens.device)
        with decoder_prefix.positions_by_row([m.decoder for m in self.models]):
            yield

    # ---- called by the generator ---------------------------------------------------------------

    def forward_encoder(self, net_input):
        """Return the encoder outputs of :meth:`encode` or :meth:`extend_documents`."""
        return self.encoder_outs

    def forward_decoder(self, tokens, encoder_outs, incremental_states, temperature: float = 1.0):
        """Return log-probabilities and attention of the next tokens, given prefix and tokens."""
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
        """Reorder the states and the prefixes of the hypotheses."""
        super().reorder_incremental_state(incremental_states, new_order)
        self._prefix_tokens = self._prefix_tokens.index_select(0, new_order)
        self._ends = self._ends.index_select(0, new_order)

    def _first_step(self, tokens, incremental_states, temperature):
        """Return the probabilities after the prefix, the same for every beam of a row."""
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
