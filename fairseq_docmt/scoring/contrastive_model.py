"""Scores of contrastive candidates by a model: log-probabilities of references, forced.

Each candidate is the reference of a small document, scored as ``fairseq-generate
--score-reference`` scores any document; so every task and architecture that this command knows can
be tested, each with as much of the context as it sees in its own decoding.
"""

import contextlib
import copy
import logging
from argparse import Namespace
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq.data import LanguagePairDataset, encoders
from omegaconf import open_dict
from torch import Tensor, nn
from tqdm import tqdm

from fairseq_docmt.data import DecodingUnits, DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.contrastive_items import Item

logger = logging.getLogger(__name__)

#: label smoothing of the loss by which Voita et al. (2019) rank candidates
VOITA_SMOOTHING = 0.1

Sentences = Tuple[Tensor, ...]


class Protocol(NamedTuple):
    """How a candidate is scored.

    Attributes:
        whole_window: mean over all target tokens that the model sees, else sum over those of the
            last sentence; the symbol that ends a sentence is one of its tokens.
        smoothing: label smoothing of the log-probabilities.
        merge: candidates with the same text are one.
    """

    whole_window: bool = False
    smoothing: float = 0.0
    merge: bool = True


PROTOCOLS = {
    "plain": Protocol(),
    "voita": Protocol(smoothing=VOITA_SMOOTHING),
    "wu": Protocol(whole_window=True),
    "contrapro": Protocol(merge=False),
}


class Scored(NamedTuple):
    """Scores of items.

    Attributes:
        scores: for each item one of each candidate, higher is better.
        unknown: share of the target tokens that are not in the dictionary.
    """

    scores: List[List[float]]
    unknown: float


def text_encoder(language: str, tokenizer: Optional[str], codes: Optional[str]) -> Callable:
    """What is to be done to a sentence of one language before its words are looked up.

    Args:
        language: for the Moses tokenizer.
        tokenizer: name of a tokenizer of fairseq, None for text that is tokenized.
        codes: file of subword-nmt, None for text that has its subwords.
    """
    sides = {"source_lang": language, "target_lang": language}
    cut = encoders.build_tokenizer(Namespace(tokenizer=tokenizer, **sides)) if tokenizer else None
    bpe = encoders.build_bpe(Namespace(bpe="subword_nmt", bpe_codes=codes)) if codes else None

    def encode(sentence: str) -> str:
        sentence = cut.encode(sentence) if cut else sentence
        return bpe.encode(sentence) if bpe else sentence

    return encode


