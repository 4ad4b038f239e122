"""Exports the models of cases.py in each way that PyTorch has, with what
PyTorch's own training makes of them.

  make_exports.py [--missing] FOLDER [CASE ...]

Writes FOLDER/CASE/WAY.onnx, FOLDER/CASE/batches (what peer_steps.cc reads) and
FOLDER/CASE/torch.npz: losses and final parameters of training in float32 and in
float64, and the initial parameters. An export that PyTorch itself refuses is
noted in FOLDER/CASE/WAY.failed.
"""

import argparse
import copy
import functools
import json
import pathlib
import sys
import traceback
import warnings

import numpy
import torch
import transformers

import cases

SEED = 7

def export_older(module, arguments, names, path, plain=False):
    options = {} if plain else dict(
        training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    torch.onnx.export(
        module, arguments, path, dynamo=False, input_names=names,
        output_names=["scores"],
        dynamic_axes={name: {0: "batch"} for name in names + ["scores"]},
        **options)


def export_newer(module, arguments, names, path, default_path):
    """The file without optimization, and the same that torch.onnx.export() makes
    by default, which differs in its last step only."""
    program = torch.onnx.export(
        module, arguments, None, dynamo=True, optimize=False, verbose=False,
        input_names=names, output_names=["scores"],
        dynamic_shapes=tuple({0: "batch"} for _ in names))
    program.save(path, external_data=False)
    program.optimize()
    program.save(default_path, external_data=False)


# The ways of each exporter, the exporter, and whether the module is in training
# mode.
EXPORTERS = (
    (("older",), export_older, True),
    (("older-plain",), functools.partial(export_older, plain=True), True),
    (("unoptimized", "default"), export_newer, True),
    (("unoptimized-eval", "default-eval"), export_newer, False),
)


def has_modes(module):
    """Whether training and inference differ."""
    return any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm)
               for m in module.modules())


def write_batches(case, path):
    with open(path, "wb") as out:
        for tensor in case.inputs.values():
            if tensor.dtype == torch.float64:
                tensor = tensor.float()  # as feeds are
            out.write(tensor.contiguous().numpy().tobytes())
        out.write(case.labels.numpy().astype(numpy.float32).tobytes())


def loss_of(case, scores, labels):
    functional = torch.nn.functional
    if case.loss == "softmax":
        return functional.cross_entropy(
            scores.reshape(-1, scores.shape[-1]), labels.flatten())
    if case.loss == "sigmoid":
        return functional.binary_cross_entropy_with_logits(
            scores.flatten(), labels.to(scores.dtype))
    return functional.mse_loss(scores.reshape(labels.shape),
                               labels.to(scores.dtype))


def train(case, module):
    """Losses of the steps; the module is trained."""
    optimizer = torch.optim.SGD(
        [p for p in module.parameters() if p.requires_grad], lr=case.rate)
    dtype = next(module.parameters()).dtype
    losses = []
    for step in range(cases.STEPS):
        arguments = [
            x[step].to(dtype) if x.dtype == torch.float32 else x[step]
            for x in case.inputs.values()]
        optimizer.zero_grad()
        loss = loss_of(case, module(*arguments), case.labels[step])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def state_of(module):
    return {name: tensor.detach().float().numpy().copy()
            for name, tensor in module.state_dict().items()
            if tensor.is_floating_point()}


def references(case):
    """What PyTorch's training makes of the case."""
    arrays = {}
    for name, tensor in state_of(case.module).items():
        arrays["initial/" + name] = tensor
    trained = [name for name, p in
               case.module.named_parameters(remove_duplicate=False)
               if p.requires_grad]
    for dtype in (torch.float32, torch.float64):
        module = copy.deepcopy(case.module).train().to(dtype)
        word = str(dtype)[6:]
        try:
            arrays[word + "/losses"] = numpy.array(train(case, module))
        except RuntimeError as problem:
            if dtype == torch.float32:
                raise
            print("  in float64:", str(problem)[:200])
            continue
        for name, tensor in state_of(module).items():
            arrays[word + "/" + name] = tensor
    arrays["trained"] = numpy.array(trained)
    for name, module in case.module.named_modules():
        if getattr(module, "track_running_stats", False):
            for buffer in ("running_mean", "running_var"):
                key = f"momentum/{name}.{buffer}"
                arrays[key] = numpy.array(module.momentum)
    return arrays


def make(name, folder):
    torch.manual_seed(SEED)
    (folder / "done").unlink(missing_ok=True)
    case = cases.CASES[name]()
    folder.mkdir(parents=True, exist_ok=True)
    write_batches(case, folder / "batches")
    numpy.savez(folder / "torch.npz", **references(case))
    (folder / "case.json").write_text(json.dumps({
        "loss": case.loss, "rate": case.rate, "steps": cases.STEPS,
        "batch": cases.BATCH, "inputs": list(case.inputs),
        "train": case.train}))
    arguments = tuple(x[0] for x in case.inputs.values())
    for ways, export, training in EXPORTERS:
        if not training and not has_modes(case.module):
            continue
        module = copy.deepcopy(case.module).train(training)
        paths = [folder / f"{way}.onnx" for way in ways]
        for path in paths:
            path.with_suffix(".failed").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        try:
            export(module, arguments, list(case.inputs), *map(str, paths))
        except Exception as problem:
            for path in paths:
                if not path.exists():
                    path.with_suffix(".failed").write_text(
                        traceback.format_exc())
            print(f"  {name} {ways[0]}: {type(problem).__name__}: "
                  f"{str(problem)[:200]}")
    (folder / "done").touch()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--missing", action="store_true",
                        help="only those that are not there")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("torch", torch.__version__, "transformers", transformers.__version__,
          flush=True)
    for name in options.cases or cases.CASES:
        if options.missing and (options.folder / name / "done").exists():
            continue
        print(name, flush=True)
        try:
            make(name, options.folder / name)
        except Exception:
            print(f"  {name}: failed\n{traceback.format_exc()}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
