"""Log-probabilities of sentences given their context, by a fairseq document language model."""

import os
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq import checkpoint_utils, utils
from torch import Tensor

from fairseq_docmt.checkpoint_file import read_language_model, read_words
from fairseq_docmt.data.text_checks import Symbols, tokens_of
from fairseq_docmt.errors import UserError

#: Previous sentences of the document, and the sentence to score.
Pair = Tuple[Tuple[str, ...], str]


class Row(NamedTuple):
    """Input of the language model: a sentence to score, preceded by its context.

    Attributes:
        tokens: (tokens,) token ids of all sentences, each with its end symbol.
        size: number of tokens of the last sentence, the one to score.
    """

    tokens: Tensor
    size: int


class DocumentLanguageModel:
    """Language model that scores sentences given the previous sentences of their document.

    The model reads a document as the sequence ``</s> s1 </s> s2 </s> …``.  This is how fairseq's
    task ``language_modeling`` builds it with ``--sample-break-mode complete_doc``, from text with
    blank lines between documents.  If context and sentence together are too long for the model, the
    earliest sentences are dropped.  Scores are cached.

    Args:
        model: fairseq language model, in evaluation mode.
        dictionary: dictionary of the model.
        encode: function that preprocesses a sentence in the same way as the training text of the
            model (tokenization, truecasing, BPE).
        context: maximum number of previous sentences to read; None for all.
        max_tokens: maximum number of tokens in a batch, with padding.
    """

    def __init__(
        self,
        model,
        dictionary,
        encode: Callable[[str], str] = str,
        context: Optional[int] = None,
        max_tokens: int = 8192,
    ):
        self.model, self.dictionary, self.encode = model, dictionary, encode
        self.context, self.max_tokens = context, max_tokens
        self._positions = model.max_positions()
        self._symbols = Symbols.of(dictionary, ())
        self._known: Dict[str, Tensor] = {}
        self._scores: Dict[Pair, float] = {}

    @classmethod
    def load(cls, path: str, data: str = "", **options) -> "DocumentLanguageModel":
        """Load a language model from a checkpoint, onto the GPU if there is one.

        Args:
            path: fairseq checkpoint.
            data: folder with the model's ``dict.txt``; "" for the folder used in training.
            **options: arguments ``encode``, ``context`` and ``max_tokens`` of the constructor.

        Raises:
            UserError: the dictionary is missing, damaged or of another size than the model, or the
                checkpoint is missing, damaged or not of a language model, or its training has
                diverged.
        """
        file = read_language_model(path)
        file.refuse_diverged()
        # Training may have read several folders; the dictionary is in the first.
        folder = utils.split_paths(data or file.settings["task"]["data"])[0]
        words = os.path.join(folder, "dict.txt")
        fix = "give the folder that the language model was trained on as --language-model-data"
        if not os.path.isfile(words):
            raise UserError(f"{words} not found; {fix}")
        read_words(words, file, fix)
        models, _, task = checkpoint_utils.load_model_ensemble_and_task(
            [path], arg_overrides={"data": folder}
        )
        model = models[0].eval()
        return cls(model.cuda() if torch.cuda.is_available() else model, task.dictionary, **options)

    def score(self, pairs: Sequence[Pair]) -> List[float]:
        """Compute the log-probability of each sentence, with its end symbol, given its context.

        Args:
            pairs: (previous sentences of the document, sentence) for each sentence to score.

        Returns:
            Natural log-probability of each scored sentence.

        Raises:
            UserError: a sentence alone has more tokens than the model has positions.
        """
        pairs = [self._shortened(before, sentence) for before, sentence in pairs]
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._scores]
        rows = [self._row(pair) for pair in new]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].tokens))
        for batch in self._batches(order, rows):
            for i, found in zip(batch, self._sums([rows[i] for i in batch])):
                self._scores[new[i]] = found
        return [self._scores[pair] for pair in pairs]

    def unknown(self, sentences: Sequence[str]) -> float:
        """Return the proportion of the sentences' tokens that are not in the dictionary."""
        tokens = torch.cat([self._encoded(sentence) for sentence in sentences])
        return float(tokens.eq(self.dictionary.unk()).double().mean())

    def count(self, sentences: Sequence[str]) -> int:
        """Return the number of tokens of sentences, with their end symbols."""
        return sum(len(self._encoded(sentence)) for sentence in sentences)

    def _encoded(self, sentence: str) -> Tensor:
        if sentence not in self._known:
            self._known[sentence] = tokens_of(sentence, self.encode, self._symbols)
        return self._known[sentence]

    def _shortened(self, before: Sequence[str], sentence: str) -> Pair:
        """Shorten the context of a sentence to what the language model can read.

        Args:
            before: previous sentences of the document.
            sentence: the sentence to score.

        Returns:
            The last of the previous sentences, at most ``context`` and only as many as fit the
            model; and the sentence to score.

        Raises:
            UserError: the sentence alone has more tokens than the model has positions.
        """
        left = self._positions - len(self._encoded(sentence))
        if left < 0:
            raise UserError(
                f"a candidate has {self._positions - left} tokens, but the language model has only "
                f"{self._positions} positions: {sentence[:60]!r}"
            )
        kept: List[str] = []
        for earlier in reversed(before):
            left -= len(self._encoded(earlier))
            if left < 0 or len(kept) == self.context:
                break
            kept.append(earlier)
        return tuple(reversed(kept)), sentence

    def _row(self, pair: Pair) -> Row:
        before, sentence = pair
        last = self._encoded(sentence)
        return Row(torch.cat([*map(self._encoded, before), last]), len(last))

    def _batches(self, order: List[int], rows: List[Row]) -> List[List[int]]:
        """Divide inputs into batches of at most ``max_tokens`` tokens, including padding.

        Args:
            order: indices of the inputs by increasing length.
            rows: the inputs.

        Returns:
            Indices of the inputs of each batch.
        """
        batches: List[List[int]] = []
        for i in order:
            if not batches or (len(batches[-1]) + 1) * len(rows[i].tokens) > self.max_tokens:
                batches.append([])
            batches[-1].append(i)
        return batches

    @torch.no_grad()
    def _sums(self, rows: List[Row]) -> List[float]:
        """Compute the natural log-probability of each sentence to score, for a batch of inputs."""
        ends = [len(row.tokens) for row in rows]
        target = torch.full((len(rows), max(ends)), self.dictionary.pad())
        scored = torch.zeros_like(target, dtype=torch.bool)
        for place, (row, end) in enumerate(zip(rows, ends)):
            target[place, :end] = row.tokens
            scored[place, end - row.size : end] = True
        device = next(self.model.parameters()).device
        target, scored = target.to(device), scored.to(device)
        first = torch.full_like(target[:, :1], self.dictionary.eos())
        decoder = self.model.decoder
        features, extra = decoder.extract_features(
            torch.cat([first, target[:, :-1]], dim=1), encoder_out=None
        )
        # The output layer is most of the work, so it is computed for the scored tokens only.
        output = decoder.output_layer(features[scored].unsqueeze(0)), extra
        of_words = self.model.get_normalized_probs(output, log_probs=True)[0]
        of_tokens = of_words.gather(1, target[scored].unsqueeze(1)).squeeze(1).double().cpu()
        return [float(own.sum()) for own in of_tokens.split([row.size for row in rows])]