class ContrastiveScorer:
    """Scores candidates with the models of a stock hub interface.

    Args:
        hub: interface of fairseq around one or more models, as that of
            :class:`~fairseq_docmt.generation.DocumentTranslator`.
        encode_source, encode_target: from a sentence of a test set to one as it was before
            ``fairseq-preprocess``.
        max_tokens: padded source tokens of a batch.
        batch_size: candidates of a batch, None for no limit.
    """

    def __init__(
        self,
        hub,
        encode_source: Callable[[str], str] = str,
        encode_target: Callable[[str], str] = str,
        max_tokens: int = 4096,
        batch_size: Optional[int] = None,
    ):
        self.hub, self.task = hub, hub.task
        self.encode_source, self.encode_target = encode_source, encode_target
        self.max_tokens, self.batch_size = max_tokens, batch_size
        self._known: Dict[Tuple[str, bool], Tensor] = {}

    def score(self, items: Sequence[Item], protocol: Protocol = PROTOCOLS["plain"]) -> Scored:
        """Score all candidates of all items.

        Raises:
            UserError: a candidate does not fit the model, or its score has no meaning.
        """
        if protocol.smoothing and len(self.hub.models) > 1:
            raise UserError("--protocol voita is for one model and not for ensembles")
        pairs = [
            (self._encoded(item.source, True), self._encoded(candidate, False))
            for item in items
            for candidate in item.candidates
        ]
        # Equal tokens get the very same score, whatever batch they would have been in.
        keys = [tuple(tuple(s.tolist()) for side in pair for s in side) for pair in pairs]
        distinct = dict(zip(keys, pairs))
        found = dict(zip(distinct, self._score_documents(list(distinct.values()), protocol)))
        scores = iter(found[key] for key in keys)
        return Scored(
            [[next(scores) for _ in item.candidates] for item in items],
            self._unknown([target for _, target in pairs]),
        )

    def _encoded(self, sentences: Sequence[str], is_source: bool) -> Sentences:
        for text in sentences:
            if (text, is_source) not in self._known:
                cut = (self.encode_source if is_source else self.encode_target)(text)
                words = self.task.source_dictionary if is_source else self.task.target_dictionary
                tokens = words.encode_line(cut, add_if_not_exist=False).long()
                self._known[text, is_source] = tokens
        return tuple(self._known[text, is_source] for text in sentences)

    def _unknown(self, targets: Sequence[Sentences]) -> float:
        tokens = torch.cat([target[-1] for target in targets])
        return float(tokens.eq(self.task.target_dictionary.unk()).double().mean())

    def _score_documents(self, pairs: Sequence[Tuple[Sentences, Sentences]], protocol: Protocol):
        """Scores of documents, each a pair of source and target sentences."""
        if hasattr(self.task, "decoding"):
            batches = self._document_batches(pairs)
        else:
            batches = self._sentence_batches(pairs)
        models = list(self.hub.models)
        if protocol.smoothing:
            models = [_Smoothed(model, protocol.smoothing) for model in models]
        generation = copy.deepcopy(self.hub.cfg.generation)
        with open_dict(generation):
            generation.score_reference = True
        scorer = self.task.build_generator(list(self.hub.models), generation)
        sentences: List[List[Tensor]] = [[] for _ in pairs]
        with _any_order(self.task):
            for sample, documents in batches:
                rows = self.task.inference_step(scorer, models, sample)
                for document, hypotheses in zip(documents, rows):
                    sentences[document].append(hypotheses[0]["positional_scores"].cpu().double())
        if protocol.whole_window:
            return [float(torch.cat(found).mean()) for found in sentences]
        return [float(found[-1].sum()) for found in sentences]

    def _document_batches(self, pairs):
        """Samples of units and the document of each of their rows, in the order of decoding."""
        task = self.task
        starts = np.concatenate([[0], np.cumsum([len(source) for source, _ in pairs])])
        index = DocumentIndex(np.arange(starts[-1]), starts)
        src = [sentence for source, _ in pairs for sentence in source]
        tgt = [sentence for _, target in pairs for sentence in target]
        sizes = np.array([len(sentence) for sentence in src])
        spans = task.decoding_spans(index, sizes)
        if not task.keeps_order():
            spans = spans[np.isin(spans[:, 1], starts)]  # the others say nothing of the last
            self._report_cut(spans, np.diff(starts))
        self._check_lengths(spans, src, tgt, int(task.options["mark_document_start"]))
        options = {"left_pad_source": task.cfg.left_pad_source}
        units = DecodingUnits(src, tgt, sizes, task.source_dictionary, index, spans, **options)
        batches = units.batches(self.max_tokens, self.batch_size, task.keeps_order(), shards=1)
        task.decoder.begin(len(units), forget=True)
        for batch in tqdm(batches, unit="batch", disable=None):
            sample = units.collater([units[unit] for unit in batch])
            yield sample, index.document[sample["id"].numpy()].tolist()

    def _sentence_batches(self, pairs):
        """Samples of last sentences and the document of each row, for sentence-level tasks."""
        src, tgt = [source[-1] for source, _ in pairs], [target[-1] for _, target in pairs]
        sizes = [np.array([len(sentence) for sentence in side]) for side in (src, tgt)]
        numbers = np.arange(len(pairs))
        self._check_lengths(np.stack([numbers, numbers + 1], axis=1), src, tgt)
        words = (self.task.source_dictionary, self.task.target_dictionary)
        options = {"left_pad_source": self.task.cfg.left_pad_source, "shuffle": False}
        rows = LanguagePairDataset(src, sizes[0], words[0], tgt, sizes[1], words[1], **options)
        batches = rows.batch_by_size(
            np.argsort(-sizes[0], kind="stable"), self.max_tokens, self.batch_size
        )
        device = next(self.hub.models[0].parameters()).device
        for batch in tqdm(batches, unit="batch", disable=None):
            sample = rows.collater([rows[row] for row in batch])
            documents = sample["id"].tolist()
            sample["net_input"] = {k: v.to(device) for k, v in sample["net_input"].items()}
            sample["target"] = sample["target"].to(device)
            yield sample, documents

    def _report_cut(self, spans, lengths) -> None:
        window = self.task.window_to_decode()
        wanted = np.minimum(lengths, window) if window else lengths
        cut = int((spans[:, 1] - spans[:, 0] < wanted).sum())
        if cut > 0:
            logger.warning(
                "%d of %d candidates are longer than the model's limit and lose the beginning of "
                "their context; give them less with --context",
                cut,
                len(lengths),
            )

    def _check_lengths(self, spans, src, tgt, marks: int = 0) -> None:
        limits = self.hub.max_positions
        for side, sentences, most in zip(("source", "target"), (src, tgt), limits):
            ends = np.concatenate([[0], np.cumsum([len(s) for s in sentences])])
            lengths = ends[spans[:, 1]] - ends[spans[:, 0]] + marks
            if lengths.max() > most:
                raise UserError(
                    f"a candidate has {lengths.max()} {side} tokens with its context, but the "
                    f"model's positions end at {most}; give it less with --context"
                )


@contextlib.contextmanager
def _any_order(task):
    """Windows in the decoding that needs no order; references are scored alike in all of them."""
    before = getattr(task, "decoding", None)
    if "window" in getattr(task, "decodings", ()):
        task.decoding = "window"
    try:
        yield
    finally:
        if before is not None:
            task.decoding = before


class _Smoothed(nn.Module):
    """A model whose log-probability of a token is less its label-smoothed loss.

    That of Voita et al. (2019), ``LossXent`` of their code: the cross-entropy with a distribution
    that gives ``1 - smoothing`` to the token and the rest to all others alike, less the entropy of
    that distribution.
    """

    def __init__(self, model, smoothing: float):
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def __getattr__(self, name):
        # Memories of documents are filled by the parts of the model.
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("model"), name)

    def forward(self, **net_input):
        return self.model(**net_input)

    def get_normalized_probs(self, net_output, log_probs, sample=None):
        scores = self.model.get_normalized_probs(net_output, log_probs, sample).float()
        words = scores.size(-1)
        own, other = 1 - self.smoothing, self.smoothing / (words - 1)
        entropy = -(own * np.log(own) + (words - 1) * other * np.log(other))
        return (own - other) * scores + other * scores.sum(-1, keepdim=True) + entropy
