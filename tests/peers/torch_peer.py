#!/usr/bin/python3
"""Trains the same models as PyTorch does, from the same weights on the same
batches, and compares: the losses of 20 steps and the parameters after them.

  torch_peer.py PEER_STEPS [--time STEPS]

PyTorch exports the weights as ONNX; PEER_STEPS (peer_steps.cc) reads them. A
parameter tensor's difference is relative to its norm. With --time the median
times of one step are printed, one compute thread each, by turns. Exits with 77
where PyTorch is not installed (Debian: python3-torch).
"""

import argparse
import pathlib
import statistics
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

STEPS = 20
TOLERANCE = 1e-4
# The usual 1e-8 turns gradients of the size of rounding into whole steps, whose
# direction no two programs agree on. peer_steps has the same.
ADAM_EPSILON = 1e-6


def mlp():
    nn = torch.nn
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024),
        nn.ReLU(), nn.Linear(1024, 10))


def lenet():
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(),
        nn.Linear(128, 10))


CASES = [("mlp", mlp, "sgd", 0.05), ("mlp", mlp, "adam", 0.001),
         ("lenet", lenet, "sgd", 0.05), ("lenet", lenet, "adam", 0.001)]


class Case:
    def __init__(self, make, optimizer, rate, batch, folder):
        torch.manual_seed(1)
        self.model = make()
        self.optimizer, self.rate, self.batch = optimizer, rate, batch
        parameters = self.model.parameters()
        if optimizer == "sgd":
            self.torch_optimizer = torch.optim.SGD(parameters, lr=rate)
        else:
            self.torch_optimizer = torch.optim.Adam(parameters, lr=rate,
                                                    eps=ADAM_EPSILON)
        self.folder = folder
        # Ten patterns with noise, so that there is something to learn.
        classes = torch.randint(10, (STEPS, batch))
        patterns = torch.rand(10, 1, 28, 28)
        self.images = 0.5 * patterns[classes] + 0.5 * torch.rand(
            STEPS, batch, 1, 28, 28)
        self.classes = classes
        torch.onnx.export(
            self.model, self.images[0], str(folder / "model.onnx"),
            opset_version=13, input_names=["image"], output_names=["logits"],
            dynamic_axes={"image": {0: "N"}, "logits": {0: "N"}},
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False)
        with open(folder / "batches", "wb") as out:
            out.write(self.images.numpy().tobytes())
            out.write(classes.numpy().astype(numpy.float32).tobytes())

    def torch_step(self, i):
        self.torch_optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            self.model(self.images[i]), self.classes[i])
        loss.backward()
        self.torch_optimizer.step()
        return loss.item()

    def run_ours(self, program, timed=0):
        """Losses, parameters by name, and milliseconds a step."""
        weights = self.folder / "weights"
        lines = subprocess.run(
            [program, self.folder / "model.onnx", self.folder / "batches",
             str(STEPS), str(self.batch), self.optimizer, str(self.rate),
             weights, str(timed)],
            check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
        values = numpy.fromfile(weights, dtype=numpy.float32)
        losses, parameters, milliseconds = [], {}, None
        for line in lines:
            words = line.split()
            if line.startswith("loss"):
                losses.append(float(words[1]))
            elif line.startswith("parameter"):
                count = int(words[2])
                parameters[words[1]], values = values[:count], values[count:]
            elif line.startswith("milliseconds"):
                milliseconds = float(words[1])
        return losses, parameters, milliseconds

    def compare(self, program):
        """The largest relative differences of losses and of parameters."""
        theirs = [self.torch_step(i) for i in range(STEPS)]
        losses, parameters, _ = self.run_ours(program)
        assert len(losses) == STEPS and theirs[-1] < theirs[0]
        of_loss = max(abs(a - b) / abs(b) for a, b in zip(losses, theirs))
        expected = dict(self.model.named_parameters())
        assert parameters.keys() == expected.keys(), parameters.keys()
        of_parameters = 0
        for name, tensor in expected.items():
            want = tensor.detach().numpy().ravel().astype(numpy.float64)
            error = numpy.linalg.norm(parameters[name] - want)
            of_parameters = max(of_parameters, error / numpy.linalg.norm(want))
        return of_loss, of_parameters

    def time(self, program, steps):
        """Milliseconds a step, ours and PyTorch's: best medians of 3 turns."""
        ours, theirs = [], []
        for _ in range(3):
            ours.append(self.run_ours(program, steps)[2])
            times = []
            for i in range(steps):
                begin = time.perf_counter()
                self.torch_step(i % STEPS)
                times.append(1000 * (time.perf_counter() - begin))
            theirs.append(statistics.median(times))
        return min(ours), min(theirs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--time", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    bad = 0
    for name, make, optimizer, rate in CASES:
        with tempfile.TemporaryDirectory() as folder:
            batch = 128 if options.time else 32
            case = Case(make, optimizer, rate, batch, pathlib.Path(folder))
            if options.time:
                ours, theirs = case.time(options.program, options.time)
                print(f"{name} {optimizer}, batch {batch}: {ours:.2f} ms, "
                      f"PyTorch {torch.__version__} {theirs:.2f} ms, "
                      f"ratio {ours / theirs:.2f}", flush=True)
                continue
            of_loss, of_parameters = case.compare(options.program)
            ok = of_loss <= TOLERANCE and of_parameters <= TOLERANCE
            bad += not ok
            print(f"{name} {optimizer}: losses differ by {of_loss:.1e}, "
                  f"parameters by {of_parameters:.1e}{'' if ok else ': too much'}",
                  flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
