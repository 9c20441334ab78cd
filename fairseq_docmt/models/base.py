"""Base classes of the models: options, construction and loading of checkpoints.

fairseq's transformer keeps its options in nested dataclasses (``encoder.layers``), but reads them
by the names of their flags (``encoder_layers``).  Here all options of a model are in one dataclass,
named like their flags.  Both ``fairseq-train`` and ``fairseq-hydra-train`` read it.  If an
architecture function sets the default of an option, the default in the dataclass is None.
"""

import logging
from argparse import Namespace
from dataclasses import Field, field, fields, make_dataclass
from typing import Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

from fairseq.dataclass import FairseqDataclass
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerConfig, TransformerModel, TransformerModelBase
from omegaconf import OmegaConf

from fairseq_docmt.data.sequence_format import separator_index
from fairseq_docmt.errors import UserError, check_metadata, flag

logger = logging.getLogger(__name__)

#: options with the same flag in tasks and models
POSITIONS = ("max_source_positions", "max_target_positions")
#: options that fairseq splits at commas, although it declares them as lists
COMMA_SEPARATED = ("encoder_layers_to_keep", "decoder_layers_to_keep")
#: options of fairseq's transformer that change its attention, projections, residual connections or
#: kinds of layers
UNSUPPORTED = (
    "no_cross_attention",
    "cross_self_attention",
    "scale_attn",
    "scale_heads",
    "scale_fc",
    "scale_resids",
    "quant_noise_pq",
    "encoder_xformers_att_config",
    "decoder_xformers_att_config",
    "base_layers",
)
#: options that recompute layers in the backward pass; the first implies the second
CHECKPOINTING = ("offload_activations", "checkpoint_activations")
#: options that drop whole layers in training
LAYERDROP = ("encoder_layerdrop", "decoder_layerdrop")
#: options that remove layers, for systems that add parameters to layers by their number
PRUNING = ("encoder_layers_to_keep", "decoder_layers_to_keep")
#: ``param_group`` (an attribute read by fairseq) of parameters that a pre-trained model lacks
NEW = "new"


# ---- options -------------------------------------------------------------------------------------


def options_dataclass(architecture: Callable, *configs: type) -> type:
    """Merge the options of several dataclasses into one dataclass.

    Its fields are named after the options of the command line.

    Args:
        architecture: function that sets missing options of a model.  The options that
            this function sets, and ``max_source_positions`` and ``max_target_positions``, are None
            by default in the new dataclass.
        configs: dataclasses to merge.  An option of a nested dataclass gets as its prefix the name
            of the field that holds that dataclass.

    Returns:
        The new dataclass.
    """
    decided = Namespace()
    architecture(decided)
    found = {}
    for config in configs:
        found.update({option: (kind, old) for option, kind, old in options_of(config)})
    made: List[tuple] = []
    for option, (kind, old) in found.items():
        if hasattr(decided, option) or option in POSITIONS:
            made.append((option, Optional[kind], field(default=None, metadata=old.metadata)))
        else:
            made.append((option, kind, field(default=old.default, metadata=old.metadata)))
    name = architecture.__name__
    namespace = {"__module__": __name__, "__doc__": f"All options of ``{name}``."}
    return make_dataclass(f"{name}_options", made, bases=(FairseqDataclass,), namespace=namespace)


def options_of(config: type, prefix: str = "") -> Iterator[Tuple[str, type, Field]]:
    """Yield (name, type, field) for each option of a dataclass and of dataclasses nested in it.

    ``prefix`` is prepended to each name.  Options that only repeat the value of another option and
    have no flag are left out.
    """
    for option in fields(config):
        flag = prefix + option.name
        if isinstance(option.type, type) and issubclass(option.type, FairseqDataclass):
            yield from options_of(option.type, f"{flag}_")
        elif option.name != "_name" and not _follows_another(option):
            yield flag, str if flag in COMMA_SEPARATED else option.type, option


def _follows_another(option: Field) -> bool:
    """Return whether an option has no flag and always has the value of another option."""
    return str(option.default).startswith("${") and "help" not in option.metadata


def set_defaults(args, config: type) -> None:
    """Set options that are missing in ``args`` to the defaults of a dataclass, in place."""
    for option in fields(config):
        if option.name != "_name":
            setattr(args, option.name, getattr(args, option.name, option.default))


