"""Every architecture runs under ``torch.compile`` at several lengths: outputs and gradients.

Dynamo traces the model and AOTAutograd its gradient.  No code is generated for the processor: that
takes minutes for each model, and tests torch alone.
"""

import pytest
import tiny
import torch
import torch._dynamo
from architectures import ARCHITECTURES
from models.test_contract import PAD, batch, following, previous

#: lengths of sources and targets: others than before are compiled anew or as variables
LENGTHS = [
    ((9, 4, 13, 7), (6, 12, 3, 5)),
    ((5, 8, 3, 2), (4, 7, 9, 1)),
    ((15, 18, 13, 2), (14, 17, 19, 11)),
]


def outputs_and_gradients(model, forward, sources, targets):
    source, target = batch(sources, left_pad=True), batch(targets, seed=10)
    output = forward(source, source.ne(PAD).sum(1), previous(target), **following(model))
    scores = model.get_normalized_probs(output, log_probs=True)
    model.zero_grad()
    scores[..., 5].sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"scores": scores.detach(), **gradients}


@pytest.mark.system
@pytest.mark.parametrize("name", ARCHITECTURES)
@torch._dynamo.config.patch(recompile_limit=64)
def test_compiled_models_compute_the_same(name):
    torch._dynamo.reset()
    model = tiny.model(*ARCHITECTURES[name])
    compiled = torch.compile(model, backend="aot_eager")
    for lengths in LENGTHS:
        wanted = outputs_and_gradients(model, model, *lengths)
        found = outputs_and_gradients(model, compiled, *lengths)
        torch.testing.assert_close(found, wanted, atol=1e-9, rtol=0)
