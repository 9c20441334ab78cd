"""Translates documents sentence by sentence, with what they carry (``--decoding stream``)."""

from typing import Dict, List

import torch
from fairseq.sequence_generator import EnsembleModel
from torch import Tensor, nn

from fairseq_docmt.data import pad_rows
from fairseq_docmt.data.carry import Carry, detached, joined, select_rows
from fairseq_docmt.generation.document_decoder import DocumentDecoder


class StreamEnsemble(EnsembleModel):
    """Models that find what each of their rows carries when the generator encodes a batch."""

    def __init__(self, models):
        super().__init__(models)
        self.streams: List[dict] = []
        self.encoder_outs: list = []

    def forward_encoder(self, net_input):
        self.encoder_outs = [
            model.encoder.forward_torchscript({**net_input, **stream})
            for model, stream in zip(self.models, self.streams)
        ]
        return self.encoder_outs

    def carry_on(self, previous_tokens: Tensor) -> List[Carry]:
        """What each model carries on after the decoder has read (rows, T) right-padded tokens."""
        found = []
        for model, encoder_out in zip(self.models, self.encoder_outs):
            if hasattr(model.decoder, "carry_on"):  # that has less to compute
                found.append(model.decoder.carry_on(previous_tokens, encoder_out))
                continue
            _, extra = model.decoder(previous_tokens, encoder_out=encoder_out, features_only=True)
            found.append(extra["carry"])
        return found


class _WithStream(nn.Module):
    """A model as a scorer sees it, with what its rows carry; keeps what they carry on."""

    def __init__(self, model, stream: dict):
        super().__init__()
        self.model, self.stream, self.carry = model, stream, None

    def forward(self, **net_input):
        output = self.model(**net_input, **self.stream)
        self.carry = output[1]["carry"]
        return output

    def get_normalized_probs(self, *args, **kwargs):
        return self.model.get_normalized_probs(*args, **kwargs)


class StreamDecoder(DocumentDecoder):
    """Decodes samples whose units are single sentences, in the order of their documents.

    What a document carries is kept until a sample comes without it, as documents are decoded side
    by side from beginning to end; only the last one typed in may rest for a while.
    """

    def __init__(self, task):
        super().__init__(task)
        self.carried: Dict[int, List[Carry]] = {}

    def forget(self) -> None:
        """Forget open documents."""
        super().forget()
        self.carried = {}

    def ensemble_of(self, models) -> StreamEnsemble:
        """Models for the generator."""
        return StreamEnsemble(models)

    def translate_units(self, generator, models, units) -> List[list]:
        """Search; memories go on with the best hypotheses."""

        def translate(wave):
            generator.model.streams = self._streams(models, wave)
            found = self._jointly(generator, models, wave)
            previous = [self._previous(unit, rows[0]) for unit, rows in zip(wave, found)]
            tokens = pad_rows(previous, self.task.target_dictionary).to(self._device)
            return found, generator.model.carry_on(tokens)

        return self._by_waves(units, translate)

    def _previous(self, unit, hypotheses) -> Tensor:
        """What the decoder is given to read, in training as here, of a translation."""
        mark = self.tgt_mark[: self._marks(unit)]
        return torch.cat([torch.tensor([self.eos]), mark, self._said(unit, 0, hypotheses)])

    def score_units(self, scorer, models, units) -> List[list]:
        """Scores of references; memories go on with these."""

        def score(wave):
            pairs = zip(models, self._streams(models, wave))
            streaming = [_WithStream(model, stream) for model, stream in pairs]
            found = super(StreamDecoder, self).score_units(scorer, streaming, wave)
            return found, [model.carry for model in streaming]

        return self._by_waves(units, score)

    def _by_waves(self, units, decode) -> List[list]:
        """Decode at most one sentence of each document at a time, the longest first."""
        results = [None] * len(units)
        for wave in _waves(units):
            wave.sort(key=lambda i: -len(self._source(units[i])))
            found, carries = decode([units[i] for i in wave])
            for i, rows in zip(wave, found):
                results[i] = rows
            self._keep([units[i]["document"] for i in wave], carries)
        return results

    def _streams(self, models, wave) -> List[dict]:
        """What the rows of each model begin with."""
        device = next(models[0].parameters()).device
        going_on = [u["position"] > 0 and u["document"] in self.carried for u in wave]
        stream = {"starts": torch.tensor([not on for on in going_on], device=device)}
        if not any(going_on):
            return [{**stream, "carry": None} for _ in models]
        known = [self.carried[u["document"]] for u, on in zip(wave, going_on) if on]
        # A row that begins a document takes the place of any other; the model does not look.
        row = torch.tensor(going_on, device=device).cumsum(0).sub(1).clamp(min=0)
        return [
            {**stream, "carry": select_rows(joined([carries[number] for carries in known]), row)}
            for number in range(len(models))
        ]

    def _keep(self, documents: List[int], carries: List[Carry]) -> None:
        latest = max([*documents, *self.carried])
        kept = {latest: self.carried[latest]} if latest in self.carried else {}
        for row, document in enumerate(documents):
            at = torch.tensor([row], device=self._device)
            kept[document] = [detached(select_rows(carry, at)) for carry in carries]
        self.carried = kept


def _waves(units) -> List[List[int]]:
    """Numbers of units, a new wave where a document comes again."""
    waves, seen = [], set()
    for number, unit in enumerate(units):
        if not waves or unit["document"] in seen:
            waves.append([])
            seen = set()
        waves[-1].append(number)
        seen.add(unit["document"])
    return waves
