"""Translation of single sentences given the document state (``--decoding stream``)."""

import logging
from dataclasses import replace
from typing import Callable, Dict, List, Tuple

import torch
from torch import Tensor, nn

from fairseq_docmt.data.decoding_units import DecodingUnit
from fairseq_docmt.generation.ensembles import FusedEnsemble
from fairseq_docmt.generation.hypotheses import best_tokens
from fairseq_docmt.generation.joint import JointSearch
from fairseq_docmt.generation.search import NBestLists, device_of
from fairseq_docmt.models.interface import state_after
from fairseq_docmt.modules.document_state import detached, joined
from fairseq_docmt.modules.stream import DocumentState, select_documents

logger = logging.getLogger(__name__)


class StreamEnsemble(FusedEnsemble):
    """Ensemble whose encoders get the document state of each row.

    ``net_input`` contains ``streams``, a list with a dict for each model.  In this dict, ``starts``
    (bsz,) is True for rows that begin a document, and ``doc_state`` is the state of the rows after
    their previous sentences, or None if all rows begin a document.

    Args:
        models: models of the ensemble.
        lm_model: language model for shallow fusion, or None.
    """

    def __init__(self, models, lm_model=None):
        super().__init__(models, lm_model)
        self._encoder_outs: list = []

    def forward_encoder(self, net_input):
        """Return the encoder output of each model, computed with the document states."""
        rest = {key: value for key, value in net_input.items() if key != "streams"}
        self._encoder_outs = [
            model.encoder.forward_torchscript({**rest, **stream})
            for model, stream in zip(self.models, net_input["streams"])
        ]
        return self._encoder_outs

    def next_doc_state(self, previous_tokens: Tensor) -> List[DocumentState]:
        """Return each model's document state after the sentences that were encoded last.

        Args:
            previous_tokens: (rows, T) target sentences as decoder input, right-padded.
        """
        return [
            state_after(model, previous_tokens, encoder_out)
            for model, encoder_out in zip(self.models, self._encoder_outs)
        ]


class _WithStream(nn.Module):
    """Model wrapper for scoring that passes the document state to the model.

    After the forward pass, the attribute ``doc_state`` holds the state after the scored sentences.

    Args:
        model: model with a document state.
        stream: the model's entry in ``streams``, see :class:`StreamEnsemble`.
    """

    def __init__(self, model, stream: dict):
        super().__init__()
        self.model, self.stream, self.doc_state = model, stream, None

    def forward(self, **net_input):
        output = self.model(**net_input, **self.stream)
        self.doc_state = output[1]["doc_state"]
        return output

    def get_normalized_probs(self, *args, **kwargs):
        return self.model.get_normalized_probs(*args, **kwargs)


