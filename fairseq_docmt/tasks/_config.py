"""Common options of the document tasks."""

from dataclasses import dataclass, field
from typing import List, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.tasks.translation import TranslationConfig
from omegaconf import II


def stock(option: str, **metadata):
    """Return a dataclass field whose value is that of an option in another fairseq option group.

    Args:
        option: group and name of the option, such as ``common.amp``.
        **metadata: constraints for :func:`~fairseq_docmt.errors.check_metadata`, such as
            ``at_least``.
    """
    return field(default=II(option), metadata=metadata)


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class DocumentTranslationConfig(TranslationConfig):
    """Options of all document tasks, such as decoding, additional data and language tags."""

    force_sentence_count: bool = field(
        default=False,
        metadata={
            "help": "force every output to have as many sentences as its source in the first pass, "
            "instead of decoding again if the number is wrong"
        },
    )
    wrong_sentence_count: ChoiceEnum(["repair", "keep"]) = field(
        default="repair",
        metadata={
            "help": "what to do with an output that has a wrong number of sentences: repair "
            "(decode again with the right number), keep (print its sentences in order; missing "
            "ones at the end are empty, surplus ones are appended to the last)"
        },
    )
    override_checkpoint_options: bool = field(
        default=False,
        metadata={
            "help": "use the task and options given here (such as --window-size) even if the "
            "checkpoint has others"
        },
    )
    gold_context: bool = field(
        default=False,
        metadata={
            "help": "use the references of the previous sentences as target context, not the "
            "model's own translations; for --decoding sequential, sequential-full-source, stream"
        },
    )
    normalize_with_context: bool = field(
        default=False,
        metadata={
            "help": "rank hypotheses by the score of the target context and the sentence together, "
            "normalised by their total length, as the code of Wu et al. (2022) does; for "
            "--decoding sequential, sequential-full-source"
        },
    )
    mark_document_start: bool = field(
        default=False,
        metadata={"help": "put <bod> before the first sentence of a document, on both sides"},
    )
    sentence_data: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder of binarised sentence pairs with the same dictionaries; in each epoch, "
            "some pairs of its training set are drawn and mixed into training, each as a document "
            "of its own"
        },
    )
    sentence_ratio: float = field(
        default=1.0,
        metadata={
            "help": "ratio of target tokens of --sentence-data to target tokens of documents or "
            "windows in an epoch"
        },
    )
    word_dropout: float = field(
        default=0.0,
        metadata={
            "help": "in training, probability of replacing a word by <unk>, in the source and in "
            "the input of the decoder, not in what it has to predict (code of Bao et al., 2021)"
        },
    )
    word_dropout_epochs: int = field(
        default=0,
        metadata={
            "help": "number of epochs with --word-dropout; 0: all",
            "at_least": 0,
            "needs": "word_dropout",
        },
    )
    freeze_pretrained: bool = field(
        default=False,
        metadata={
            "help": "train only the parameters that the architecture adds to a pre-trained model"
        },
    )
    language_tags: Optional[ChoiceEnum(["mbart25", "mbart50", "m2m", "nllb"])] = field(
        default=None,
        metadata={
            "help": "language tags as the pre-trained models have them: mbart25 (at the end of the "
            "source, and as the decoder's first token), or mbart50, m2m and nllb (at the beginning "
            "of source and target); default: the tags of the checkpoint"
        },
    )
    source_tag: Optional[str] = field(
        default=None,
        metadata={
            "help": "source language in the tag, such as de_DE (default: that of --source-lang)"
        },
    )
    target_tag: Optional[str] = field(
        default=None,
        metadata={
            "help": "target language in the tag, such as en_XX (default: that of --target-lang)"
        },
    )
    tag_languages: Optional[str] = field(
        default=None,
        metadata={
            "help": "languages of the pre-trained model in the order of their tags, separated by "
            "commas, or a file with one per line; default: those that its checkpoint names"
        },
    )
    add_language_tags: bool = field(
        default=False,
        metadata={"help": "add the tags of languages that the pre-trained model does not have"},
    )
    extend_positions: Optional[ChoiceEnum(["repeat", "interpolate"])] = field(
        default=None,
        metadata={
            "help": "start from a model with fewer learned positions than --max-source-positions "
            "or --max-target-positions: repeat them from the first one on, or interpolate between "
            "them"
        },
    )
    # Set only in fairseq-generate and fairseq-interactive, so it distinguishes them from training.
    checkpoint_to_decode: Optional[str] = II("common_eval.path")
    max_batch_tokens: Optional[int] = stock("dataset.max_tokens", at_least=1)
    max_valid_tokens: Optional[int] = stock("dataset.max_tokens_valid", at_least=1)
    batch_size: Optional[int] = stock("dataset.batch_size", at_least=1)
    valid_subset: str = II("dataset.valid_subset")
    disable_validation: bool = II("dataset.disable_validation")
    num_shards: int = II("dataset.num_shards")
    language_model: Optional[str] = II("generation.lm_path")
    replace_unk: Optional[str] = II("generation.replace_unk")
    input_file: str = II("interactive.input")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")
    checkpoint_shards: int = II("checkpoint.checkpoint_shard_count")
    restore_file: str = II("checkpoint.restore_file")
    continue_once: Optional[str] = II("checkpoint.continue_once")
    save_dir: str = II("checkpoint.save_dir")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    reset_optimizer: bool = II("checkpoint.reset_optimizer")
    reset_lr_scheduler: bool = II("checkpoint.reset_lr_scheduler")
    reset_meters: bool = II("checkpoint.reset_meters")
    reset_dataloader: bool = II("checkpoint.reset_dataloader")
    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")
    maximize_best_checkpoint_metric: bool = II("checkpoint.maximize_best_checkpoint_metric")
    store_ema: bool = II("ema.store_ema")
    max_update: int = II("optimization.max_update")
    stop_time_hours: float = II("optimization.stop_time_hours")
    # Options of fairseq that are out of range, fail or have no effect; see _option_checks.py.
    update_freq: List[int] = stock("optimization.update_freq", at_least=1)
    lr: List[float] = stock("optimization.lr", at_least=0)
    required_batch_size_multiple: int = stock("dataset.required_batch_size_multiple", at_least=1)
    required_seq_len_multiple: int = stock("dataset.required_seq_len_multiple", at_least=1)
    log_interval: int = stock("common.log_interval", at_least=1)
    validate_interval: int = stock("dataset.validate_interval", at_least=1)
    validate_interval_updates: int = stock("dataset.validate_interval_updates", at_least=0)
    save_interval: int = stock("checkpoint.save_interval", at_least=1)
    save_interval_updates: int = stock("checkpoint.save_interval_updates", at_least=0)
    num_workers: int = stock("dataset.num_workers", at_least=0)
    data_buffer_size: int = stock("dataset.data_buffer_size", at_least=0)
    fp16: bool = II("common.fp16")
    fp16_no_flatten_grads: bool = II("common.fp16_no_flatten_grads")
    post_process: Optional[str] = II("common_eval.post_process")
    model_overrides: str = II("common_eval.model_overrides")
    results_path: Optional[str] = II("common_eval.results_path")
    gen_subset: str = II("dataset.gen_subset")
    shard_id: int = II("dataset.shard_id")
    bf16: bool = II("common.bf16")
    amp: bool = II("common.amp")
    tpu: bool = II("common.tpu")
    seed: int = II("common.seed")
    no_progress_bar: bool = II("common.no_progress_bar")


@dataclass
class JoinedTranslationConfig(DocumentTranslationConfig):
    """Options of all tasks that join several sentences into one sequence."""

    restart_positions: bool = field(
        default=False,
        metadata={
            "help": "count the positions of tokens anew in each sentence, like the sentence-level "
            "model that training starts from; for transformers whose attention knows the sentences "
            "(g_transformer)"
        },
    )
