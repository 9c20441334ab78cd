"""The stock transformer with torch's fused attention, the best that other toolkits can use."""

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn


class FusedAttention(MultiheadAttention):
    """Replacement of fairseq's attention by torch's fused kernel, for batches without padding.

    Keeps keys and values of earlier steps as fairseq does.  No attention weights are returned.

    Args:
        stock: attention whose weights are used.
    """

    def __init__(self, stock: MultiheadAttention):
        super().__init__(
            stock.embed_dim,
            stock.num_heads,
            dropout=stock.dropout_module.p,
            self_attention=stock.self_attention,
            encoder_decoder_attention=stock.encoder_decoder_attention,
        )
        self.q_proj, self.k_proj = stock.q_proj, stock.k_proj
        self.v_proj, self.out_proj = stock.v_proj, stock.out_proj

    def _heads(self, projected: Tensor) -> Tensor:
        """Return (bsz, heads, length, head_dim) of a projection (length, bsz, embed_dim)."""
        return projected.unflatten(-1, (self.num_heads, -1)).permute(1, 2, 0, 3)

    def _keys_and_values(self, key: Tensor, value: Tensor, incremental_state, static_kv: bool):
        saved = {} if incremental_state is None else self._get_input_buffer(incremental_state)
        if static_kv and "prev_key" in saved:
            return saved["prev_key"], saved["prev_value"]
        if static_kv and incremental_state is not None and self.beam_size > 1:
            # All beams of a sentence read the same source.
            key, value = key[:, :: self.beam_size], value[:, :: self.beam_size]
        k, v = self._heads(self.k_proj(key)), self._heads(self.v_proj(value))
        if incremental_state is None:
            return k, v
        if "prev_key" in saved:
            k = torch.cat([saved["prev_key"], k], 2)
            v = torch.cat([saved["prev_value"], v], 2)
        self._set_input_buffer(incremental_state, {"prev_key": k, "prev_value": v})
        return k, v

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        incremental_state=None,
        static_kv: bool = False,
        attn_mask=None,
        **_,
    ):
        """Compute an output (length, bsz, embed_dim) like the query; causal if there is a mask."""
        k, v = self._keys_and_values(key, value, incremental_state, static_kv)
        q = self._heads(self.q_proj(query))
        causal = attn_mask is not None and incremental_state is None
        bsz = q.size(0)
        if bsz != k.size(0):
            # The beams of a sentence are queries of the same keys.
            q = q.reshape(k.size(0), -1, self.num_heads, self.head_dim).transpose(1, 2)
            output = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, bsz, -1)
        else:
            output = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            output = output.permute(2, 0, 1, 3).flatten(2)
        return self.out_proj(output), None


def use_fused_attention(model: nn.Module) -> None:
    """Replace every attention of a stock transformer."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is MultiheadAttention:
                setattr(module, name, FusedAttention(child))


if __name__ == "__main__":
    raise SystemExit(
        "error: fused_attention.py is no command; examples/benchmarks/README.md lists the commands"
    )
