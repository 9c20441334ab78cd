"""Functions that hide log messages and warnings which are of no use to users."""

import contextlib
import logging
import os
import sys
import warnings

#: commands of fairseq that log their whole configuration, and in training the whole model
COMMANDS = ("train", "generate", "interactive", "validate")

#: beginnings of warnings that every run gives and that no user can do anything about
KNOWN_WARNINGS = (
    r"hydra\.experimental\.\w+\(\) is no longer experimental",
    r"\s*The version_base parameter is not specified",
    r"In 'config': Usage of deprecated keyword in package header",
    r"\s*'config' is validated against ConfigStore schema",
    r"\s*The strict flag in the compose API is deprecated",
    r"'pin_memory' argument is set as true but no accelerator is found",
    r"`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated",
    r"Support for mismatched key_padding_mask and attn_mask is deprecated",
    r"`torch\.jit\.script` is deprecated",
)


@contextlib.contextmanager
def quietly():
    """Suppress log messages up to level INFO in the ``with`` block, e.g. while a model loads."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def keep_logging_settings():
    """Restore the level and handlers of the root logger after the ``with`` block."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


#: beginnings of fairseq's advice about BLEU, which :func:`scored_text` replaces
BLEU_ADVICE = ("BLEU score is being computed by", "If you are using BPE on the target side")


def scored_text(cfg) -> str:
    """Return a message that tells the user what kind of text ``fairseq-generate`` scores, and how.

    Depending on the options, the scored text is detokenized, tokenized or split into subwords.

    Args:
        cfg: configuration of the command.
    """

    def name(key: str):
        return getattr(cfg.get(key), "_name", None)

    scorer = name("scoring") or "bleu"
    joined = cfg.common_eval.get("post_process") is not None
    by_text = scorer != "bleu"  # the others get strings
    if name("tokenizer") and (joined or by_text):
        text = "detokenized text"
    elif joined or name("bpe") and by_text:
        text = "words of the training text, with subwords joined but not detokenized"
    else:
        text = "tokens of the training text, with its subwords"
    how = f"by --scoring {scorer}" if by_text else "split at spaces, with n-grams up to 4"
    advice = "for scores to report use fairseq-docmt metrics"
    score = "BLEU" if "bleu" in scorer else "The score"
    return f"{score} is of {text}, {how}; {advice}"


class _WithoutDumps(logging.Filter):
    """Log filter that drops fairseq's long listings of the configuration and the model.

    The filter is active only if the task is a document task of this package.  In
    ``fairseq-generate``, it also replaces fairseq's remarks on the computation of BLEU with
    the message from :func:`scored_text`.
    """

    def __init__(self):
        super().__init__()
        self.cfg = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for listings of the configuration or the model and for advice about BLEU.

        All other records are kept.  The message of ``fairseq-generate`` that begins with
        "Translated" is extended by the text that :func:`scored_text` returns.
        """
        kind = type(record.msg).__name__
        if kind == "DictConfig":
            from fairseq.tasks import TASK_REGISTRY

            # The options of some tasks of fairseq are a Namespace.
            name = getattr(record.msg.get("task"), "_name", None)
            task = TASK_REGISTRY.get(name)
            of_documents = getattr(task, "__module__", "").startswith("fairseq_docmt.")
            self.cfg = record.msg if of_documents else None
            return not of_documents
        if self.cfg is None:
            return True
        if record.name == "fairseq_cli.generate" and isinstance(record.msg, str):
            if record.msg.startswith("Translated "):
                record.msg = f"{record.msg}\n{scored_text(self.cfg)}"
            return not record.msg.startswith(BLEU_ADVICE)
        return not hasattr(record.msg, "named_parameters")


def hide_known_messages() -> None:
    """Hide known warnings and, in document tasks, the configuration and the model in fairseq's log.

    Nothing is hidden if ``LOGLEVEL``, an environment variable of fairseq, is ``DEBUG``.  Warnings
    are not hidden either if the user has set filters (``python -W``, ``PYTHONWARNINGS``).
    """
    if os.environ.get("LOGLEVEL", "").upper() == "DEBUG":
        return
    for command in COMMANDS:
        logger = logging.getLogger(f"fairseq_cli.{command}")
        if not any(type(known).__name__ == _WithoutDumps.__name__ for known in logger.filters):
            logger.addFilter(_WithoutDumps())
    if not sys.warnoptions:
        for message in KNOWN_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
