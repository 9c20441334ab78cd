"""Tiny random models of fairseq's multilingual tasks, and translation by hand from them."""

import contextlib
import math
import re
from unittest import mock

import pytest
import tiny
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.data.multilingual.multilingual_data_manager import MultilingualDatasetManager
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

LANGUAGES = "xx_XX,tgt,yy_YY,src"
SIZES = [*tiny.MODEL[2:], "--share-all-embeddings", "--encoder-normalize-before"]
SIZES += ["--decoder-normalize-before"]
MBART = ["--arch", "mbart_base", *SIZES, "--layernorm-embedding", "--max-source-positions", "64"]
MBART += ["--max-target-positions", "64"]
MULTI = ["--task", "translation_multi_simple_epoch", "--lang-pairs", "src-tgt"]
MULTI += ["--langs", LANGUAGES, "--encoder-langtok", "src", "--decoder-langtok"]
M2M = ["--arch", "transformer", *SIZES]
#: symbols that NLLB has after its tags
DATA_SOURCES = ("<MINED_DATA>", "<MMT_BT_DATA>", "<SMT_BT_DATA>")
#: kind of tags -> class of fairseq's task, its options, model, task to give to fairseq-generate
STOCK = {
    "mbart25": (
        TranslationFromPretrainedBARTTask,
        ["--task", "translation_from_pretrained_bart", "--langs", LANGUAGES],
        MBART,
    ),
    "mbart50": (TranslationMultiSimpleEpochTask, [*MULTI, "--lang-tok-style", "mbart"], MBART),
    "m2m": (TranslationMultiSimpleEpochTask, MULTI, M2M),
    "nllb": (TranslationMultiSimpleEpochTask, [*MULTI, "--add-data-source-prefix-tags"], M2M),
}
POSITIONS = ["--max-source-positions", "64", "--max-target-positions", "64"]
WINDOW = ["--task", "sliding_window_translation", *POSITIONS]
DOCUMENT = ["--task", "full_document_translation", *POSITIONS]
#: the stock task of mBART chooses </s> and the tag after it separately, so it needs greedy search
SEARCH = ["--beam", "1", "--max-len-b", "12", "--max-len-a", "0"]


@contextlib.contextmanager
def repaired_stock_tasks():
    """Let fairseq's tasks do what they did for the published models.

    That of mBART calls its options ``args``, which later versions call ``cfg``.  That of NLLB, in a
    branch of fairseq, adds symbols for kinds of data after the tags.
    """
    task = TranslationMultiSimpleEpochTask
    prepare, add_args = MultilingualDatasetManager.prepare.__func__, task.add_args

    def prepare_with_symbols(cls, load_dictionary, args, **kwargs):
        languages, dictionaries, training = prepare(cls, load_dictionary, args, **kwargs)
        for words in dictionaries.values():
            for symbol in DATA_SOURCES if args.add_data_source_prefix_tags else ():
                words.add_symbol(symbol)
        return languages, dictionaries, training

    def add_args_of_branch(parser):
        add_args(parser)
        parser.add_argument("--add-data-source-prefix-tags", action="store_true")

    options = property(lambda task: task.cfg)
    prepare_with_symbols = classmethod(prepare_with_symbols)
    with mock.patch.object(TranslationFromPretrainedBARTTask, "args", options, create=True):
        with mock.patch.object(MultilingualDatasetManager, "prepare", prepare_with_symbols):
            with mock.patch.object(task, "add_args", staticmethod(add_args_of_branch)):
                yield


def searched(task_class, data, checkpoint, *options):
    """Hypotheses of ``fairseq-generate``, best first, by line of the test set."""
    found = {}
    original = task_class.inference_step

    def inference_step(self, generator, models, sample, *args, **kwargs):
        hypotheses = original(self, generator, models, sample, *args, **kwargs)
        found.update(zip(sample["id"].tolist(), hypotheses))
        return hypotheses

    with mock.patch.object(task_class, "inference_step", inference_step):
        output = tiny.generate(data, checkpoint, *SEARCH, *options)
    return [found[number] for number in sorted(found)], output


@contextlib.contextmanager
def without_new_symbols():
    """Take <sep> and <bod>, which stock models do not have, out of the softmax."""
    original = TransformerDecoderBase.output_layer

    def output_layer(self, features):
        return original(self, features).index_fill(-1, self.new, -float("inf"))

    def new(self):
        return torch.tensor([self.dictionary.index(symbol) for symbol in ("<sep>", "<bod>")])

    with mock.patch.object(TransformerDecoderBase, "output_layer", output_layer):
        with mock.patch.object(TransformerDecoderBase, "new", property(new), create=True):
            yield


#: kind -> tokens at the start and end of the source, first ones of the decoder, of these in the
#: target
AROUND = {
    "mbart25": ([], ["[src]"], ["[tgt]"], 0),
    "mbart50": (["[src]"], [], ["</s>", "[tgt]"], 1),
    "m2m": (["__src__"], [], ["</s>", "__tgt__"], 1),
}
FINETUNED = {
    "window": [*WINDOW, "--window-size", "3"],
    "document": [*DOCUMENT, "--max-document-tokens", "40"],
    "stream": ["--task", "sentence_stream_translation", "--batch-size", "2", *POSITIONS],
}
TEST = tiny.documents((1, 4, 2), 2)
LIMIT = 12
MEMORY = ("--arch", "memory_transformer", "--memory-size", "4")
NARROW = ("--arch", "window_attn_transformer", "--attention-window", "2", "--position", "absolute")
NARROW += ("--train-alignment", "sentence")


def own(arch, kind):
    """Command line of an architecture of this package with the sizes of the pre-trained model."""
    learned = ["--encoder-learned-pos", "--decoder-learned-pos", "--activation-fn", "gelu"]
    learned += ["--layernorm-embedding"]
    return [*arch, *SIZES, *(learned if kind != "m2m" else []), *POSITIONS]


