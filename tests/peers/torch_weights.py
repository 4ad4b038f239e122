#!/usr/bin/python3
"""Begins a job with weights that PyTorch wrote.

  torch_weights.py SYNCTL

safetensors.torch.save_file writes the state_dict of a small network; a job that
starts from it and hardly trains must give back the same numbers. What PyTorch's
exporter has transposed, and what torch.save writes, must be refused with what
to do, squares too, whose shape tells nothing. Exits with 77 where the packages
are not installed: Debian's python3-torch, and safetensors, which
deploy/install-deps.sh puts into build/python.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import packages

# build/python has no PyTorch, and Debian has no safetensors.
sys.path += [str(path) for path in
             packages.PYTHON.parents[1].glob("lib/python*/site-packages")]
try:
    import numpy
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    packages.skip(f"{missing}, or PyTorch, Debian's python3-torch")

nn = torch.nn

JOB = """
name: "weights"
model { path: "model.onnx" }
data {
  train { npy { arrays { field: "x" path: "x.npy" }
                arrays { field: "label" path: "label.npy" } } }
  feeds { input: "x" field: "x" }
  label { field: "label" }
}
loss { kind: SOFTMAX_CROSS_ENTROPY }
optimizer { kind: SGD }
# Too little to change a float32.
learning_rate { base: 1e-30 }
training { epochs: 1 max_clocks: 1 batch_size: 4 seed: 1 }
resources { workers: 1 ps: 1 }
"""


class Network(nn.Module):
    """Two squares and two others. Of what has three dimensions Linear becomes a
    MatMul in ONNX, of what has two a Gemm."""

    def __init__(self, rank):
        super().__init__()
        self.rank = rank
        self.first = nn.Linear(6, 4)
        self.square = nn.Linear(4, 4)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        if self.rank == 3:
            x = x.unsqueeze(1)
        x = torch.relu(self.first(x))
        x = self.last(torch.relu(self.square(x)))
        return x.flatten(1)


def export(network, folder, folded):
    mode = torch.onnx.TrainingMode
    torch.onnx.export(
        network, (torch.randn(4, 6),), str(folder / "model.onnx"),
        training=mode.EVAL if folded else mode.TRAINING,
        do_constant_folding=folded, input_names=["x"],
        output_names=["scores"], dynamic_axes={"x": {0: "batch"}})


class Case:
    """A folder with a job, whose model is `network`."""

    def __init__(self, synctl, folder, network, folded=False):
        self.synctl = synctl
        self.folder = folder
        export(network, folder, folded)
        generator = numpy.random.default_rng(1)
        numpy.save(folder / "x.npy",
                   generator.random((8, 6), dtype=numpy.float32))
        numpy.save(folder / "label.npy", generator.integers(0, 3, 8))

    def run(self, command, start, *words):
        """What synctl says, and if it was content."""
        job = self.folder / "job.textproto"
        job.write_text(JOB + "start { " + start + " }\n")
        done = subprocess.run(
            [self.synctl, command, job, *words], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        return done.stdout, done.returncode == 0

    def refused(self, start, *parts):
        text, is_content = self.run("plan", start)
        assert not is_content, text
        for part in parts:
            assert part in text, (part, text)

    def accepted(self, start):
        text, is_content = self.run("plan", start)
        assert is_content, text
        return text


def values_arrive(synctl, folder):
    case = Case(synctl, folder, Network(rank=2))
    torch.manual_seed(7)
    written = Network(rank=2).state_dict()
    written["last.bias"] = written["last.bias"].to(torch.bfloat16)
    save_file(written, str(folder / "base.safetensors"))
    text, is_content = case.run(
        "local", 'weights: "base.safetensors"', "--out", folder / "out",
        "--data-root", folder)
    assert is_content, text
    trained = load_file(str(folder / "out/trained.safetensors"))
    assert trained.keys() == written.keys(), (trained.keys(), written.keys())
    for name, tensor in written.items():
        assert torch.equal(trained[name], tensor.to(torch.float32)), name
    return f"{len(written)} tensors arrived as they are"


def other_files_are_refused(synctl, folder):
    case = Case(synctl, folder, Network(rank=2))
    state = Network(rank=2).state_dict()
    for name, zip_file in (("net.pt", True), ("old.pt", False)):
        torch.save(state, folder / name,
                   _use_new_zipfile_serialization=zip_file)
        case.refused(f'weights: "{name}"', f"{folder / name}: not a",
                     "it is one of torch.save", "safetensors.torch.save_file(")
    text, _ = case.run("plan", 'weights: "net.pt"')
    assert text.count(str(folder / "net.pt")) == 1, text
    save_file({name: tensor.t().contiguous() if tensor.dim() == 2 else tensor
               for name, tensor in state.items()},
              str(folder / "turned.safetensors"))
    # The square among them fits either way: the others give the file away.
    case.refused('weights: "turned.safetensors"',
                 "'first.weight' is [6,4] in the file and [4,6] in the model",
                 "it seems to be transposed")
    return "those of torch.save, and a transposed one, are refused"


def transposed_weights_are_refused(synctl, folder):
    case = Case(synctl, folder, Network(rank=3), folded=True)
    state = Network(rank=3).state_dict()
    save_file(state, str(folder / "base.safetensors"))
    case.refused('weights: "base.safetensors"', "the file lacks 3 of",
                 "'onnx::MatMul_", "PyTorch's exporter's")
    # The model's names, in the order of the layers.
    text = case.run("plan", 'weights: "base.safetensors"')[0]
    names = sorted({word.strip("',;") for word in text.split()
                    if "onnx::MatMul_" in word},
                   key=lambda name: int(name.rsplit("_", 1)[1]))
    layers = ["first", "square", "last"]
    assert len(names) == len(layers), names
    rules = "".join(
        f' names {{ pattern: "{layer}.weight" name: "{name}" }}'
        for layer, name in zip(layers, names))
    case.refused('weights: "base.safetensors"' + rules,
                 f"'{names[0]}' is [4,6] in the file and [6,4] in the model",
                 f"'{names[1]}', a square, is transposed in the model",
                 "under the model's name")
    for layer, name in zip(layers, names):
        state[name] = state.pop(f"{layer}.weight").t().contiguous()
    save_file(state, str(folder / "turned.safetensors"))
    case.accepted('weights: "turned.safetensors"')
    return "weights that the exporter transposed are refused, squares too"


def unfolded_products_keep_their_layout(synctl, folder):
    # A Transpose stands before each MatMul, so no weight is turned.
    case = Case(synctl, folder, Network(rank=3))
    save_file(Network(rank=3).state_dict(), str(folder / "base.safetensors"))
    text = case.accepted('weights: "base.safetensors"')
    assert "transposed" not in text, text
    return "a file of the exporter without folding takes the state_dict"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("synctl", type=pathlib.Path)
    synctl = parser.parse_args().synctl.resolve()
    for check in (values_arrive, other_files_are_refused,
                  transposed_weights_are_refused,
                  unfolded_products_keep_their_layout):
        with tempfile.TemporaryDirectory() as path:
            print(check(synctl, pathlib.Path(path).resolve()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
