#!/usr/bin/python3
"""Trains the same models as PyTorch does, from the same weights on the same
batches, and compares: the losses of 20 steps and the parameters after them.

  torch_peer.py PEER_STEPS [CASE ...]
  torch_peer.py --serve CASE FOLDER [--small]
  torch_peer.py --memory CASE [--small]

PyTorch exports the weights as ONNX; PEER_STEPS (peer_steps.cc) reads them. A
parameter tensor's difference is relative to its norm. --serve exports a case of
the size that is timed into FOLDER and runs steps as standard input asks, for
`syncline-bench step`; --memory prints what a few steps keep resident. Exits
with 77 where PyTorch is not installed (Debian: python3-torch).
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

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


class Images:
    """Ten patterns with noise, so that there is something to learn."""

    loss = "softmax"
    tables = ()

    def inputs(self, batch):
        classes = torch.randint(10, (STEPS, batch))
        patterns = torch.rand(10, 1, 28, 28)
        noise = torch.rand(STEPS, batch, 1, 28, 28)
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


# name: what is compared (batch 32 or less), what is timed, and with which batch
# and rate by optimizer.
CASES = {
    "mlp": (Mlp(), Mlp(), 128, {"sgd": 0.05, "adam": 0.001}),
    "lenet": (Lenet(), Lenet(), 128, {"sgd": 0.05, "adam": 0.001}),
    "gpt": (Gpt(2, 32, 2, 16), Gpt(4, 128, 4, 128), 16,
            {"sgd": 0.1, "adam": 0.001}),
    "bert": (Bert(2, 32, 2, 16), Bert(4, 128, 4, 128), 16,
             {"sgd": 0.1, "adam": 0.001}),
    "dlrm": (Dlrm(4, 50, 8), Dlrm(26, 100_000, 16), 512,
             {"sgd": 0.1, "adagrad": 0.05}),
}
OPTIMIZERS = {
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate),
    "adam": lambda parameters, rate: torch.optim.Adam(
        parameters, lr=rate, eps=EPSILON),
    "adagrad": lambda parameters, rate: torch.optim.Adagrad(
        parameters, lr=rate, eps=EPSILON),
}


class Case:
    """One of CASES with its optimizer ("gpt-adam")."""

    def __init__(self, name, timed=False):
        self.name = name
        model, self.optimizer = name.rsplit("-", 1)
        small, large, batch, rates = CASES[model]
        kind = large if timed else small
        self.batch = batch if timed else 32
        self.rate = rates[self.optimizer]
        self.loss, self.tables = kind.loss, list(kind.tables)
        torch.manual_seed(1)
        self.model = kind.module()
        self.inputs, self.labels = kind.inputs(self.batch)
        self.torch_optimizer = OPTIMIZERS[self.optimizer](
            self.model.parameters(), self.rate)

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

    def compare(self, program, folder):
        """The largest relative differences of losses and of parameters."""
        self.export(folder)
        theirs = [self.step(i) for i in range(STEPS)]
        losses, parameters = self.run_ours(program, folder)
        assert len(losses) == STEPS and theirs[-1] < theirs[0]
        of_loss = max(abs(a - b) / abs(b) for a, b in zip(losses, theirs))
        expected = dict(self.model.named_parameters())
        assert parameters.keys() == expected.keys(), (
            parameters.keys() ^ expected.keys())
        of_parameters = 0
        for name, tensor in expected.items():
            want = tensor.detach().numpy().ravel().astype(numpy.float64)
            error = numpy.linalg.norm(parameters[name] - want)
            of_parameters = max(of_parameters, error / numpy.linalg.norm(want))
        return of_loss, of_parameters


def compare_all(program, names):
    torch.set_num_threads(1)
    bad = 0
    for model, (_, _, _, rates) in CASES.items():
        if names and model not in names:
            continue
        for optimizer in rates:
            name = f"{model}-{optimizer}"
            with tempfile.TemporaryDirectory() as folder:
                of_loss, of_parameters = Case(name).compare(
                    program, pathlib.Path(folder))
            ok = of_loss <= TOLERANCE and of_parameters <= TOLERANCE
            bad += not ok
            print(f"{name}: losses differ by {of_loss:.1e}, parameters by "
                  f"{of_parameters:.1e}{'' if ok else ': too much'}",
                  flush=True)
    return 1 if bad else 0


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


def print_memory(name, timed):
    torch.set_num_threads(1)
    torch.nn.functional.relu(torch.zeros(1, requires_grad=True)).backward()
    before = memory_bytes("VmRSS")
    case = Case(name, timed)
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
    return compare_all(options.rest[0], options.rest[1:])


if __name__ == "__main__":
    sys.exit(main())
