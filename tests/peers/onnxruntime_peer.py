#!/usr/bin/python3
"""Reads what a cluster exports as other programs do.

  onnxruntime_peer.py PEER_STEPS SYNCTL

Trains models of the zoo with `synctl local`, for a few steps. trained.onnx must
pass ONNX's checker and give, in ONNX Runtime, the outputs that our evaluation
gives (PEER_STEPS); trained.safetensors must hold the same tensors, as its own
library reads them. Exits with 77 where the packages are not installed:
deploy/install-deps.sh puts them into build/python.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import packages

packages.use_build_python()
try:
    import numpy
    import onnx
    import onnxruntime
    from safetensors.numpy import load_file
except ImportError as missing:
    packages.skip(missing)

TOLERANCE = 1e-5
BATCH = 8
STEPS = 4

DIGITS = """
data {{
  train {{ digits {{ count: 640 seed: 1 }} }}
  test {{ digits {{ count: 64 seed: 2 }} }}
  feeds {{ input: "{input}" field: "image" scale: 0.00392156862745098 }}
  label {{ field: "label" }}
}}
metrics: [ACCURACY]
"""
TOKENS = """
data {{
  train {{ tokens {{ path: "text" vocabulary: 256 }} }}
  test {{ tokens {{ path: "text" vocabulary: 256 end: 0.2 }} }}
  feeds {{ input: "{input}" field: "tokens" }}
  label {{ field: "next" }}
}}
metrics: [PERPLEXITY]
"""
JOB = """
name: "export"
model {{ path: "model.onnx" }}
loss {{ kind: SOFTMAX_CROSS_ENTROPY }}
optimizer {{ kind: ADAM }}
learning_rate {{ base: 0.001 }}
training {{ epochs: 1 max_clocks: 20 batch_size: 16 eval_batch_size: 16 seed: 1 }}
resources {{ workers: 2 ps: 2 }}
"""
# By the model's input: its data.
CASES = [
    ("mlp", ["hidden=64"], "x", DIGITS),
    ("lenet", ["channels=8,16"], "image", DIGITS),
    ("gpt", ["layers=2", "width=32", "length=32", "dropout=0.1"], "tokens",
     TOKENS),
    ("bert", ["layers=2", "width=32", "length=32", "head=tokens",
              "padding=10"], "tokens", TOKENS),
]


def train(synctl, model, settings, name, data, folder):
    """The job's output folder."""
    sets = [word for setting in settings for word in ("--set", setting)]
    with open(folder / "model.onnx", "wb") as out:
        subprocess.run([synctl, "model", model, *sets], check=True, stdout=out)
    (folder / "text").write_bytes((packages.ROOT / "README.md").read_bytes() * 4)
    (folder / "job.textproto").write_text(
        JOB.format() + data.format(input=name))
    subprocess.run(
        [synctl, "local", folder / "job.textproto", "--data-root", folder,
         "--out", folder / "out"], check=True, stdout=subprocess.DEVNULL)
    return folder / "out"


def random_inputs(session):
    """[STEPS, BATCH, ...], ids or what numbers of images are like."""
    generator = numpy.random.default_rng(1)
    info, = session.get_inputs()
    shape = (STEPS, BATCH, *info.shape[1:])
    if info.type == "tensor(int64)":
        return generator.integers(0, 256, shape, dtype=numpy.int64)
    return generator.random(shape, dtype=numpy.float32)


def our_outputs(program, model, inputs, labels, folder):
    with open(folder / "batches", "wb") as out:
        out.write(inputs.tobytes())
        out.write(numpy.zeros(STEPS * BATCH * labels, numpy.float32).tobytes())
    subprocess.run(
        [program, "--model", model, "--batches", folder / "batches",
         "--steps", str(STEPS), "--batch-size", str(BATCH),
         "--outputs", folder / "outputs"], check=True)
    return numpy.fromfile(folder / "outputs", numpy.float32)


def outputs_differ(program, model, folder):
    """The largest difference of any output."""
    session = onnxruntime.InferenceSession(
        str(model), providers=["CPUExecutionProvider"])
    inputs = random_inputs(session)
    name = session.get_inputs()[0].name
    theirs = numpy.stack([session.run(None, {name: x})[0] for x in inputs])
    labels = int(numpy.prod(theirs.shape[2:-1]))
    ours = our_outputs(program, model, inputs, labels, folder)
    assert theirs.std() > 0.01, "the outputs are all alike"
    return abs(ours.reshape(theirs.shape) - theirs).max()


def check_tensors(model, tensors):
    """trained.safetensors has the model's weights, all of them, as they are."""
    expected = {i.name: onnx.numpy_helper.to_array(i)
                for i in model.graph.initializer
                if i.data_type == onnx.TensorProto.FLOAT}
    found = load_file(str(tensors))
    assert found.keys() == expected.keys(), (found.keys(), expected.keys())
    for name, tensor in expected.items():
        assert found[name].shape == tensor.shape, name
        assert (found[name] == tensor).all(), name
    return len(found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("synctl")
    options = parser.parse_args()
    bad = 0
    for model, settings, name, data in CASES:
        with tempfile.TemporaryDirectory() as path:
            folder = pathlib.Path(path)
            out = train(options.synctl, model, settings, name, data, folder)
            trained = onnx.load(str(out / "trained.onnx"))
            onnx.checker.check_model(trained, full_check=True)
            count = check_tensors(trained, out / "trained.safetensors")
            submitted = onnx.load(str(folder / "model.onnx"))
            assert trained != submitted, "it was not trained"
            differ = outputs_differ(options.program, out / "trained.onnx",
                                    folder)
            ok = differ <= TOLERANCE
            bad += not ok
            print(f"{model}: {count} tensors; outputs in ONNX Runtime "
                  f"{onnxruntime.__version__} differ by {differ:.1e}"
                  f"{'' if ok else ': too much'}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
