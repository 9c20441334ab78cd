"""Language tags of fairseq's multilingual models: mBART, M2M-100 and NLLB."""

import difflib
import logging
import os
from typing import Dict, List, NamedTuple, Optional, Tuple

from fairseq.data import Dictionary
from fairseq.data.multilingual.multilingual_utils import get_lang_tok

from fairseq_docmt.checkpoint_file import CheckpointFile
from fairseq_docmt.data.sequence_format import (
    MBART25_TASKS,
    MULTILINGUAL_TASK,
    LanguageTags,
    insert_symbols,
)
from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.readers.files import read_text
from fairseq_docmt.symbols import DOCUMENT_SYMBOLS
from fairseq_docmt.tasks._stored_options import KEY as OPTIONS_KEY
from fairseq_docmt.tasks._stored_options import contradiction

logger = logging.getLogger(__name__)


#: name in the state of the task
KEY = "language_tags"


class Kind(NamedTuple):
    """How a family of multilingual models writes its language tags.

    Attributes:
        style: value of fairseq's ``--lang-tok-style``: with ``mbart``, tags look like ``[en_XX]``;
            with ``multilingual``, like ``__en__``.
        others: symbols that follow the tags in the dictionary of these models, such as ``<mask>``.
    """

    style: str
    others: Tuple[str, ...] = ()


KINDS: Dict[str, Kind] = {
    "mbart25": Kind("mbart", ("<mask>",)),
    "mbart50": Kind("mbart", ("<mask>",)),
    "m2m": Kind("multilingual"),
    "nllb": Kind("multilingual", ("<MINED_DATA>", "<MMT_BT_DATA>", "<SMT_BT_DATA>")),
}


class TagOptions(NamedTuple):
    """Language tags with which a model is trained or used; its checkpoints store them.

    Attributes:
        kind: value of ``--language-tags``, such as ``mbart50``.
        source, target: names of the source and target language in the tags, such as ``de_DE``.
        symbols: all tags and other symbols that are added to the dictionary, in its order.  They
            come after the words and before the document symbols.
        unknown: tags that the pre-trained model lacks.  They are the last ones of ``symbols``.
    """

    kind: str
    source: str
    target: str
    symbols: List[str]
    unknown: List[str]

    @property
    def new(self) -> Tuple[str, ...]:
        """Symbols that the pre-trained model lacks: tags in ``unknown``, and document symbols."""
        return (*self.unknown, *DOCUMENT_SYMBOLS)

    def record(self) -> dict:
        """Return these options as a dictionary to store in the checkpoints of a training run.

        Its entry ``unknown``, for tags that the model lacks, is empty, because training adds them.
        """
        return {**self._asdict(), "unknown": []}

    def extend(self, dictionary: Dictionary) -> None:
        """Add ``symbols`` to a dictionary, after its words and before the document symbols.

        Symbols that the dictionary already has keep their indices.
        """
        insert_symbols(dictionary, self.symbols)

    def tags(self, src_dict: Dictionary, tgt_dict: Dictionary) -> LanguageTags:
        """Return the token indices of the source and target tags, and where they are inserted.

        In mBART-25, the source tag follows the source, and the target tag is the first input of the
        decoder.  In the other models, each tag precedes its sequence.

        Raises:
            UserError: a dictionary has no tag for its language.
        """
        source = (self._index(src_dict, "source", self.source),)
        target = self._index(tgt_dict, "target", self.target)
        if self.kind == "mbart25":
            return LanguageTags(source_end=source, first=target)
        return LanguageTags(source_start=source, target_start=(target,))

    def _index(self, dictionary: Dictionary, side: str, language: str) -> int:
        tag = tag_of(self.kind, language)
        if tag in dictionary:
            return dictionary.index(tag)
        close = [s for s in self.symbols if s.strip("_[]").startswith(language[:2])]
        close = close or difflib.get_close_matches(tag, self.symbols, n=1)
        known = f"such as --{side}-tag {close[0].strip('_[]')}" if close else "of those it has"
        raise UserError(
            f"the pre-trained model has no {side} language {language}; give its name for the "
            f"language, {known}, or add the language with --add-language-tags in the training that "
            "starts from the pre-trained model"
        )


