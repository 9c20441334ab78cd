"""Journal of a translation run: a file with the documents that are finished.

It lies beside the output until all documents are translated.  If the run is interrupted, the next
one continues from it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.translate.formats import Document, Hypothesis


def fingerprint(values: dict, documents: Iterable[Document]) -> str:
    """Return a checksum by which an interrupted run is recognised when it is repeated.

    Args:
        values: everything that the translations depend on, except the input.
        documents: the input.
    """
    digest = hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode())
    for document in documents:
        digest.update(json.dumps(document.segments).encode())
    return digest.hexdigest()


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:16].encode()


class Finished(NamedTuple):
    """A translated document.

    Attributes:
        translations: for each segment, its translations, the best first.
        notes: warnings for the user.
    """

    translations: List[List[Hypothesis]]
    notes: List[str]


class Journal:
    """Finished documents of a run, stored in a file such as ``out.txt.partial``.

    Each line of the file is a checksum and a JSON record.

    Args:
        path: path of the file.  If it exists, its documents are read and need not be translated
            again.
        run: checksum of the run, from :func:`fingerprint`.

    Attributes:
        found: index of a document -> the finished document.

    Raises:
        UserError: the file belongs to another run, is damaged or in use, or cannot be written.
    """

    def __init__(self, path: str, run: str):
        self._path = path
        self.found: Dict[int, Finished] = {}
        end = self._read(run) if os.path.exists(path) else 0
        folder = Path(os.path.abspath(path)).parent
        #: folders that did not exist before, the innermost first
        self._new_folders = [each for each in (folder, *folder.parents) if not os.path.exists(each)]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._stream = open(path, "r+b" if end else "ab")
        except OSError as error:
            self._remove_new_folders()
            raise UserError(f"{path} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._stream.close()
            raise UserError(f"{path} is in use; another run writes this output") from None
        self._stream.seek(end)
        self._stream.truncate()
        if not end:
            self._write({"run": run})

    def _read(self, run: str) -> int:
        """Read the finished documents, and return the file position after the last complete line.

        An incomplete last line, as a killed run may leave, is ignored.

        Raises:
            UserError: the file is damaged, or belongs to a run other than ``run``.
        """
        end = 0
        if not os.path.isfile(self._path):
            raise UserError(f"{self._path} is no file; remove it to begin anew")
        with open(self._path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.endswith(b"\n"):  # the run was killed while it wrote
                    break
                try:
                    digest, _, text = line.rstrip(b"\n").partition(b" ")
                    if digest != _checksum(text):
                        raise ValueError
                    record = json.loads(text)
                    is_of_run = bool(end) or record["run"] == run
                    if end:
                        found = [[Hypothesis(*each) for each in best] for best in record["found"]]
                        self.found[record["document"]] = Finished(found, record["notes"])
                except (ValueError, KeyError, TypeError, RecursionError):
                    raise UserError(
                        f"{self._path}: line {number} is damaged; remove the file to begin anew"
                    ) from None
                if not is_of_run:
                    raise UserError(
                        f"{self._path} holds the documents of a run with another model, other "
                        "options or other input; remove it to begin anew"
                    )
                end += len(line)
        return end

    def add(self, number: int, document: Finished) -> None:
        """Write a finished document to the file, so that it need not be translated again.

        Args:
            number: index of the document among all documents of the run.
            document: its translations.
        """
        self.found[number] = document
        self._write({"document": number, "found": document.translations, "notes": document.notes})

    def _write(self, record: dict) -> None:
        """Append a record to the file.

        Raises:
            UserError: the file cannot be written, for example because the disk is full.
        """
        try:
            text = json.dumps(record, ensure_ascii=False).encode()
            self._stream.write(_checksum(text) + b" " + text + b"\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise UserError(
                f"{self._path} cannot be written: {error.strerror}; run the same command again to "
                "continue"
            ) from None

    def _remove_new_folders(self) -> None:
        for folder in self._new_folders:
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()

    def close(self, keep: bool) -> None:
        """Close the file, and remove it unless it is still needed.

        Args:
            keep: True to keep the file for another run; a file without documents is removed anyway,
                with the folders that were made for it.
        """
        if not (keep and self.found):
            os.remove(self._path)
            self._remove_new_folders()
        # What could not be written would be written again.
        with contextlib.suppress(OSError):
            self._stream.close()