def with_defaults(cfg, architecture: Callable) -> Namespace:
    """Return the options of a model, with missing ones set by its architecture function.

    Args:
        cfg: options of the model; None for those that are not given.  ``_name`` may name a variant
            of the architecture, such as ``rnnsearch_512``, which then sets its options first.
        architecture: function that sets missing options.
    """
    if OmegaConf.is_config(cfg):
        values = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    else:
        values = vars(cfg)
    args = Namespace(**{option: value for option, value in values.items() if value is not None})
    variant = ARCH_CONFIG_REGISTRY.get(getattr(args, "_name", None))
    if variant is not None:
        variant(args)
    architecture(args)
    return args


def name_of(cfg) -> str:
    """Return the name of the architecture (``--arch``) in the configuration of a model."""
    return getattr(cfg, "_name", None) or getattr(cfg, "arch", None)


def completed(cls: type, cfg) -> Namespace:
    """Return the checked options of a model, with missing ones set by its architecture function.

    Args:
        cls: class of the model.
        cfg: options of the model; None for those that are not given.

    Raises:
        UserError: the value of an option is too small, or an option is given without another one
            that it needs.
    """
    args = with_defaults(cfg, cls.architecture)
    check_metadata(getattr(cls, "__dataclass"), lambda name: getattr(args, name, None))  # noqa: B009
    return args


# ---- models --------------------------------------------------------------------------------------


class ExtendedModel:
    """Mixin for models that add options and parameters to a model of fairseq or of this package.

    Attributes:
        architecture: function that sets missing options of the model.
        new_parameters: substrings that identify the added parameters and buffers by their names.
            They keep their initialisation when a checkpoint without them is loaded, and
            ``--optimizer grouped_adam`` gives the parameters their own learning rate.
        unused_with: name of an option -> the value that switches the added parameters off.
        needed_task: name of the task that gives the model its context; None if any task does.
        needs_several_sentences: whether the added parts have no effect on single sentences.
    """

    architecture: Callable
    new_parameters: Sequence[str] = ()
    unused_with: Mapping[str, object] = {}
    needed_task: Optional[str] = None
    needs_several_sentences = False

    @classmethod
    def check_options(cls, args) -> None:
        """Check the options of a model after missing ones have been set to their defaults.

        Some options may be converted in place.  The base class accepts all options.

        Raises:
            UserError: an option is invalid or not supported.
        """

    @classmethod
    def build_model(cls, args, task):
        """Build a model, and mark its added parameters for ``--optimizer grouped_adam``.

        A warning is logged if the context options have no effect, because one of fairseq's own
        tasks gives the model single sentences.

        Raises:
            UserError: an option is invalid, or the model needs a task of this package for its
                context, but the task is one of fairseq's own.
        """
        args = completed(cls, args)
        cls.check_options(args)
        stock = separator_index(task.source_dictionary) < 0  # the task is one of fairseq
        if stock and cls.needed_task:
            raise UserError(
                f"--arch {name_of(args)} gets no context from fairseq's own tasks, of which "
                f"translation is the default; give --task {cls.needed_task}"
            )
        model = super().build_model(args, task)
        if stock and model.needs_several_sentences:
            logger.warning(
                "fairseq's own tasks, of which translation is the default, give --arch %s single "
                "sentences, where its context options have no effect",
                name_of(args),
            )
        for name, parameter in model.named_parameters():
            if any(part in name for part in cls.new_parameters):
                parameter.param_group = NEW
        return model

    def upgrade_state_dict_named(self, state_dict, name):
        """Let new modules that the checkpoint lacks keep their initialisation.

        New modules are those that ``new_parameters`` identifies.  Their initial values are added to
        the checkpoint's parameters.  This is done only for modules that are missing completely.  If
        the checkpoint has some tensors of a module, the others are not filled in, and fairseq's
        strict loading reports them.
        """
        super().upgrade_state_dict_named(state_dict, name)

        def owner(key: str) -> Optional[str]:
            part = next((part for part in self.new_parameters if part in key), None)
            return None if part is None else key[: key.index(part) + len(part)]

        known = {None, *(owner(key) for key in state_dict)}
        missing = {key: x for key, x in self.state_dict().items() if owner(key) not in known}
        state_dict.update(missing)
        if missing:
            logger.info(
                "%d tensors are not in the checkpoint and keep their initial values, for example "
                "%s",
                len(missing),
                next(iter(missing)),
            )


