"""Options of all document tasks."""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.tasks.translation import TranslationConfig
from omegaconf import II


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class DocumentTranslationConfig(TranslationConfig):
    decoding: Optional[ChoiceEnum(["window", "segment", "sequential"])] = field(
        default=None,
        metadata={
            "help": "how fairseq-generate and fairseq-interactive translate documents: window "
            "(each sentence from a window, the rest of the output dropped), segment (stretches of "
            "a document whole, split at <sep>), sequential (sentence by sentence after the model's "
            "own previous output); default: sequential for windows, segment for full documents"
        },
    )
    force_sentence_count: bool = field(
        default=False,
        metadata={
            "help": "let every hypothesis of several sentences have as many as its source from the "
            "first pass on, instead of decoding again only where the number came out wrong"
        },
    )
    wrong_sentence_count: ChoiceEnum(["repair", "keep"]) = field(
        default="repair",
        metadata={
            "help": "what becomes of an output with a wrong number of sentences: repair (it is "
            "decoded again with the right number), keep (its sentences are printed in order, "
            "missing ones at the end are empty, surplus ones become part of the last)"
        },
    )
    override_checkpoint_options: bool = field(
        default=False,
        metadata={
            "help": "decode with the task and the options given here, as --window-size, where they "
            "differ from those the checkpoint was trained with"
        },
    )
    gold_context: bool = field(
        default=False,
        metadata={
            "help": "translate each sentence after the references of those before it, not after "
            "own translations of them; for --decoding sequential and stream"
        },
    )
    normalize_with_context: bool = field(
        default=False,
        metadata={
            "help": "rank hypotheses by the score of the target context and the sentence together, "
            "normalised by the length of both, as the code of Wu et al. (2022) does, not by the "
            "sentence alone; for --decoding sequential"
        },
    )
    mark_document_start: bool = field(
        default=False,
        metadata={"help": "put <bod> before the first sentence of a document, on both sides"},
    )
    freeze_pretrained: bool = field(
        default=False,
        metadata={
            "help": "train only the parameters that the architecture adds to a pre-trained model"
        },
    )
    # Set in fairseq-generate and fairseq-interactive only, which have no other mark of their own.
    checkpoint_to_decode: Optional[str] = II("common_eval.path")
    max_batch_tokens: Optional[int] = II("dataset.max_tokens")
    language_model: Optional[str] = II("generation.lm_path")