class StreamSearch(JointSearch):
    """Search that translates the sentences of a document in turn, given the document state.

    Documents are decoded side by side from beginning to end.  If a batch has no sentence of a
    document, the document has ended, and its state is dropped.  Only the state of the document with
    the highest number is kept longer, because interactive input may continue it.
    """

    decoding = "stream"
    description = "translate documents in parallel, each sentence given the document state"
    one_by_one = keeps_order = True
    window = 1

    def __init__(self, task):
        super().__init__(task)
        self.doc_states: Dict[int, List[DocumentState]] = {}
        #: translations of each open document, if a language model reads them
        self.translated: Dict[int, List[Tensor]] = {}
        #: whether it is still unknown if --gold-context has an effect
        self._checks_gold = task.cfg.gold_context

    def forget(self) -> None:
        """Forget the states of documents that have not ended, before another corpus or input."""
        self.doc_states, self.translated = {}, {}

    def ensemble_of(self, models, lm_model=None) -> StreamEnsemble:
        """Return an ensemble whose encoders get the document states.

        Args:
            models: models of the ensemble.
            lm_model: language model for shallow fusion, or None.
        """
        return StreamEnsemble(models, lm_model)

    def translate(self, generator, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Translate units, and update the document states after each batch of sentences.

        The states are computed from the best hypotheses or, with ``--gold-context``, from the
        references.
        """

        def translate(wave):
            streams = {"streams": self._streams(models, wave)}
            before = [self._translated(unit) for unit in wave]
            shown = [replace(unit, target_context=texts) for unit, texts in zip(wave, before)]
            found = self.translate_spans(generator, models, shown, streams)
            chosen = [self.context_tokens(unit, 0, rows[0]) for unit, rows in zip(wave, found)]
            if generator.lm_model is not None:
                for texts, tokens in zip(before, chosen):
                    texts.append(tokens)
            states = self._states_after(generator, wave, chosen)
            if self._checks_gold:
                own = [best_tokens(rows[0], self.pad) for rows in found]
                self._warn_if_equal(states, self._states_after(generator, wave, own), chosen, own)
            return found, states

        return self._by_waves(units, translate)

    def _states_after(self, generator, wave, chosen: List[Tensor]) -> List[DocumentState]:
        """Return each model's document state after the sentences of a batch.

        Args:
            generator: generator whose ensemble has just encoded these sentences.
            wave: units of the batch, one sentence each.
            chosen: target sentence of each unit, without ``</s>``.
        """
        previous = self.decoder_input(wave, chosen)
        return generator.model.next_doc_state(previous.to(device_of(generator.model.models)))

    def _warn_if_equal(self, states, of_own, chosen: List[Tensor], own: List[Tensor]) -> None:
        """Warn that ``--gold-context`` has no effect, if the document states ignore the target.

        The check is made only once, in the first batch with a translation that differs from its
        reference.

        Args:
            states: each model's document state after the references.
            of_own: each model's document state after the translations.
            chosen: references of the batch.
            own: translations of the batch.
        """
        if all(map(torch.equal, chosen, own)):
            return
        self._checks_gold = False
        pairs = [(a[name], b[name]) for a, b in zip(states, of_own) for name in a]
        if all(torch.equal(a, b) for a, b in pairs):
            logger.warning("--gold-context has no effect: this model reads no target context")

    def _translated(self, unit: DecodingUnit) -> List[Tensor]:
        """Return the list of earlier translations in a unit's document, which the caller extends.

        The list is empty for the first sentence of a document.
        """
        if unit.position == 0:
            self.translated[unit.document] = []
        return self.translated.setdefault(unit.document, [])

    def score(self, scorer, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Score the references of units, and update the document states with the references."""

        def score(wave):
            pairs = zip(models, self._streams(models, wave))
            streaming = [_WithStream(model, stream) for model, stream in pairs]
            found = self.score_spans(scorer, streaming, wave)
            return found, [model.doc_state for model in streaming]

        return self._by_waves(units, score)

    def _by_waves(
        self, units, decode: Callable[[list], Tuple[List[NBestLists], List[DocumentState]]]
    ) -> List[NBestLists]:
        """Decode units in batches with at most one sentence per document.

        The document states after a batch are kept for the next one.  Each batch is sorted by source
        length, the longest first.

        Args:
            units: units of one sentence each.
            decode: function that decodes a batch of units, and returns their results and each
                model's document state after them.

        Returns:
            Result of each unit.
        """
        results = [None] * len(units)
        for wave in _waves(units):
            wave.sort(key=lambda i: -len(self.joined_source(units[i])))
            found, states = decode([units[i] for i in wave])
            for i, rows in zip(wave, found):
                results[i] = rows
            self._keep([units[i].document for i in wave], states)
        return results

    def _streams(self, models, wave) -> List[dict]:
        """Return for each model the dict with which its encoder continues the documents of a batch.

        In the dict, ``starts`` (bsz,) is True for rows without an earlier document state, and
        ``doc_state`` is the document state of the rows.  It is arbitrary in rows where ``starts``
        is True, and None if ``starts`` is True in all rows.
        """
        device = device_of(models)
        continues = [u.position > 0 and u.document in self.doc_states for u in wave]
        stream = {"starts": torch.tensor([not on for on in continues], device=device)}
        if not any(continues):
            return [{**stream, "doc_state": None} for _ in models]
        open_states = [self.doc_states[u.document] for u, on in zip(wave, continues) if on]
        # Rows that begin a document get an arbitrary state, which the model ignores.
        row = torch.tensor(continues, device=device).cumsum(0).sub(1).clamp(min=0)
        of_models = [select_documents(joined(states), row) for states in zip(*open_states)]
        return [{**stream, "doc_state": doc_state} for doc_state in of_models]

    def _keep(self, documents: List[int], states: List[DocumentState]) -> None:
        latest = max([*documents, *self.doc_states])
        kept = {latest: self.doc_states[latest]} if latest in self.doc_states else {}
        for row, document in enumerate(documents):
            at = torch.tensor([row], device=next(iter(states[0].values())).device)
            kept[document] = [detached(select_documents(doc_state, at)) for doc_state in states]
        self.doc_states = kept
        self.translated = {d: texts for d, texts in self.translated.items() if d in kept}


def _waves(units) -> List[List[int]]:
    """Group units, in their order, so that no group has two units of the same document.

    Returns:
        Indices of the units of each group.
    """
    waves, seen = [], set()
    for number, unit in enumerate(units):
        if not waves or unit.document in seen:
            waves.append([])
            seen = set()
        waves[-1].append(number)
        seen.add(unit.document)
    return waves
