"""The loops of the stock transformer against the stock transformer.

Up to single precision, in which fairseq takes the softmax of cross attention.
"""

import pytest
import tiny
from equations import loops
from equations.loops import BATCHES, weights_of


@pytest.mark.parametrize("documents", BATCHES.values(), ids=BATCHES)
def test_transformer(documents):
    model = tiny.model(*tiny.MODEL, "--encoder-layers", "2", "--decoder-layers", "2")
    got, want = loops.whole(model, documents), loops.transformers(weights_of(model), documents)
    loops.assert_close(got, want, 2e-6)
    loops.assert_same_gradients(model, got, want, ["weight"], 2e-6)
