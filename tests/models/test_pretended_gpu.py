"""The simulated GPU of the tests refuses the same operations as a GPU."""

import pytest
import torch
from pretended_gpu import PretendedGPU, put


def test_it_keeps_devices_apart():
    with PretendedGPU():
        x, y = put(torch.ones(3)), torch.ones(3)
        for same in (x + 1, x.new_zeros(3), torch.zeros(3, device=x.device), y.to(x), x[y.long()]):
            assert same.device.type == "cuda"
        for other in (y, torch.arange(3), x.cpu(), x.to("cpu"), x.to(y)):
            assert other.device.type == "cpu"
        for mixture in (lambda: x + y, lambda: y[x.long()], lambda: torch.cat([x, y])):
            with pytest.raises(RuntimeError, match="different devices"):
                mixture()
