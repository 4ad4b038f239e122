"""What a case is, how it is registered, and inputs of the common kinds."""

import dataclasses

import torch
from torch import nn

STEPS = 5
BATCH = 4
CLASSES = 4


@dataclasses.dataclass
class Case:
    module: nn.Module
    inputs: dict  # name: [STEPS, batch, ...]
    labels: torch.Tensor
    loss: str = "softmax"
    rate: float = 0.05
    # Patterns of model.train that files of the older exporter need.
    train: tuple = ()


CASES = {}


def case(function):
    CASES[function.__name__.replace("_", "-")] = function
    return function


def classes(*shape):
    return torch.randint(CLASSES, (STEPS, BATCH, *shape))


def features(module, *shape, name="x", **options):
    """A classifier of vectors or images."""
    return Case(module, {name: torch.randn(STEPS, BATCH, *shape)}, classes(),
                **options)


def values(module, *shape, outputs, **options):
    """A regression."""
    return Case(module, {"x": torch.randn(STEPS, BATCH, *shape)},
                torch.randn(STEPS, BATCH, outputs), loss="mse", **options)


def tokens(module, length=8, vocabulary=50, name="input_ids", per_token=False,
           **options):
    ids = torch.randint(1, vocabulary, (STEPS, BATCH, length))
    labels = (torch.randint(vocabulary, (STEPS, BATCH, length)) if per_token
              else classes())
    return Case(module, {name: ids}, labels, **options)
