"""Layers of a built model are replaced in place."""

from torch import nn

from fairseq_docmt.modules.cpu.module_swap import swap_modules


def identity_for_relu(layer):
    return nn.Identity() if type(layer) is nn.ReLU else None


def test_only_the_chosen_layers_are_replaced_at_any_depth():
    inner = nn.Sequential(nn.Tanh(), nn.ReLU())
    model = nn.ModuleDict({"first": nn.ReLU(), "rest": nn.ModuleList([inner])})
    swap_modules(model, identity_for_relu)
    kinds = [type(module).__name__ for module in model.modules() if not list(module.children())]
    assert sorted(kinds) == ["Identity", "Identity", "Tanh"]
    assert model["rest"][0] is inner


def test_layers_with_forward_pre_hooks_are_kept():
    model = nn.Sequential(nn.ReLU(), nn.ReLU())
    model[0].register_forward_pre_hook(lambda *_: None)
    swap_modules(model, identity_for_relu)
    assert [type(layer) for layer in model] == [nn.ReLU, nn.Identity]
