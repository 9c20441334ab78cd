"""Incremental state of decoder layers with softmax attention."""

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_docmt.modules.shared.beam_rows import BeamRows
from fairseq_docmt.modules.shared.full_attention import AttendedSource
from fairseq_docmt.modules.shared.recent_tokens import RecentTokens


class AttentionLayerState(NamedTuple):
    """Incremental state of a layer.

    Attributes:
        recent: target tokens that later ones attend to, None before the first.
        source: source for cross attention, shared by the beams of a sentence.
        beams: number of beams of each sentence.
        memory: what a further attention of the layer reads, shared by the beams too, with
            ``of_sentences(sentences)``: a memory, or encoded previous sentences; None for none.
    """

    recent: Optional[RecentTokens]
    source: AttendedSource
    beams: int
    memory: Any = None

    def reorder(self, rows: BeamRows) -> "AttentionLayerState":
        """Select sentences and reorder, repeat or drop their beams."""
        recent = None if self.recent is None else self.recent.reorder(rows)
        state = self._replace(recent=recent, beams=rows.beams)
        return state if rows.sentences is None else state._of_sentences(rows.sentences)

    def unshare_beams(self) -> "AttentionLayerState":
        """Return the state with each beam as a separate sentence."""
        owners = torch.arange(len(self.source.keys), device=self.source.keys.device)
        return self._of_sentences(owners.repeat_interleave(self.beams))._replace(beams=1)

    def _of_sentences(self, sentences: Tensor) -> "AttentionLayerState":
        memory = None if self.memory is None else self.memory.of_sentences(sentences)
        return self._replace(source=self.source.of_sentences(sentences), memory=memory)
