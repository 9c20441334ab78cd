"""Registry of the searches that each task offers as values of ``--decoding``."""

from dataclasses import field
from typing import Optional

from fairseq.dataclass import ChoiceEnum

from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.iterative import IterativeSearch
from fairseq_docmt.generation.joint import SegmentSearch, WindowSearch
from fairseq_docmt.generation.overlap import OverlapSearch
from fairseq_docmt.generation.search import DocumentSearch
from fairseq_docmt.generation.sequential import FullSourceSearch, SequentialSearch
from fairseq_docmt.generation.stream import StreamSearch

#: searches that each task can use (``--decoding``), the default first
SEARCHES = {
    "sliding_window_translation": (
        SequentialSearch,
        WindowSearch,
        SegmentSearch,
        OverlapSearch,
    ),
    "full_document_translation": (
        SegmentSearch,
        SequentialSearch,
        FullSourceSearch,
    ),
    "document_rows_translation": (IterativeSearch,),
    "sentence_stream_translation": (StreamSearch,),
}

#: type of ``--decoding``: that of another task is refused in one sentence
Decoding = Optional[
    ChoiceEnum(sorted({search.decoding for of_task in SEARCHES.values() for search in of_task}))
]


def decoding_option(task_name: str):
    """Return the dataclass field of the option ``--decoding`` for a task.

    Its help text describes the decoding methods that the task offers.
    """
    default, *others = SEARCHES[task_name]
    described = [f"{default.decoding} ({default.description}; default)"]
    described += [f"{search.decoding} ({search.description})" for search in others]
    return field(
        default=None,
        metadata={"help": f"decoding of documents by fairseq's commands: {', '.join(described)}"},
    )


def build_search(task, decoding: Optional[str] = None) -> DocumentSearch:
    """Build the search with which a task translates documents.

    Args:
        task: document task.
        decoding: value of ``--decoding``; None for the task's default.

    Raises:
        UserError: the task does not offer this decoding.
    """
    searches = {search.decoding: search for search in SEARCHES[task.task_name]}
    name = next(iter(searches)) if decoding is None else str(decoding)
    if name not in searches:
        raise UserError(
            f"--decoding {name} is not for --task {task.task_name}; choose from "
            f"{', '.join(searches)}"
        )
    return searches[name](task)
