"""``--criterion attention_regularization``: train attention to words that resolve ambiguities.

For some ambiguous words of the training text, annotations tell which other words show how to
translate them: their supporting words.  An additional term of the loss draws the attention of each
of these ambiguous words to its supporting words.  Since fairseq's layers do not return the weights
of self-attention, the criterion recomputes the weights of ambiguous words from the inputs of the
attention modules.
"""

import contextlib
import math
import re
from dataclasses import dataclass, field
from typing import Dict, Iterable, Iterator, NamedTuple, Optional, Tuple

import torch
from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from fairseq.modules import MultiheadAttention
from torch import Tensor

from fairseq_docmt.data.supporting_words import ATTENTION
from fairseq_docmt.errors import UserError
from fairseq_docmt.ops.precision import at_least_single


class AttentionInputs(NamedTuple):
    """Inputs of an attention module in one call, for B batch rows and E channels.

    Attributes:
        query: (T, B, E) queries at T positions.
        key: (S, B, E) keys at S positions.
        key_padding_mask: (B, S) bool, True for padding; None without padding.
        attn_mask: (T, S) mask that is added to the logits; or None.
        has_graph: True if gradients were enabled when the module was called.
    """

    query: Tensor
    key: Tensor
    key_padding_mask: Optional[Tensor]
    attn_mask: Optional[Tensor]
    has_graph: bool


@contextlib.contextmanager
def record_inputs(
    modules: Iterable[MultiheadAttention],
) -> Iterator[Dict[MultiheadAttention, AttentionInputs]]:
    """Record the inputs of attention modules within the ``with`` block.

    The model must call the modules with keyword arguments.

    Yields:
        A dictionary from each module to its last inputs, which is filled when the model is called.
        It lacks modules that the model did not call, because LayerDrop left out their layer.
    """
    found: Dict[MultiheadAttention, AttentionInputs] = {}

    def record(module, _, given):
        masks = given.get("key_padding_mask"), given.get("attn_mask")
        graph = torch.is_grad_enabled()
        found[module] = AttentionInputs(given["query"], given["key"], *masks, graph)

    hooks = [module.register_forward_pre_hook(record, with_kwargs=True) for module in modules]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def log_weights(
    attention: MultiheadAttention,
    inputs: AttentionInputs,
    rows: Tensor,
    positions: Tensor,
    head: Optional[int],
) -> Tensor:
    """Compute the logarithms of the attention weights of n queries, without dropout.

    Args:
        attention: attention module.
        inputs: its inputs, with S keys.
        rows: (n,) batch row of each query, in ascending order.
        positions: (n,) position of each query.
        head: index of a head, or None for all heads.

    Returns:
        (n, heads, S) logarithms in single precision or better; -inf for masked keys.
    """
    used, numbers = rows.unique_consecutive(return_counts=True)

    def heads(states: Tensor) -> Tensor:
        states = states.view(*states.shape[:-1], attention.num_heads, attention.head_dim)
        return states if head is None else states[..., head : head + 1, :]

    query = heads(attention.q_proj(inputs.query[positions, rows]) * attention.scaling)
    keys = heads(attention.k_proj(inputs.key[:, used])).unbind(dim=1)
    of_rows = zip(query.split(numbers.tolist()), keys)
    logits = torch.cat([torch.einsum("nhd,shd->nhs", *of_row) for of_row in of_rows])
    if inputs.attn_mask is not None:
        logits = logits + inputs.attn_mask[positions].unsqueeze(1)
    if inputs.key_padding_mask is not None:
        padding = inputs.key_padding_mask[rows].bool()
        logits = logits.masked_fill(padding.unsqueeze(1), float("-inf"))
    return logits.log_softmax(dim=-1, dtype=at_least_single(logits.dtype))


#: attention -> places of its modules in a model
MODULES = {
    "encoder": ("encoder", "self_attn"),
    "cross": ("decoder", "encoder_attn"),
    "decoder": ("decoder", "self_attn"),
}
LOGGED = ("attention_loss", "attention_mass", "ambiguous_words")