class DocumentTransformer(ExtendedModel, TransformerModel):
    """Base class of transformers that have an encoder and a decoder of this package.

    Attributes:
        encoder_class, decoder_class: classes from which encoder and decoder are built.
        unsupported: options of fairseq's transformer that the model does not support, in addition
            to :data:`UNSUPPORTED`.
    """

    encoder_class: type
    decoder_class: type
    unsupported: Sequence[str] = ()

    @classmethod
    def add_args(cls, parser):
        """Add all options of the model's dataclass to the parser, including fairseq's options."""
        super(TransformerModelBase, cls).add_args(parser)

    @classmethod
    def check_options(cls, args):
        """Refuse unsupported options and unsuitable numbers of attention heads.

        Raises:
            UserError: an option is not supported, or the number of heads of the encoder or of the
                decoder does not divide its embedding size.
        """
        for option in (*UNSUPPORTED, *cls.unsupported):
            if getattr(args, option, False):
                name = cls.architecture.__name__
                raise UserError(f"{flag(option)} is not supported by {name}; leave it out")
        for side in ("encoder", "decoder"):
            heads, width = (getattr(args, f"{side}_{x}") for x in ("attention_heads", "embed_dim"))
            if heads < 1 or width % heads != 0:
                raise UserError(
                    f"--{side}-attention-heads {heads} must divide --{side}-embed-dim {width}; "
                    "change one of them"
                )

    @classmethod
    def build_encoder(cls, args, src_dict, embed_tokens):
        """Build the encoder from fairseq's arguments and the index of ``<sep>``."""
        cfg = TransformerConfig.from_namespace(args)
        return cls.encoder_class(cfg, src_dict, embed_tokens, separator_index(src_dict))

    @classmethod
    def build_decoder(cls, args, tgt_dict, embed_tokens):
        """Build the decoder from fairseq's arguments and the index of ``<sep>``."""
        cfg = TransformerConfig.from_namespace(args)
        return cls.decoder_class(cfg, tgt_dict, embed_tokens, separator_index(tgt_dict))


class PackedTargets:
    """Mixin for models that can skip the logits of target positions without a loss."""

    def get_targets(self, sample, net_output):
        """Return the targets that the logits are compared with in the loss.

        These are all targets or, if the logits are only for the N positions with a loss, the (1, N)
        targets at these positions.
        """
        target, positions = sample["target"], net_output[1].get("positions")
        return target if positions is None else target.flatten()[positions].unsqueeze(0)


class StreamModel(PackedTargets):
    """Mixin for encoder-decoder models that pass a document state from sentence to sentence.

    They are trained with the task ``sentence_stream_translation``.  The encoder takes ``starts``,
    ``lanes`` and ``doc_state`` (:class:`~fairseq_docmt.data.batch.NetInput`).  The extra outputs of
    the decoder include the new ``doc_state``, a dict of tensors.  Their first dimension is the
    lane: one of the documents that are read side by side.
    """

    is_document_recurrent = True
    needed_task = "sentence_stream_translation"

    def forward(
        self,
        src_tokens,
        src_lengths,
        prev_output_tokens,
        starts=None,
        lanes=None,
        doc_state=None,
        row_groups=None,
        **kwargs,
    ):
        """Compute the logits of consecutive sentences of one or more documents.

        Args:
            src_tokens, src_lengths, prev_output_tokens, **kwargs: see fairseq's models.
            starts: (rows,) True for rows that start a document; by default all rows.
            lanes: number of lanes; row r belongs to lane ``r % lanes``.  By default each row has a
                lane of its own.
            doc_state: document state of each lane before the batch, or None.
            row_groups: division of the rows into groups of similar length
                (:class:`~fairseq_docmt.data.batch.RowGroupings`); None for a single group.

        Returns:
            (rows, T, V) logits of T tokens over V words or, with ``row_groups``, (1, N, V) logits
            of the N positions with a loss; and extra outputs, including the new ``doc_state``.
        """
        encoder_out = self.encoder(
            src_tokens,
            src_lengths=src_lengths,
            starts=starts,
            lanes=lanes,
            doc_state=doc_state,
            row_groups=row_groups,
        )
        return self.decoder(
            prev_output_tokens, encoder_out=encoder_out, src_lengths=src_lengths, **kwargs
        )
