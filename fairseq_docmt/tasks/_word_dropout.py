"""Checks of the options that replace words of training examples by ``<unk>``."""

from fairseq_docmt.errors import UserError, flag


def check_options(cfg) -> None:
    """Check the options of word dropout on both sides.

    Raises:
        UserError: a value is impossible, or an option would have no effect.
    """
    check_probability(cfg, "word_dropout")
    epochs = cfg.word_dropout_epochs
    if epochs < 0:
        raise UserError(
            f"--word-dropout-epochs must not be negative, got {epochs}; 0 replaces words in all "
            "epochs"
        )
    if epochs > 0 and cfg.word_dropout == 0:
        raise UserError("--word-dropout-epochs is for --word-dropout; leave it out")


def check_probability(cfg, name: str) -> None:
    """Check the probability of replacing a word.

    Raises:
        UserError: it is not a probability, or all words would be replaced.
    """
    value = getattr(cfg, name)
    if not 0 <= value < 1:
        raise UserError(
            f"{flag(name)} must be a probability below 1, got {value}; 0 replaces no words"
        )