@dataclass
class AttentionRegularizationConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Options of ``attention_regularization``: its weight, and the attention that it applies to."""

    attention_weight: float = field(
        default=10.0,
        metadata={
            "help": "weight of the divergence between the attention of ambiguous words and their "
            "supporting words"
        },
    )
    regularized_attention: str = field(
        default="encoder:0,cross:0,decoder:-1",
        metadata={
            "help": "attention that is regularized, each with a layer, counted from 0, or from the "
            "last if negative: encoder (source words to source words), cross (target words to "
            "source words), decoder (target words to target words)"
        },
    )
    regularized_head: int = field(
        default=0,
        metadata={"help": "attention head that is regularized; -1: the mean of all heads"},
    )


@register_criterion("attention_regularization", dataclass=AttentionRegularizationConfig)
class AttentionRegularization(LabelSmoothedCrossEntropyCriterion):
    r"""Label-smoothed cross entropy plus the divergence of attention from supporting words.

    Supporting words are annotated words that show how to translate an ambiguous word.  In training,
    each ambiguous word adds :math:`KL(p \| a)`, times ``--attention-weight``, to the loss (Yin et
    al., 2021, section 5).  Here :math:`p` is uniform over its supporting words, and :math:`a` are
    its attention weights in one layer, by default of a single head.  In validation nothing
    is added.

    In the logs, ``attention_loss`` is the divergence in bits, averaged over ambiguous words and
    regularized attention modules, and ``attention_mass`` is the average total weight of the
    supporting words of an ambiguous word.  The logged ``loss`` does not include the divergence.

    Raises:
        UserError: an option is invalid.
    """

    def __init__(
        self,
        task,
        sentence_avg,
        label_smoothing,
        ignore_prefix_size=0,
        report_accuracy=False,
        attention_weight=10.0,
        regularized_attention="encoder:0,cross:0,decoder:-1",
        regularized_head=0,
    ):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        if not 0 <= attention_weight < math.inf:
            raise UserError(
                f"--attention-weight must be a number of at least 0, got {attention_weight}"
            )
        self.attention_weight = attention_weight
        self.layers = parse_layers(regularized_attention)
        if regularized_head < -1:
            raise UserError(
                f"--regularized-head must be the number of a head, or -1 for the mean of all, got "
                f"{regularized_head}"
            )
        self.head = regularized_head if regularized_head >= 0 else None

    def forward(self, model, sample, reduce=True):
        """Compute the loss of a batch.

        Arguments and results are the same as for fairseq's ``label_smoothed_cross_entropy``.

        Raises:
            UserError: the model lacks an attention module to be regularized, or the task is not a
                document task.
        """
        if model.training and "supporting_words" not in sample:
            raise UserError(
                "--criterion attention_regularization is for the document tasks; choose one of "
                "them, or another --criterion"
            )
        links = sample.get("supporting_words", {})
        modules = {name: self.attention_of(model, name) for name in self.layers if name in links}
        with record_inputs(modules.values()) as inputs:
            loss, sample_size, logged = super().forward(model, sample, reduce)
        logged.update({name: loss.new_zeros(()) for name in LOGGED})
        for name, attention in modules.items():
            # LayerDrop may have left the layer out.
            if attention not in inputs or len(links[name]) == 0:
                continue
            divergences, masses = self.divergences(attention, inputs[attention], links[name])
            if model.training:
                loss = loss + self.attention_weight * divergences.sum()
            logged["attention_loss"] += divergences.sum().detach()
            logged["attention_mass"] += masses.sum().detach()
            logged["ambiguous_words"] += len(divergences)
        return loss, sample_size, logged

    def divergences(
        self, attention: MultiheadAttention, inputs: AttentionInputs, links: Tensor
    ) -> Tuple[Tensor, Tensor]:
        """Compute the divergence and the attention mass of each ambiguous word of a batch.

        Args:
            attention: attention module.
            inputs: its inputs.
            links: (links, 3) batch row, query position of the ambiguous word and key position of
                the supporting word, for each pair of an ambiguous word and one of its supporting
                words.

        Returns:
            (words,) divergence of each ambiguous word, and (words,) total attention weight of its
            supporting words; see :func:`divergence`.

        Raises:
            UserError: the inputs have no gradients, because ``--checkpoint-activations`` recomputes
                them in the backward pass.
        """
        if torch.is_grad_enabled() != inputs.has_graph:
            raise UserError(
                "--criterion attention_regularization does not work with --checkpoint-activations; "
                "leave one of them out"
            )
        row, query, key = links.unbind(dim=1)
        (rows, queries), of_link = torch.stack([row, query]).unique(dim=1, return_inverse=True)
        return divergence(log_weights(attention, inputs, rows, queries, self.head), of_link, key)

    def attention_of(self, model, name: str) -> MultiheadAttention:
        """Return the attention module that ``--regularized-attention`` selects by ``name``.

        Raises:
            UserError: the model has no such layer or head, the layer does not use fairseq's
                multi-head attention, or ``--cross-self-attention`` adds the source to its keys.
        """
        side, module = MODULES[name]
        layers = getattr(getattr(model, side), "layers", ())
        number, last = self.layers[name], len(layers) - 1
        if not -len(layers) <= number < len(layers):
            raise UserError(
                f"--regularized-attention {name}:{number}: the {side} has no such layer; give one "
                f"from 0 to {last}"
                if layers
                else f"--regularized-attention {name}: the {side} has no layers of attention; "
                "choose another --arch or --criterion"
            )
        attention = getattr(layers[number], module, None)
        # With --cross-self-attention, the keys of the decoder begin with the source.
        joined = name == "decoder" and getattr(model.decoder, "cross_self_attention", False)
        if joined or getattr(type(attention), "forward", None) is not MultiheadAttention.forward:
            missing = "the layer" if attention is None else type(attention).__name__
            found = "--cross-self-attention" if joined else missing
            raise UserError(
                f"--regularized-attention {name}:{number}: {found} does not have "
                "separate attention weights of these words; choose another attention, or --arch "
                "transformer"
            )
        if self.head is not None and self.head >= attention.num_heads:
            raise UserError(
                f"--regularized-head {self.head}: the attention has {attention.num_heads} heads; "
                f"give one from 0 to {attention.num_heads - 1}, or -1 for the mean of all"
            )
        return attention

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """Aggregate and log the logging outputs of all processes, as fairseq does.

        The attention loss and the attention mass are logged as means over ambiguous words.
        """
        super().reduce_metrics(logging_outputs)
        loss, mass, words = (
            utils.item(sum(log.get(name, 0) for log in logging_outputs)) for name in LOGGED
        )
        if words > 0:
            metrics.log_scalar("attention_loss", loss / words / math.log(2), words, round=3)
            metrics.log_scalar("attention_mass", mass / words, words, round=3)


def divergence(log_attention: Tensor, of_link: Tensor, key: Tensor) -> Tuple[Tensor, Tensor]:
    r"""Compute the divergence of attention from the uniform distribution over supporting words.

    .. math:: KL(p \| a) = -\log n - \frac{1}{n} \sum_{k} \log a_k

    for an ambiguous word with n supporting words at positions k, whose attention weights are a_k.

    Args:
        log_attention: (words, heads, S) logarithms of the attention weights of ambiguous words over
            S positions; the weights are averaged over the heads.
        of_link: (links,) index of the ambiguous word in each pair of an ambiguous and a supporting
            word.
        key: (links,) position of the supporting word in each pair.

    Returns:
        (words,) divergence in nats, and (words,) total weight of the supporting words.
    """
    # Masked positions have -inf, whose mean would spoil the gradient: take the words first.
    heads = log_attention.size(1)
    of_links = log_attention[of_link, :, key].logsumexp(dim=1) - math.log(heads)
    zeros = log_attention.new_zeros(len(log_attention))
    number = zeros.index_add(0, of_link, torch.ones_like(of_links))
    mass = zeros.index_add(0, of_link, of_links.exp())
    return -number.log() - zeros.index_add(0, of_link, of_links) / number, mass


def parse_layers(text: str) -> Dict[str, int]:
    """Parse the value of ``--regularized-attention``, such as ``encoder:0,cross:0``.

    Returns:
        Name of the attention -> number of its layer; negative numbers count from the last layer.

    Raises:
        UserError: the text does not have this form.
    """
    found: Dict[str, int] = {}
    for part in text.split(","):
        name, _, layer = part.strip().partition(":")
        if name not in ATTENTION or name in found or not re.fullmatch("-?[0-9]+", layer):
            raise UserError(
                f"--regularized-attention {text}: give some of {', '.join(ATTENTION)}, each with "
                "its layer, such as encoder:0,cross:0,decoder:-1"
            )
        found[name] = int(layer)
    return found
