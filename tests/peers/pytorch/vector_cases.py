"""Models of vectors: perceptrons with each activation and normalization, shared
and frozen weights."""

import torch
from torch import nn
from torch.nn import functional

from case import BATCH, Case, case, CLASSES, classes, features, STEPS, values


def mlp_of(activation, *more):
    return nn.Sequential(nn.Linear(8, 16), activation, *more,
                         nn.Linear(16, CLASSES))


@case
def mlp():
    return features(mlp_of(nn.ReLU()), 8)


@case
def logistic_regression():
    ids = torch.rand(STEPS, BATCH) > 0.5
    return Case(nn.Linear(8, 1), {"x": torch.randn(STEPS, BATCH, 8)},
                ids.float(), loss="sigmoid")


@case
def linear_regression():
    return values(nn.Linear(8, 1), 8, outputs=1)


@case
def gelu_mlp():
    return features(mlp_of(nn.GELU()), 8)


@case
def gelu_tanh_mlp():
    return features(mlp_of(nn.GELU(approximate="tanh")), 8)


@case
def silu_mlp():
    return features(mlp_of(nn.SiLU()), 8)


@case
def mish_mlp():
    return features(mlp_of(nn.Mish()), 8)


@case
def softplus_mlp():
    return features(mlp_of(nn.Softplus()), 8)


@case
def elu_mlp():
    return features(mlp_of(nn.ELU()), 8)


@case
def leaky_relu_mlp():
    return features(mlp_of(nn.LeakyReLU(0.2)), 8)


@case
def prelu_mlp():
    return features(mlp_of(nn.PReLU()), 8)


@case
def prelu_channels_cnn():
    return features(nn.Sequential(nn.Conv2d(1, 4, 3), nn.PReLU(4), nn.Flatten(),
                                  nn.Linear(144, CLASSES)), 1, 8, 8)


@case
def hardswish_mlp():
    return features(mlp_of(nn.Hardswish()), 8)


@case
def tanhshrink_mlp():
    return features(mlp_of(nn.Tanhshrink()), 8)


@case
def softshrink_mlp():
    return features(mlp_of(nn.Softshrink(0.1)), 8)


@case
def hardshrink_mlp():
    return features(mlp_of(nn.Hardshrink(0.1)), 8)


@case
def logsigmoid_mlp():
    return features(mlp_of(nn.LogSigmoid()), 8)


@case
def hardtanh_mlp():
    return features(mlp_of(nn.Hardtanh()), 8)


@case
def glu_mlp():
    return features(nn.Sequential(nn.Linear(8, 32), nn.GLU(),
                                  nn.Linear(16, CLASSES)), 8)


@case
def dropout_mlp():
    return features(mlp_of(nn.ReLU(), nn.Dropout(0.0)), 8)


@case
def batchnorm_mlp():
    return features(mlp_of(nn.ReLU(), nn.BatchNorm1d(16)), 8)


@case
def layernorm_mlp():
    return features(mlp_of(nn.ReLU(), nn.LayerNorm(16)), 8)


@case
def two_layernorms_mlp():
    return features(nn.Sequential(
        nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 8),
        nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, CLASSES)), 8)


@case
def rmsnorm_mlp():
    return features(mlp_of(nn.ReLU(), nn.RMSNorm(16)), 8)


@case
def weightnorm_mlp():
    return features(nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(8, 16)), nn.ReLU(),
        nn.Linear(16, CLASSES)), 8)


class Temperature(nn.Module):
    """Scores divided by a number that is learnt."""

    def __init__(self):
        super().__init__()
        self.body = mlp_of(nn.ReLU())
        self.temperature = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.body(x) / self.temperature


@case
def temperature():
    return features(Temperature(), 8, train=("temperature",))


class Scales(nn.Module):
    """A parameter of one element, and a constant beside it."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, CLASSES)
        self.scale = nn.Parameter(torch.ones(1))
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.outer(torch.relu(self.inner(x)) * self.scale * 0.5 +
                          self.shift)


@case
def one_element_scales():
    return features(Scales(), 8, train=("scale", "shift"))


class Standardised(nn.Module):
    """Buffers that are constants: the mean and deviation of the data."""

    def __init__(self):
        super().__init__()
        self.body = mlp_of(nn.ReLU())
        self.register_buffer("mean", torch.randn(8))
        self.register_buffer("std", 1 + torch.rand(8))

    def forward(self, x):
        return self.body((x - self.mean) / self.std)


@case
def standardised():
    return features(Standardised(), 8)


class Frozen(nn.Module):
    """The first layer has requires_grad off."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, CLASSES)
        self.first.requires_grad_(False)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Tied(nn.Module):
    """An autoencoder whose decoder is the encoder's transpose."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(6, 8))
        self.down, self.up = (nn.Parameter(torch.zeros(n)) for n in (6, 8))

    def forward(self, x):
        hidden = torch.tanh(functional.linear(x, self.weight, self.down))
        return functional.linear(hidden, self.weight.t(), self.up)


@case
def tied_autoencoder():
    return values(Tied(), 8, outputs=8)


class SharedLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.outer(torch.relu(self.inner(torch.relu(self.inner(x)))))


@case
def shared_layer():
    return features(SharedLayer(), 8)


class InDouble(nn.Module):
    """The input is float64, as numpy makes it."""

    def __init__(self):
        super().__init__()
        self.body = mlp_of(nn.ReLU())

    def forward(self, x):
        return self.body(x.float())


@case
def double_input():
    return Case(InDouble(), {"x": torch.randn(STEPS, BATCH, 8).double()},
                classes())
