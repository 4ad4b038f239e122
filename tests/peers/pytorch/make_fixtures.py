"""Makes the files of pytorch_exports_test.cc from what make_exports.py wrote.

  make_fixtures.py EXPORTS STATUS FOLDER

EXPORTS is what make_exports.py wrote, STATUS the status.json that measure.py
made of it. Files that train faithfully become fixtures, and some that
are refused with a remedy, "refused-WAY.onnx"; large ones do not. What PyTorch noted of
its source code is taken out: it is most of a file, and names folders of the
machine. README.md says with which versions they were made.
"""

import argparse
import collections
import json
import pathlib
import shutil
import sys

import numpy
import onnx

import measure

FILE_BYTES_MAX = 100_000
# The remedy that a refusal must name, and the models whose refused files are
# kept.
REMEDIES = {"default": "optimize=False",
            "older-plain": "do_constant_folding=False"}
REFUSED = ("batchnorm-cnn", "gpt-sdpa", "hf-albert", "hf-bert-eager",
           "instancenorm-cnn", "resnet18", "transformer-encoder",
           "two-layernorms-mlp", "vgg-bn")
TRAINED_WAYS = ("older", "older-plain", "unoptimized")
DROPPED_PROPERTIES = ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node",
                      "pkg.torch.onnx.name_scopes", "namespace",
                      "pkg.torch.onnx.class_hierarchy",
                      "pkg.torch.export.ExportedProgram.graph")


def strip(items):
    for item in items:
        kept = [(p.key, p.value) for p in item.metadata_props
                if p.key not in DROPPED_PROPERTIES]
        del item.metadata_props[:]
        for key, value in kept:
            item.metadata_props.add(key=key, value=value)


def stripped(path):
    model = onnx.load(path)
    strip([model, model.graph, *model.graph.node, *model.graph.value_info,
           *model.graph.input, *model.graph.output, *model.graph.initializer])
    return model.SerializeToString()


def keeps_names(path):
    """Whether no weight has a name of the exporter's; what it merged must be
    there, or the file tests nothing that others do not."""
    graph = onnx.load(path).graph
    merged = any(node.op_type == "Identity" for node in graph.node)
    return merged and not any(
        tensor.name.startswith("onnx::") for tensor in graph.initializer)


def tied_names(reference):
    """Parameters by what they are: {names}, several where one is tied."""
    groups = collections.defaultdict(list)
    for name, tensor in reference.initial.items():
        final = reference.final[name]
        alike = (tensor.tobytes(), final.tobytes(), tensor.shape)
        groups[alike].append(name)
    return groups.values()


def expected_lines(folder):
    case = json.loads((folder / "case.json").read_text())
    reference = measure.Reference(folder)
    yield f"loss {case['loss']}"
    yield f"rate {case['rate']}"
    yield f"batch {case['batch']}"
    for pattern in case.get("train", ()):
        yield f"train {pattern}"
    for loss, bound in zip(reference.losses, reference.loss_bound()):
        yield f"step {loss:.9g} {bound:.3g}"
    for names in tied_names(reference):
        # A tensor that stays as it is has no direction that tells it from
        # another.
        changed = reference.has_moved(names[0]) or (
            names[0] in reference.momenta)
        if not changed and names[0] not in reference.trained:
            continue
        kept = 1.0
        if names[0] in reference.momenta:
            kept = (1 - reference.momenta[names[0]]) ** len(reference.losses)
        final = reference.final[names[0]].ravel().astype(numpy.float64)
        change = final - kept * reference.initial[names[0]].ravel()
        projection = (change * numpy.cos(numpy.arange(len(change)))).sum()
        yield (f"parameter {'|'.join(names)} {kept:.9g} "
               f"{numpy.linalg.norm(change):.9g} {projection:.9g} "
               f"{2 * reference.bound(names[0]):.3g}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("exports", type=pathlib.Path)
    parser.add_argument("status", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    total = 0
    for name, way, state, why in json.loads(options.status.read_text()):
        source, target = options.exports / name, options.folder / name
        trains = way in TRAINED_WAYS and state == "faithful"
        is_refused = (name in REFUSED and state == "refused" and
                      way in REMEDIES and REMEDIES[way] in why)
        if not trains and not is_refused:
            continue
        if trains and way == "older-plain" and not keeps_names(
                source / f"{way}.onnx"):
            continue
        content = stripped(source / f"{way}.onnx")
        if len(content) > FILE_BYTES_MAX:
            print(f"{name} {way}: {len(content)} bytes are too many")
            continue
        target.mkdir(parents=True, exist_ok=True)
        prefix = "" if trains else "refused-"
        (target / f"{prefix}{way}.onnx").write_bytes(content)
        shutil.copy(source / "batches", target / "batches")
        text = "\n".join(expected_lines(source)) + "\n"
        (target / "expected").write_text(text)
        total += len(content) + len(text)
    print(total, "bytes")


if __name__ == "__main__":
    sys.exit(main())
