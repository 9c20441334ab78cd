"""Translation of documents with a loaded model, in one process or several."""

import contextlib
import logging
import multiprocessing
import os
import random
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Iterable, Iterator, List, NamedTuple, Optional, Tuple

import fairseq_docmt
from fairseq_docmt._processes import end_with_parent
from fairseq_docmt.errors import UserError
from fairseq_docmt.translate.exported import ExportedTranslator, is_exported
from fairseq_docmt.translate.formats import Document, Hypothesis
from fairseq_docmt.translate.journal import Finished
from fairseq_docmt.translate.sentences import is_without_spaces, parts_of, splitter


class Settings(NamedTuple):
    """Model and options with which a process translates.

    Attributes:
        model: path of a checkpoint or an exported model, or paths of several checkpoints joined by
            ``:``.
        options: options of :meth:`DocumentTranslator.from_pretrained`.
        search: options of the search, such as ``beam`` and ``lenpen``.
        nbest: number of translations to return for a segment.
        split_sentences: language whose rules cut segments into sentences; None if each segment is a
            sentence.
        seed: seed of the random choices of a search; None if it makes none.
    """

    model: str
    options: dict
    search: dict
    nbest: int
    split_sentences: Optional[str]
    seed: Optional[int] = None


def _translator(settings: Settings):
    """Load the model that ``settings`` name, and return its translator.

    An exported model is loaded without fairseq and torch.
    """
    if is_exported(settings.model):
        return ExportedTranslator(settings.model, **settings.options)
    fairseq_docmt.register()
    from fairseq_docmt.generation import DocumentTranslator

    return DocumentTranslator.from_pretrained(settings.model, **settings.options)


class Engine:
    """Translator that cuts segments into sentences, and joins the translations of the sentences.

    Sentences that are too long for the model are cut into pieces.
    """

    def __init__(self, settings: Settings):
        self._nbest, self._search, self._seed = settings.nbest, settings.search, settings.seed
        language = settings.split_sentences
        self._split = splitter(language) if language else lambda segment: [segment]
        self._translator = _translator(settings)
        self._space = "" if is_without_spaces(self._translator.target_language) else " "

    def seed(self, number: int) -> None:
        """Let random choices depend on the seed and on a number, if the search makes any.

        Args:
            number: index in the run of the first document that is translated next.
        """
        if self._seed is not None:
            import torch

            # On a CPU, torch uses the low 32 bits alone.
            torch.manual_seed(random.Random(f"{self._seed} {number}").getrandbits(32))

    def translate(self, documents: List[Document]) -> List[Finished]:
        """Translate several documents together, and return their translations in the same order.

        Raises:
            UserError: a sentence cannot be translated; the message names its file and line.
        """
        parts = [[self._parts(*each) for each in zip(d.segments, d.places)] for d in documents]
        sentences = [[s for part in document for s in part.sentences] for document in parts]
        given = [document for document in sentences if document]
        search = {"beam": None, **self._search}
        found = iter(self._translator.translate_nbest(given, self._nbest, **search))
        return [
            self._finished(document, part, next(found) if some else [])
            for document, part, some in zip(documents, parts, sentences)
        ]

    def _parts(self, segment: str, place: str):
        parts = parts_of(segment, self._split, self._translator.fits)
        for sentence in parts.sentences:
            self._translator.tokens_of(sentence, place)  # raises if it cannot be translated
        return parts

    def _finished(self, document: Document, parts, found) -> Finished:
        assert len(found) == sum(len(part.sentences) for part in parts)
        rest, segments, notes = iter(found), [], []
        for part, place in zip(parts, document.places):
            best = [next(rest) for _ in part.sentences]
            segments.append(self._joined(best))
            if part.cut:
                notes.append(f"{place}: too long for the model; cut and put together again")
            if part.sentences and not segments[-1][0].text.strip():
                notes.append(f"{place}: the translation is empty")
        return Finished(segments, notes)

    def _joined(self, best: list) -> List[Hypothesis]:
        if len(best) == 1:
            return [Hypothesis(found.text, found.score) for found in best[0]]
        text = self._space.join(found[0].text for found in best)
        return [Hypothesis(text, sum(found[0].score for found in best))]


_engine: Optional[Engine] = None
#: what failed when this process loaded its model
_failure: Optional[Exception] = None


def _start(settings: Settings, threads: int) -> None:
    global _engine, _failure
    end_with_parent()
    logging.disable(logging.INFO)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # of torch and CTranslate2, which come later
    try:
        _engine = Engine(settings)
    except Exception as error:  # raised here, it would end the process, and the pool start another
        _failure = error


def _translate(some: List[Tuple[int, Document]]) -> List[Tuple[int, Finished]]:
    if _failure is not None:
        raise _failure
    numbers, documents = zip(*some)
    _engine.seed(numbers[0])
    return list(zip(numbers, _engine.translate(list(documents))))


def _results(futures: List[Future]) -> Iterator:
    """Yield the results, and forget them.

    Unlike ``ProcessPoolExecutor.map``, an interruption cancels nothing; the thread of a pool whose
    processes have ended would fail at what is cancelled.
    """
    futures = futures[::-1]
    while futures:
        yield futures.pop().result()


@contextlib.contextmanager
def running(settings: Settings, workers: int) -> Iterator:
    """Context manager that loads the model and provides a function for translating documents.

    The function takes the batches of :func:`batches` and returns an iterator with the results of
    each batch, in the same order: a list of (number, :class:`Finished`), one for each document.

    Args:
        settings: model and options.
        workers: number of processes, each with its own copy of the model; 1 to translate in the
            current process; 0 to load no model, when all documents are already translated.

    Raises:
        UserError: one of several processes was killed.
    """
    global _engine
    if workers == 0:
        yield iter
    elif workers == 1:
        _engine = Engine(settings)
        try:
            yield lambda batches: map(_translate, batches)
        finally:
            _engine = None  # its memory and threads are not needed any longer
    else:
        threads = max(1, (os.cpu_count() or 1) // workers)
        # Processes that are ended leave locks of libraries; Python removes these with a warning.
        os.environ.setdefault("PYTHONWARNINGS", "ignore")
        # A copy of this process would share the locks of its threads.
        context = multiprocessing.get_context("spawn")
        # Unlike multiprocessing.Pool, this pool notices when a process dies.
        with ProcessPoolExecutor(workers, context, _start, (settings, threads)) as pool:

            def translate(batches):
                try:
                    futures = [pool.submit(_translate, batch) for batch in batches]
                except BrokenPipeError:  # died before it had its settings
                    raise BrokenProcessPool from None
                return _results(futures)

            try:
                yield translate
            except BrokenProcessPool:
                raise UserError(
                    "a process of --workers was killed, perhaps because memory ran out; give fewer "
                    "--workers and run the same command again to continue"
                ) from None
            except BaseException:
                for process in multiprocessing.active_children():
                    process.terminate()
                raise


def batches(
    documents: Iterable[Tuple[int, Document]], most_documents: int, most_segments: int
) -> List[List[Tuple[int, Document]]]:
    """Group documents, in their order, into batches that are translated together.

    Args:
        documents: pairs of a number and a document.
        most_documents: maximum number of documents in a batch.
        most_segments: number of segments after which a batch takes no further document.

    Returns:
        Batches, as lists of these pairs.
    """
    found: List[list] = []
    size = 0
    for number, document in documents:
        if not found or len(found[-1]) == most_documents or size >= most_segments:
            found.append([])
            size = 0
        found[-1].append((number, document))
        size += len(document.segments)
    return found