class ByHand:
    """Greedy translation by a checkpoint that reads everything again for every word.

    Args:
        checkpoint: path of the checkpoint.
        kind: kind of tags.
        marked: whether documents begin with <bod>.
    """

    def __init__(self, checkpoint, kind, marked=False):
        (self.model,), _, self.task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)]
        )
        self.model.eval()
        self.words = self.task.target_dictionary
        before, after, first, _ = AROUND[kind]
        self.before, self.after, self.first = map(self.indices, (before, after, first))
        self.tags = AROUND[kind][3]
        self.bod = self.indices(["<bod>"] if marked else [])
        self.sep, self.eos = self.indices(["<sep>", "</s>"])
        #: neither tags nor <bod> are written within a translation
        never = r"__|\[|<mask>|<bod>"
        self.never = [n for n, word in enumerate(self.words.symbols) if re.match(never, word)]

    def indices(self, symbols):
        assert all(symbol in self.words for symbol in symbols)
        return [self.words.index(symbol) for symbol in symbols]

    def source(self, sentences, at_start=False):
        tokens = [self.indices(sentence.split()) for sentence in sentences]
        joined = [t for sentence in tokens for t in [*sentence, self.sep]][:-1]
        begin = self.bod if at_start else []
        return torch.tensor([[*self.before, *begin, *joined, self.eos, *self.after]])

    def begin(self, source):
        """<bod> of the target if the source has it."""
        return [token for token in self.bod if token in source]

    @torch.no_grad()
    def scores(self, source, tokens):
        previous = torch.tensor([[*self.first, *self.begin(source), *tokens]])
        output = self.model(source, torch.tensor([source.size(1)]), previous)
        scores = self.model.get_normalized_probs(output, log_probs=True)[0, -1]
        scores[[self.words.pad(), *self.never]] = -float("inf")
        return scores

    def sentence(self, sources, before, at_start=False):
        """The next sentence after the translations ``before``, as a list of words and scores."""
        source, context = self.source(sources, at_start), [t for s in before for t, _ in s]
        found = []
        while True:
            scores = self.scores(source, [*context, *(t for t, _ in found)])
            best = self.best(scores, self.sep, *([] if found else [self.eos]))
            if best == self.eos or len(found) == LIMIT:
                return [*found, (self.eos, float(scores[self.eos]))]
            found.append((best, float(scores[best])))

    def span(self, sources, count=0, at_start=False):
        """All sentences of a span; again with the right number of them if it is wrong."""
        source, tokens, found = self.source(sources, at_start), [], [[]]
        marks = self.tags + len(self.begin(source))
        limit = LIMIT * len(sources) - marks
        sizes = [len(sentence.split()) + 1 for sentence in sources[:count]]
        room = limit - count + 1
        shares = [room * size // sum(sizes) for size in sizes]
        while True:
            scores, done = self.scores(source, tokens), tokens.count(self.sep)
            best = self.best(scores, *([] if tokens else [self.eos]))
            if count:
                last = done == count - 1
                reserved = sum(share + 1 for share in shares[done + 1 :])
                ends, other = (self.eos, self.sep) if last else (self.sep, self.eos)
                best = self.best(scores, other, *([] if tokens else [self.eos]))
                best = ends if len(tokens) + reserved >= limit else best
            if len(tokens) == limit:
                best = self.eos
            found[-1].append((best, float(scores[best])))
            if best == self.eos:
                break
            tokens.append(best)
            if best == self.sep:
                found.append([])
        return found if len(found) == len(sources) else self.span(sources, len(sources), at_start)

    @torch.no_grad()
    def links(self, sources, targets, at_start=False):
        """For each target sentence the words of its source sentence that its words attend to most.

        Links to other sentences and to tags are left out.

        Args:
            sources, targets: sentences; the last target is not complete.
        """
        source, parts = self.source(sources, at_start), [self.indices(t.split()) for t in targets]
        joined = [t for part in parts for t in [*part, self.sep]][:-1]
        previous = torch.tensor([[*self.first, *self.begin(source), *joined]])
        output = self.model(source, torch.tensor([source.size(1)]), previous)
        attention = output[1]["attn"][0][0].masked_fill(source.eq(self.eos), -1)
        best = attention.argmax(dim=-1).tolist()[-1 - len(joined) :]
        found, begin = [], len(self.before) + len(self.begin(source))
        for sentence, part in zip(sources, parts):
            size = len(sentence.split())
            linked, best = best[: len(part)], best[len(part) + 1 :]
            places = [(s - begin, t) for t, s in enumerate(linked) if 0 <= s - begin < size]
            found.append(" ".join(f"{s}-{t}" for s, t in places))
            begin += size + 1
        return found

    @staticmethod
    def best(scores, *never):
        allowed = scores.clone()
        allowed[list(never)] = -float("inf")
        return int(allowed.argmax())


def check(data, checkpoint, expected, *options):
    """Compare words, and the scores of words and ends, with a list of these for each sentence."""
    output = tiny.generate(data / "bin", checkpoint, *SEARCH, *options)
    words = Dictionary.load(str(data / "bin" / "dict.tgt.txt"))
    texts, scores = tiny.lines_of(output), tiny.lines_of(output, "P")
    for row, wanted in zip(tiny.rows_of(TEST), expected):
        assert texts[row] == " ".join(words[token] for token, _ in wanted[:-1])
        logarithms = [score / math.log(2) for _, score in wanted]
        assert [float(s) for s in scores[row].split()] == pytest.approx(logarithms, abs=1e-3)
    assert len({scores[row] for row in tiny.rows_of(TEST)}) > 5
