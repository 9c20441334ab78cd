"""Python interface to document translation."""

import os
from typing import List, Sequence

from fairseq import checkpoint_utils, hub_utils

from fairseq_docmt.errors import UserError


class DocumentTranslator:
    """Translator of documents, given as lists of sentences, with a checkpoint.

    It wraps the stock hub interface of fairseq; the output is that of ``fairseq-generate`` with the
    same options.

    Args:
        hub: stock hub interface with a model of a document task.
    """

    def __init__(self, hub: hub_utils.GeneratorHubInterface):
        self.hub = hub

    @classmethod
    def from_pretrained(cls, checkpoint: str, data: str = "", **options) -> "DocumentTranslator":
        """Load a checkpoint, or several joined by ``:`` as an ensemble.

        Args:
            checkpoint: path of the checkpoint file.
            data: directory with the dictionaries; by default the one of training.
            **options: options of the task and of text processing, such as ``decoding="window"``,
                ``tokenizer="moses"``, ``source_lang="de"``, ``bpe="subword_nmt"``,
                ``bpe_codes="codes"``.  With tokenizer and BPE, ``translate`` takes and returns raw
                text; otherwise text in the form of the input of ``fairseq-preprocess``.

        Raises:
            UserError: a file is missing.
        """
        paths = checkpoint.split(os.pathsep)
        for path in paths:
            if not os.path.isfile(path):
                raise UserError(f"checkpoint {path} not found")
        if not data:
            state = checkpoint_utils.load_checkpoint_to_cpu(paths[0])
            data = state["cfg"].task.data
        if not os.path.isdir(data):
            raise UserError(f"data directory {data} not found; give the one with the dictionaries")
        # fairseq resolves a relative path from the directory of the checkpoint.
        loaded = hub_utils.from_pretrained(
            os.path.dirname(os.path.abspath(paths[0])),
            os.pathsep.join(os.path.abspath(path) for path in paths),
            os.path.abspath(data),
            **options,
        )
        return cls(
            hub_utils.GeneratorHubInterface(loaded["args"], loaded["task"], loaded["models"])
        )

    def translate(
        self, documents: Sequence[Sequence[str]], beam: int = 5, **options
    ) -> List[List[str]]:
        """Translate documents.

        Args:
            documents: lists of sentences.
            beam: beam size.
            **options: generation options, such as ``lenpen=0.6`` or ``max_len_b=100``.

        Returns:
            For each document a list with as many sentences.

        Raises:
            UserError: a sentence is empty; blank lines are reserved for document boundaries.
        """
        lines = []
        for number, document in enumerate(documents, start=1):
            for position, sentence in enumerate(document, start=1):
                if not sentence.strip():
                    raise UserError(
                        f"document {number}, sentence {position} is empty; leave it out"
                    )
            lines.extend([*document, ""])
        if not lines:
            return []
        translated = self.hub.translate(lines, beam=beam, **options)
        results, start = [], 0
        for document in documents:
            results.append(translated[start : start + len(document)])
            start += len(document) + 1
        return results