def tag_of(kind: str, language: str) -> str:
    """Return the tag of a language, such as ``[de_DE]``.

    Args:
        kind: value of ``--language-tags``.
        language: name of the language in the tag, such as ``de_DE``.
    """
    return get_lang_tok(language, KINDS[kind].style)


def chosen(cfg, file: Optional[CheckpointFile]) -> Optional[TagOptions]:
    """Return the language tags to train or decode with, or None for a model without tags.

    If the checkpoint stores tags, these are used.  Otherwise the kind of tags is given by
    ``--language-tags`` or recognised from the options of a multilingual fairseq checkpoint.

    Args:
        cfg: options of the task.
        file: checkpoint to start training from or to decode with; None for a new model.

    Raises:
        UserError: the options contradict the checkpoint; the languages of the checkpoint's tags are
            unknown; its tags are in unsupported positions; or tag options are given for a model
            without tags.
    """
    given = _given(cfg, "language_tags")
    if file is None:
        if given is None:
            return _none(cfg)
        return _completed(cfg, given, _languages(cfg, {}) or [], pretrained=False)
    if KEY in file.task_state:
        stored = adopted(cfg, file.task_state)
        _refuse_other_tags(cfg, stored)
        return stored
    if OPTIONS_KEY in file.task_state and given is not None:
        raise UserError(f"{file.path} was trained without language tags; leave --language-tags out")
    settings = file.settings.get("task", {})
    kind = given or _kind_of(file.task, settings)
    if kind is None:
        return _none(cfg)
    languages = _languages(cfg, settings)
    if languages is None:
        raise UserError(
            f"{file.path} does not name the languages of its tags; give them in their order with "
            "--tag-languages, separated by commas or as a file with one in each line"
        )
    return _completed(cfg, kind, languages, pretrained=True)


def adopted(cfg, task_state: dict) -> TagOptions:
    """Return the tags stored in a checkpoint, adapted to the languages and options of the task.

    If the task has other languages than the training, the tags change accordingly.
    Options that differ from the stored tags are refused unless ``--override-checkpoint-options`` is
    given.

    Args:
        cfg: options of the task.
        task_state: state of the task in the checkpoint, which must contain tags.

    Raises:
        UserError: the options contradict the checkpoint.
    """
    own, languages = TagOptions(**task_state[KEY]), task_state["training_text"]["languages"]
    if cfg.source_lang != languages[0]:
        own = own._replace(source=cfg.source_tag or cfg.source_lang)
    if cfg.target_lang != languages[1]:
        own = own._replace(target=cfg.target_tag or cfg.target_lang)
    names = {"language_tags": "kind", "source_tag": "source", "target_tag": "target"}
    for name, field in names.items():
        trained, given = getattr(own, field), _given(cfg, name)
        if given is None or given == trained:
            continue
        if not cfg.override_checkpoint_options:
            raise contradiction(name, given, trained)
        own = own._replace(**{field: given})
    return own


def _refuse_other_tags(cfg, stored: TagOptions) -> None:
    """Refuse options that would change the set of tags with which a checkpoint was trained.

    Raises:
        UserError: ``--tag-languages`` names other languages, or ``--add-language-tags`` is given
            for a language without a tag.
    """
    if cfg.tag_languages:
        given = [tag_of(stored.kind, each) for each in _given_languages(cfg.tag_languages)]
        if given != stored.symbols[: len(given)]:
            raise UserError(
                "--tag-languages names other languages than those with which the checkpoint was "
                "trained; leave it out"
            )
    tags = {tag_of(stored.kind, each) for each in (stored.source, stored.target)}
    if cfg.add_language_tags and not tags <= {*stored.symbols}:
        raise UserError(
            "--add-language-tags is for the training that starts from a pre-trained model; a model "
            "trained with tags takes no more languages"
        )


def of_dictionaries(options: TagOptions, src_dict, tgt_dict) -> LanguageTags:
    """Add all tags to both dictionaries, and return the indices of the source and target tags.

    The result also tells where in a sequence each tag stands (see :meth:`TagOptions.tags`).

    Raises:
        UserError: the source or target language is not among the languages of the tags.
    """
    for dictionary in (src_dict, tgt_dict):
        options.extend(dictionary)
    return options.tags(src_dict, tgt_dict)


