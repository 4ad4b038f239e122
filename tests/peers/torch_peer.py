#!/usr/bin/python3
"""Trains the same models as PyTorch does, from the same weights on the same
batches, and compares: the losses of 20 steps and the parameters after them.

  torch_peer.py PEER_STEPS [CASE ...]
  torch_peer.py --serve CASE FOLDER [--small]
  torch_peer.py --memory CASE [--small]

PyTorch exports the weights as ONNX; PEER_STEPS (peer_steps.cc) reads them. A
parameter tensor's difference is relative to its norm; running means and
variances of batch normalisation are among them. --serve exports a case of
the size that is timed into FOLDER and runs steps as standard input asks, for
`syncline-bench step`; --memory prints what a few steps keep resident. Exits
with 77 where PyTorch is not installed (Debian: python3-torch).
"""

import argparse
import copy
import ctypes
import pathlib
import subprocess
import sys
import tempfile
import time
from functools import partial

try:
    import numpy
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; PyTorch is Debian's python3-torch, or any other"
          " for /usr/bin/python3")
    sys.exit(77)

nn = torch.nn
functional = nn.functional

STEPS = 20
TOLERANCE = 1e-4
# The usual 1e-8 turns gradients that are nothing but rounding (those of the keys'
# biases in attention) into whole steps, whose direction no two programs agree on.
EPSILON = 1e-5


# In millions of activations some maximum or Relu is so close that rounding decides
# it, and the gradient goes another way: in PyTorch's float32 as often as in ours,
# with each processor's instructions in other places. A case agrees if it does with
# PyTorch in float32 or in float64, for one of these seeds.
SEEDS = (3, 5, 10)


class Images:
    """Ten patterns with noise, so that there is something to learn."""

    loss = "softmax"
    tables = ()
    shape = (1, 28, 28)

    def inputs(self, batch):
        classes = torch.randint(10, (STEPS, batch))
        patterns = torch.rand(10, *self.shape)
        noise = torch.rand(STEPS, batch, *self.shape)
        return {"image": 0.5 * patterns[classes] + 0.5 * noise}, classes


class Mlp(Images):
    def module(self):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(),
            nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


class Lenet(Images):
    def module(self):
        return nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(),
            nn.Linear(128, 10))


class BatchNorm(nn.BatchNorm2d):
    """Has a running mean and variance to compare."""

    def __init__(self, channels):
        super().__init__(channels)
        self.num_batches_tracked = None  # not used, and the export warns of it

    def running(self):
        return {"running_mean": self.running_mean,
                "running_var": self.running_var}


class BasicBlock(nn.Module):
    def __init__(self, inputs, width, stride, activation):
        super().__init__()
        self.activation = activation
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = BatchNorm(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = BatchNorm(width)
        self.downsample = None
        if stride != 1 or inputs != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False),
                BatchNorm(width))

    def forward(self, x):
        y = self.activation(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.activation(
            y + (x if self.downsample is None else self.downsample(x)))


class Resnet18(Images):
    """With the stem for CIFAR's images."""

    def __init__(self, width, activation, shape=(1, 28, 28)):
        self.width, self.activation, self.shape = width, activation, shape

    def module(self):
        channels, activation = self.width, self.activation
        layers = [nn.Conv2d(self.shape[0], channels, 3, 1, 1, bias=False),
                  BatchNorm(channels), activation]
        for factor, stride in [(1, 1), (2, 2), (4, 2), (8, 2)]:
            width = factor * self.width
            layers += [BasicBlock(channels, width, stride, activation),
                       BasicBlock(width, width, 1, activation)]
            channels = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                             nn.Linear(channels, 10))


class RowReaderModule(nn.Module):
    """Reads an image row by row, in both directions, two layers deep."""

    def __init__(self, network):
        super().__init__()
        self.network = network(28, 48, num_layers=2, bidirectional=True,
                               batch_first=True)
        self.head = nn.Linear(96, 10)

    def forward(self, image):
        # Of pixels from 0 to 1 it would learn nothing in so few steps.
        rows, _ = self.network(8 * image.squeeze(1) - 4)
        return self.head(rows[:, -1])


