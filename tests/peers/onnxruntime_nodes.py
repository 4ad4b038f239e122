#!/usr/bin/python3
"""Computes single nodes as ONNX Runtime does, where ONNX's own cases are few.

  onnxruntime_nodes.py ONNX_NODE_TEST

Draws settings and inputs of recurrent networks, convolutions and pools, writes
each node with what ONNX Runtime makes of it as a case of ONNX's suite, and has
ONNX_NODE_TEST (tests/component/onnx_node_test.cc) run them. Left out is what
ONNX Runtime has otherwise than ONNX: ceil_mode, auto_pad of dilated pools, and
activations of a plain RNN whose alpha and beta are not given. Exits with 77
where the packages are not installed.
"""

import os
import pathlib
import random
import subprocess
import sys
import tempfile

import packages

packages.use_build_python()
try:
    import numpy
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError as missing:
    packages.skip(missing)

SEED = 5
OPSETS = (14, 17, 21)
ACTIVATIONS = {  # with as many alphas and betas as each has
    "Affine": (0.5, 0.1), "Elu": (0.7,), "HardSigmoid": (0.3, 0.4),
    "LeakyRelu": (0.2,), "Relu": (), "ScaledTanh": (1.3, 0.6), "Sigmoid": (),
    "Softplus": (), "Softsign": (), "Tanh": (), "ThresholdedRelu": (0.1,)}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}


class Draw:
    def __init__(self):
        self.random = random.Random(SEED)
        self.numpy = numpy.random.default_rng(SEED)

    def __getattr__(self, name):
        return getattr(self.random, name)

    def floats(self, *shape):
        return self.numpy.standard_normal(shape).astype(numpy.float32)

    def often(self):
        return self.random.random() < 0.5


def recurrent_node(draw, op):
    """Operator, inputs (None: left out), attributes and the outputs' number."""
    steps, samples, width, hidden = 4, 3, 2, 3
    both = draw.often()
    directions = 2 if both else 1
    rows = GATES[op] * hidden
    lengths = numpy.array([4, 2, 3], numpy.int32)
    state = (directions, samples, hidden)
    inputs = [draw.floats(steps, samples, width),
              draw.floats(directions, rows, width) / 2,
              draw.floats(directions, rows, hidden) / 2,
              draw.floats(directions, 2 * rows),
              lengths if draw.often() else None, draw.floats(*state)]
    settings = {"hidden_size": hidden,
                "direction": "bidirectional" if both else
                             draw.choice(["forward", "reverse"])}
    if draw.often():
        functions = draw.choices(list(ACTIVATIONS), k=FUNCTIONS[op])
        # Its RNN reads numbers of a direction that has none.
        functions = directions * functions if op == "RNN" else (
            functions + draw.choices(list(ACTIVATIONS),
                                     k=(directions - 1) * FUNCTIONS[op]))
        numbers = [ACTIVATIONS[name] for name in functions]
        settings["activations"] = functions
        for i, name in enumerate(["activation_alpha", "activation_beta"]):
            if any(len(n) > i for n in numbers):
                settings[name] = [n[i] for n in numbers if len(n) > i]
    if draw.often():
        settings["clip"] = 0.5
    if op == "GRU":
        settings["linear_before_reset"] = draw.randint(0, 1)
    if op == "LSTM":
        settings["input_forget"] = draw.randint(0, 1)
        inputs += [draw.floats(*state),
                   draw.floats(directions, 3 * hidden) if draw.often() else None]
    return op, inputs, settings, 3 if op == "LSTM" else 2


def window_settings(draw, axes):
    kernel = [draw.randint(1, 3) for _ in range(axes)]
    settings = {"kernel_shape": kernel,
                "strides": [draw.randint(1, 3) for _ in range(axes)]}
    if draw.often():
        settings["pads"] = [draw.randint(0, min(2, k - 1)) for k in kernel * 2]
        settings["dilations"] = [draw.randint(1, 2) for _ in range(axes)]
    elif draw.often():
        # A stride that is larger than the window pads by less than nothing.
        settings["strides"] = [min(k, s) for k, s in
                               zip(kernel, settings["strides"])]
        settings["auto_pad"] = draw.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    return settings


def window_node(draw, op):
    axes, group = draw.randint(1, 3), draw.randint(1, 2)
    settings = window_settings(draw, axes)
    kernel = settings["kernel_shape"]
    image = draw.floats(2, 2 * group, *(draw.randint(6, 9) for _ in range(axes)))
    if op == "AveragePool":
        settings["count_include_pad"] = draw.randint(0, 1)
        settings.pop("dilations", None)  # since opset 19
    if op.endswith("Pool"):
        return op, [image], settings, 1
    settings["group"] = group
    if op == "Conv":
        filters = [2 * group, 2, *kernel]
    else:
        filters = [2 * group, 3, *kernel]
        settings["output_padding"] = [draw.randint(0, s - 1)
                                      for s in settings["strides"]]
        if "auto_pad" in settings and draw.often():
            settings["output_shape"] = [
                n * s for n, s in zip(image.shape[2:], settings["strides"])]
            del settings["output_padding"]
    bias = draw.floats(filters[0] if op == "Conv" else 3 * group)
    return op, [image, draw.floats(*filters), bias], settings, 1


def write(folder, op, inputs, settings, outputs, opset):
    """The node as a case of ONNX's suite; False: ONNX Runtime has it not."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    fed = {name: x for name, x in zip(names, inputs) if name}
    results = [f"y{i}" for i in range(outputs)]

    def value(name, x):
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)

    def model(output_values):
        graph = helper.make_graph(
            [helper.make_node(op, names, results, **settings)], op,
            [value(name, x) for name, x in fed.items()], output_values)
        return helper.make_model(
            graph, ir_version=8,
            opset_imports=[helper.make_opsetid("", opset)]).SerializeToString()

    untyped = [helper.make_empty_tensor_value_info(name) for name in results]
    asked = model(untyped)
    try:
        ys = onnxruntime.InferenceSession(
            asked, providers=["CPUExecutionProvider"]).run(None, fed)
    except Exception as e:  # no common base
        assert "not supported" in str(e), f"{op} {settings}: {e}"
        return False
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(
        model([value(name, y) for name, y in zip(results, ys)]))
    for kind, arrays in (("input", fed.values()), ("output", ys)):
        for i, x in enumerate(arrays):
            (data / f"{kind}_{i}.pb").write_bytes(
                numpy_helper.from_array(x).SerializeToString())
    return True


def main():
    onnxruntime.set_default_logger_severity(4)
    draw = Draw()
    with tempfile.TemporaryDirectory() as root:
        suite = pathlib.Path(root) / "onnx/node"
        written = 0
        for i in range(40):
            nodes = [recurrent_node(draw, op) for op in GATES]
            nodes += [window_node(draw, op) for op in (
                "Conv", "ConvTranspose", "MaxPool", "AveragePool")]
            for node in nodes:
                opset = draw.choice(OPSETS)
                written += write(suite / f"test_{node[0]}_{i}", *node, opset)
        assert written > 200, written
        print(written, "nodes", flush=True)
        return subprocess.run(
            [sys.argv[1]],
            env=os.environ | {"SYNCLINE_TEST_DATA": root}).returncode


if __name__ == "__main__":
    sys.exit(main())