def _none(cfg) -> None:
    for name in ("source_tag", "target_tag", "tag_languages", "add_language_tags"):
        if getattr(cfg, name):
            raise UserError(f"{flag(name)} needs --language-tags")
    return None


def _given(cfg, name: str) -> Optional[str]:
    value = getattr(cfg, name)
    return getattr(value, "value", value)


def _completed(cfg, kind: str, languages: List[str], pretrained: bool) -> TagOptions:
    source, target = cfg.source_tag or cfg.source_lang, cfg.target_tag or cfg.target_lang
    symbols = [*(tag_of(kind, language) for language in languages), *KINDS[kind].others]
    unknown = []
    if cfg.add_language_tags or not pretrained:
        tags = dict.fromkeys((tag_of(kind, source), tag_of(kind, target)))
        unknown = [tag for tag in tags if tag not in symbols]
    logger.info("language tags of %s: %s to %s", kind, source, target)
    return TagOptions(kind, source, target, symbols + unknown, unknown)


def _kind_of(task: str, settings: dict) -> Optional[str]:
    """Return the ``--language-tags`` value that suits a fairseq checkpoint; None if it has no tags.

    Args:
        task: name of the checkpoint's task.
        settings: options of the task.

    Raises:
        UserError: the model has tags, but not at the beginning of source and target.
    """
    if task in MBART25_TASKS:
        return "mbart25"
    if task != MULTILINGUAL_TASK:
        return None
    at_start = settings.get("encoder_langtok") == "src" and settings.get("decoder_langtok")
    if not at_start or settings.get("lang_tok_replacing_bos_eos"):
        raise UserError(
            "the pre-trained model does not have the tags of its languages at the beginning of "
            "source and target (--encoder-langtok src --decoder-langtok, without "
            "--lang-tok-replacing-bos-eos), which is not supported; to give it such tags anyway, "
            "add --language-tags"
        )
    if settings.get("lang_tok_style") == "mbart":
        return "mbart50"
    return "nllb" if settings.get("add_data_source_prefix_tags") else "m2m"


def _languages(cfg, settings: dict) -> Optional[List[str]]:
    """Return the languages whose tags the model has, in the order of its tags; None if unknown.

    They are read from ``--tag-languages`` or, if it is not given, from the options of a checkpoint.

    Args:
        cfg: options of the task.
        settings: options of the checkpoint's task; empty for a new model.

    Raises:
        UserError: ``--tag-languages`` has the languages of the checkpoint in another order, or is a
            file that cannot be used.
    """
    own = _own_languages(settings)
    if not cfg.tag_languages:
        return own
    given = _given_languages(cfg.tag_languages)
    if own and given != own and sorted(given) == sorted(own):
        raise UserError(
            f"--tag-languages has another order than the checkpoint ({','.join(own):.60}), which "
            "would give tags the embeddings of others; leave it out"
        )
    if own and given[: len(own)] != own:
        logger.warning(
            "--tag-languages has other languages than the checkpoint names: %s", ",".join(own)
        )
    return given


def _own_languages(settings: dict) -> Optional[List[str]]:
    languages, path = settings.get("langs"), settings.get("lang_dict")
    if languages:
        return languages.split(",") if isinstance(languages, str) else list(languages)
    if path and os.path.isfile(path):
        return _in_file(path)
    pairs = settings.get("lang_pairs")
    if not pairs or path:
        return None
    pairs = pairs.split(",") if isinstance(pairs, str) else pairs
    return sorted({language for pair in pairs for language in pair.split("-")})


def _given_languages(given: str) -> List[str]:
    """Return the languages of ``--tag-languages``, separated by commas or in a file.

    Raises:
        UserError: the file cannot be read, is not UTF-8 or names no languages.
    """
    if not {*given} & {".", os.sep} and not os.path.exists(given):
        return given.split(",")
    try:
        found = _in_file(given)
    except UserError as error:
        raise UserError(f"--tag-languages: {error}") from None
    if not found:
        raise UserError(f"--tag-languages: {given} has no languages; give a file with one per line")
    return found


def _in_file(path: str) -> List[str]:
    return read_text(path).replace(",", "\n").split()