class RowReader(Images):
    def __init__(self, network):
        self.network = network

    def module(self):
        return RowReaderModule(self.network)


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2))
        scores = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        after = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = functional.softmax(
            scores.masked_fill(after, float("-inf")), dim=-1)
        return self.out(
            (weights @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GptModule(nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            GptBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1])
        x = self.embedding(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embedding.weight.t()


class Gpt:
    """Text of repeated cycles: what follows is known after a few tokens."""

    loss = "softmax"
    tables = ()

    def __init__(self, layers, width, heads, length):
        self.sizes = (layers, width, heads, length, 256)

    def module(self):
        return GptModule(*self.sizes)

    def inputs(self, batch):
        length = self.sizes[3]
        starts = torch.randint(256, (STEPS, batch, 1))
        strides = torch.randint(1, 8, (STEPS, batch, 1))
        text = (starts + strides * torch.arange(length + 1)) % 256
        return {"tokens": text[..., :-1].contiguous()}, text[..., 1:]


class TextLstmModule(nn.Module):
    def __init__(self, network, width, hidden, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.network = network(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, tokens):
        states, _ = self.network(self.embedding(tokens))
        return self.head(states)


class TextLstm(Gpt):
    def __init__(self, network, width, hidden, length):
        self.sizes = (network, width, hidden, length, 256)

    def module(self):
        network, width, hidden, _, vocabulary = self.sizes
        return TextLstmModule(network, width, hidden, vocabulary)


class BertModule(nn.Module):
    PADDING = 0

    def __init__(self, layers, width, heads, length):
        super().__init__()
        self.embedding = nn.Embedding(100, width)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0, activation="gelu",
            batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.pooler = nn.Linear(width, width)
        self.classes = nn.Linear(width, 4)

    def forward(self, tokens):
        x = self.norm(self.embedding(tokens) + self.positions)
        x = self.encoder(x, src_key_padding_mask=tokens == self.PADDING)
        return self.classes(torch.tanh(self.pooler(x[:, 0])))


class Bert:
    """The class is the quarter that the first token is from; the end of a
    sample is padding."""

    loss = "softmax"
    tables = ()

    def __init__(self, layers, width, heads, length):
        self.sizes = (layers, width, heads, length)

    def module(self):
        return BertModule(*self.sizes)

    def inputs(self, batch):
        length = self.sizes[3]
        tokens = torch.randint(1, 100, (STEPS, batch, length))
        ends = torch.randint(length // 2, length, (STEPS, batch, 1))
        tokens[torch.arange(length) > ends] = BertModule.PADDING
        return {"tokens": tokens}, tokens[..., 0] // 25


class DlrmModule(nn.Module):
    def __init__(self, tables, rows, dim):
        super().__init__()
        self.tables = nn.ModuleList(
            nn.Embedding(rows, dim, sparse=True) for _ in range(tables))
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.1)
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(),
                                    nn.Linear(32, dim), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(dim + pairs, 64), nn.ReLU(),
                                 nn.Linear(64, 1))
        # A buffer's values go with the model; tril_indices would be computed.
        i, j = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", i * (tables + 1) + j, persistent=False)

    def forward(self, dense, *ids):
        bottom = self.bottom(dense)
        rows = [table(i) for table, i in zip(self.tables, ids)]
        vectors = torch.stack([bottom, *rows], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([bottom, products[:, self.pairs]], dim=1))


class Dlrm:
    """Ids as frequent as Zipf's law says; the click depends on all."""

    loss = "sigmoid"

    def __init__(self, tables, rows, dim):
        self.sizes = (tables, rows, dim)
        self.tables = [f"tables.{i}.weight" for i in range(tables)]

    def module(self):
        return DlrmModule(*self.sizes)

    def inputs(self, batch):
        tables, rows, _ = self.sizes
        dense = torch.randn(STEPS, batch, 13)
        ids = (rows ** torch.rand(tables, STEPS, batch)).long() - 1
        teacher = torch.randn(13)
        clicks = dense @ teacher + (ids % 2).sum(0) - tables / 2 > 0
        names = {f"ids{i + 1}": of_table for i, of_table in enumerate(ids)}
        return {"dense": dense, **names}, clicks.float()


def relu_rnn(*sizes, **options):
    return nn.RNN(*sizes, nonlinearity="relu", **options)


# name: what is compared (batch 32 or less), what is timed, and with which batch
# and rate by optimizer.
CASES = {
    "mlp": (Mlp(), Mlp(), 128, {"sgd": 0.05, "adam": 0.001}),
    "lenet": (Lenet(), Lenet(), 128, {"sgd": 0.05, "adam": 0.001}),
    "resnet18": (Resnet18(16, nn.SiLU()),
                 Resnet18(64, nn.ReLU(), (3, 32, 32)), 32, {"momentum": 0.01}),
    "lstm": (RowReader(nn.LSTM), TextLstm(nn.LSTM, 128, 128, 64), 32,
             {"sgd": 0.5, "adam": 0.003}),
    "gru": (RowReader(nn.GRU), TextLstm(nn.GRU, 128, 128, 64), 32,
            {"sgd": 0.5, "adam": 0.003}),
    "rnn": (RowReader(nn.RNN), TextLstm(nn.RNN, 128, 128, 64), 32,
            {"sgd": 0.1, "adam": 0.003}),
    "relu-rnn": (RowReader(relu_rnn), TextLstm(relu_rnn, 128, 128, 64), 32,
                 {"sgd": 0.02, "adam": 0.001}),
    "gpt": (Gpt(2, 32, 2, 16), Gpt(4, 128, 4, 128), 16,
            {"sgd": 0.1, "adam": 0.001}),
    "bert": (Bert(2, 32, 2, 16), Bert(4, 128, 4, 128), 16,
             {"sgd": 0.1, "adam": 0.001}),
    "dlrm": (Dlrm(4, 50, 8), Dlrm(26, 100_000, 16), 512,
             {"sgd": 0.5, "adagrad": 0.05}),
}
# With batch normalisation many units are near Relu's corner, and one that is on
# for one program and off for the other moves the gradient of a bias by up to a
# hundredth, whatever the rate. With a rate of 0.01 PyTorch's losses in float32
# are 0.05 from its own in float64 after 20 steps. Hence a smaller one, and ours
# may be some times as far from float64 as PyTorch's are.
CHAOTIC_CASES = {
    "relu-resnet18": (Resnet18(16, nn.ReLU()), None, 8, {"momentum": 0.0001}),
}
CHAOTIC_FACTOR = 10
OPTIMIZERS = {
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate),
    "momentum": lambda parameters, rate: torch.optim.SGD(
        parameters, lr=rate, momentum=0.9),
    "adam": lambda parameters, rate: torch.optim.Adam(
        parameters, lr=rate, eps=EPSILON),
    "adagrad": lambda parameters, rate: torch.optim.Adagrad(
        parameters, lr=rate, eps=EPSILON),
}


def differences(ours, theirs):
    """Of (losses, parameters): the largest of each, relative."""
    assert len(ours[0]) == len(theirs[0]) == STEPS, ours[0]
    assert ours[1].keys() == theirs[1].keys(), (
        ours[1].keys() ^ theirs[1].keys())
    # max() would pass over NaN.
    assert numpy.isfinite(ours[0]).all(), ours[0]
    assert all(numpy.isfinite(p).all() for p in ours[1].values())
    norm = numpy.linalg.norm
    return (max(abs(a - b) / abs(b) for a, b in zip(ours[0], theirs[0])),
            max(norm(ours[1][name].astype(numpy.float64) - want) / norm(want)
                for name, want in theirs[1].items()))


def doubled(tensor):
    """In float64, unless it holds integers."""
    return tensor.double() if tensor.is_floating_point() else tensor


class Case:
    """One of the cases with its optimizer ("gpt-adam")."""

    def __init__(self, name, timed=False, seed=SEEDS[0]):
        self.name = name
        model, self.optimizer = name.rsplit("-", 1)
        small, large, batch, rates = (CASES | CHAOTIC_CASES)[model]
        kind = large if timed else small
        self.batch = batch if timed else min(batch, 32)
        self.rate = rates[self.optimizer]
        self.loss, self.tables = kind.loss, list(kind.tables)
        torch.manual_seed(seed)
        self.model = kind.module()
        self.inputs, self.labels = kind.inputs(self.batch)
        self.make_optimizer()

    def make_optimizer(self):
        self.torch_optimizer = OPTIMIZERS[self.optimizer](
            self.model.parameters(), self.rate)

    def in_double(self):
        """The same, of which PyTorch's half computes in float64."""
        twin = copy.copy(self)
        twin.model = copy.deepcopy(self.model).double()
        twin.inputs = {name: doubled(x) for name, x in self.inputs.items()}
        twin.labels = doubled(self.labels)
        twin.make_optimizer()
        return twin

    def batch_norms(self):
        return {name: module for name, module in self.model.named_modules()
                if isinstance(module, BatchNorm)}

    def export(self, folder):
        """The model as it is now, and the batches."""
        names = list(self.inputs)
        torch.onnx.export(
            self.model, tuple(x[0] for x in self.inputs.values()),
            str(folder / "model.onnx"), opset_version=17, input_names=names,
            output_names=["output"],
            dynamic_axes={name: {0: "N"} for name in names + ["output"]},
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False)
        with open(folder / "batches", "wb") as out:
            for tensor in self.inputs.values():
                out.write(tensor.contiguous().numpy().tobytes())
            out.write(self.labels.numpy().astype(numpy.float32).tobytes())

    def step(self, i):
        self.torch_optimizer.zero_grad(set_to_none=True)
        output = self.model(*(x[i] for x in self.inputs.values()))
        if self.loss == "sigmoid":
            loss = functional.binary_cross_entropy_with_logits(
                output.squeeze(1), self.labels[i])
        else:
            loss = functional.cross_entropy(
                output.reshape(-1, output.shape[-1]), self.labels[i].flatten())
        loss.backward()
        self.torch_optimizer.step()
        return loss.item()

    def run_ours(self, program, folder):
        """Losses, and parameters by name."""
        weights = folder / "weights"
        tables = [word for table in self.tables for word in ("--table", table)]
        lines = subprocess.run(
            [program, "--model", folder / "model.onnx", "--batches",
             folder / "batches", "--steps", str(STEPS), "--batch-size",
             str(self.batch), "--optimizer", self.optimizer, "--loss",
             self.loss, "--rate", str(self.rate), "--epsilon", str(EPSILON),
             "--weights", weights, *tables],
            check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
        values = numpy.fromfile(weights, dtype=numpy.float32)
        losses, parameters = [], {}
        for line in lines:
            words = line.split()
            if line.startswith("loss"):
                losses.append(float(words[1]))
            elif line.startswith("parameter"):
                count = int(words[2])
                parameters[words[1]], values = values[:count], values[count:]
        return losses, parameters

    def run_theirs(self):
        """Likewise."""
        losses = [self.step(i) for i in range(STEPS)]
        parameters = dict(self.model.named_parameters())
        for name, norm in self.batch_norms().items():
            parameters.update(
                {f"{name}.{k}": v for k, v in norm.running().items()})
        return losses, {name: tensor.detach().numpy().ravel()
                        for name, tensor in parameters.items()}

    def run_all(self, program, folder):
        """Ours, PyTorch's, and PyTorch's in float64."""
        self.export(folder)
        exact = self.in_double().run_theirs()
        return self.run_ours(program, folder), self.run_theirs(), exact


def run_case(program, name, seed):
    with tempfile.TemporaryDirectory() as folder:
        return Case(name, seed=seed).run_all(program, pathlib.Path(folder))


def agrees_exactly(program, name):
    """For one of the seeds. Prints what it found."""
    for seed in SEEDS:
        ours, theirs, exact = run_case(program, name, seed)
        losses = theirs[0]
        assert sum(losses[-5:]) < sum(losses[:5]), "it does not learn"
        nearest, which = min((differences(ours, theirs), "float32"),
                             (differences(ours, exact), "float64"),
                             key=lambda found: max(found[0]))
        ok = max(nearest) <= TOLERANCE
        print(f"{name}: from PyTorch in {which} losses are {nearest[0]:.1e}, "
              f"parameters {nearest[1]:.1e}"
              f"{'' if ok else f': too much with seed {seed}'}", flush=True)
        if ok:
            return True
    return False


def agrees_roughly(program, name):
    """Likewise, for a chaotic case."""
    ours, theirs, exact = run_case(program, name, SEEDS[0])
    of_ours, of_theirs = differences(ours, exact), differences(theirs, exact)
    ok = all(a <= CHAOTIC_FACTOR * b for a, b in zip(of_ours, of_theirs))
    print(f"{name}: from float64 losses are {of_ours[0]:.1e}, parameters "
          f"{of_ours[1]:.1e}, PyTorch's {of_theirs[0]:.1e}, "
          f"{of_theirs[1]:.1e}{'' if ok else ': too much'}", flush=True)
    return ok


def count_bad(cases, models, agrees):
    """How many of the cases do not agree; of some models where any are named."""
    names = [f"{model}-{optimizer}" for model, (*_, rates) in cases.items()
             if not models or model in models for optimizer in rates]
    return sum(not agrees(name) for name in names)


def blas_library():
    """What PyTorch's products are computed with: "libopenblasp-r0.3.21.so"."""
    torch.zeros(2, 2) @ torch.zeros(2, 2)
    mapped = {pathlib.Path(line.split()[-1]).resolve().name
              for line in open("/proc/self/maps") if "blas" in line}
    return max(mapped, key=lambda name: "openblas" in name, default="its own")


def serve(case, folder):
    """Says what there is, a word and its value a line, and "ready"; then for
    each line "THREADS STEPS" runs steps and prints loss and milliseconds."""
    case.export(folder)
    print("version", torch.__version__, "with", blas_library())
    for key in ("optimizer", "loss", "rate", "batch"):
        print(key, getattr(case, key))
    print("epsilon", EPSILON)
    print("steps", STEPS)
    for table in case.tables:
        print("table", table)
    print("ready", flush=True)
    done = 0
    for line in sys.stdin:
        threads, steps = map(int, line.split())
        torch.set_num_threads(threads)
        for _ in range(steps):
            begin = time.perf_counter()
            loss = case.step(done % STEPS)
            took = 1000 * (time.perf_counter() - begin)
            done += 1
            print(f"{loss:.9g} {took:.6f}", flush=True)


def memory_bytes(field):
    for line in open("/proc/self/status"):
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"no {field} in /proc/self/status")


def return_freed_memory():
    """As peer_steps.cc does: what malloc keeps is no part of a step."""
    ctypes.CDLL(None).malloc_trim(0)


def print_memory(name, timed):
    torch.set_num_threads(1)
    torch.nn.functional.relu(torch.zeros(1, requires_grad=True)).backward()
    return_freed_memory()
    before = memory_bytes("VmRSS")
    case = Case(name, timed)
    return_freed_memory()
    # The peak starts again: making the model is no part of a step.
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    for i in range(3):
        case.step(i)
    print("bytes", memory_bytes("VmHWM") - before)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", metavar="CASE")
    parser.add_argument("--memory", metavar="CASE")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("rest", nargs="*")
    options = parser.parse_args()
    if options.serve:
        serve(Case(options.serve, timed=not options.small),
              pathlib.Path(options.rest[0]))
        return 0
    if options.memory:
        print_memory(options.memory, timed=not options.small)
        return 0
    program, *models = options.rest
    torch.set_num_threads(1)
    bad = (count_bad(CASES, models, partial(agrees_exactly, program)) +
           count_bad(CHAOTIC_CASES, models, partial(agrees_roughly, program)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
