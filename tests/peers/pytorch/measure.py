"""Trains what make_exports.py wrote with Syncline's executor and says which
files train as PyTorch does, which are refused, and which train wrongly.

  measure.py PEER_STEPS FOLDER [--ways WAY,...] [CASE ...]

Writes FOLDER/STATUS.md and FOLDER/status.json. A file is faithful if each loss,
each parameter that PyTorch trains and each running statistic is PyTorch's, but
for rounding, and if nothing else has moved.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import numpy_helper

LOSS_TOLERANCE = 1e-4
# Of a parameter's difference: relative to how far PyTorch moved it, and to its
# norm. A unit that is on for one program and off for the other moves a weight by
# some thousandths of that; of a running statistic it moves nothing.
MOVE_TOLERANCE, STATISTIC_TOLERANCE, NORM_TOLERANCE = 1e-2, 1e-3, 2e-6
# How many times as far from float64 as PyTorch's float32 ours may be.
CHAOTIC_FACTOR = 10

norm = numpy.linalg.norm


class Reference:
    def __init__(self, folder):
        arrays = numpy.load(folder / "torch.npz")
        self.trained = set(arrays["trained"].tolist())
        self.initial, self.final, self.exact = (
            {key[len(part):]: arrays[key] for key in arrays
             if key.startswith(part)}
            for part in ("initial/", "float32/", "float64/"))
        self.momenta = {key[len("momentum/"):]: float(arrays[key])
                        for key in arrays if key.startswith("momentum/")}
        self.losses = self.final.pop("losses")
        self.exact_losses = self.exact.pop("losses", self.losses)

    def start_statistic(self, name, values):
        """The file's running statistic is one that the export has moved: it ran
        the model once. What they become is linear in what they begin with."""
        kept = (1 - self.momenta[name]) ** len(self.losses)
        for final in (self.final, self.exact):
            if name in final:
                final[name] = final[name] + kept * (
                    values.astype(numpy.float64) - self.initial[name])
        self.initial[name] = values

    def loss_bound(self):
        chaos = CHAOTIC_FACTOR * numpy.abs(self.losses - self.exact_losses)
        return numpy.maximum(LOSS_TOLERANCE * numpy.abs(self.losses), chaos)

    def bound(self, name):
        want = self.final[name].ravel()
        moved = norm(want - self.initial[name].ravel())
        chaos = norm(want - self.exact.get(name, self.final[name]).ravel())
        part = STATISTIC_TOLERANCE if name in self.momenta else MOVE_TOLERANCE
        return max(part * moved + NORM_TOLERANCE * norm(want) + 1e-7,
                   CHAOTIC_FACTOR * chaos)

    def close(self, name, ours):
        want = self.final[name].ravel()
        return norm(ours.astype(numpy.float64) - want) <= self.bound(name)

    def has_moved(self, name):
        change = norm(self.final[name] - self.initial[name])
        return change > 1e-6 * norm(self.initial[name]) + 1e-9


def run_ours(program, case, folder, way, extra):
    """(losses, parameters by name, None) or (None, None, the refusal)."""
    train = case.get("train", ()) if way.startswith("older") else ()
    extra = [*extra, *(word for t in train for word in ("--train", t))]
    with tempfile.TemporaryDirectory() as scratch:
        weights = pathlib.Path(scratch) / "weights"
        run = subprocess.run(
            [program, "--model", folder / f"{way}.onnx", "--batches",
             folder / "batches", "--steps", str(case["steps"]), "--batch-size",
             str(case["batch"]), "--optimizer", "sgd", "--loss", case["loss"],
             "--rate", str(case["rate"]), "--weights", weights, *extra],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            timeout=120)
        if run.returncode != 0:
            return None, None, run.stderr.strip() or f"exit {run.returncode}"
        values = numpy.fromfile(weights, dtype=numpy.float32)
    losses, parameters = [], {}
    for line in run.stdout.split("\n"):
        words = line.split()
        if line.startswith("loss"):
            losses.append(float(words[1]))
        elif line.startswith("parameter"):
            count = int(words[-1])
            name = line[len("parameter "):line.rindex(" ")]
            parameters[name], values = values[:count], values[count:]
    return numpy.array(losses), parameters, None


def file_values(path):
    graph = onnx.load(path).graph
    values = {i.name: numpy_helper.to_array(i) for i in graph.initializer
              if i.data_type == onnx.TensorProto.FLOAT}
    # Parameters that were merged, and have one of their own again.
    values.update({node.output[0]: values[node.input[0]] for node in graph.node
                   if node.op_type == "Identity" and node.input[0] in values})
    return values


def same(initial, values):
    """Of any shape that differs in dimensions of 1 only."""
    return ([n for n in initial.shape if n != 1] ==
            [n for n in values.shape if n != 1] and
            (initial.ravel() == values.ravel()).all())


def counterparts(name, values, reference):
    """PyTorch's names for a weight of the file, which may be its transpose, with
    whether it is."""
    if name in reference.initial and same(reference.initial[name], values):
        return [(name, False)]
    found = []
    for key, initial in reference.initial.items():
        if same(initial, values):
            found.append((key, False))
        elif initial.T.shape == values.shape and (initial.T == values).all():
            found.append((key, True))
    return found


def verdict(program, folder, way, extra=()):
    """(state, why)."""
    if (folder / f"{way}.failed").exists():
        text = (folder / f"{way}.failed").read_text().strip()
        return "not exported", text.split("\n")[-1][:200]
    if not (folder / f"{way}.onnx").exists():
        return "none", ""
    case = json.loads((folder / "case.json").read_text())
    reference = Reference(folder)
    try:
        losses, parameters, refusal = run_ours(program, case, folder, way, extra)
    except subprocess.TimeoutExpired:
        return "WRONG", "hangs"
    if refusal is not None:
        word = "refused" if "INVALID_ARGUMENT" in refusal else "FAILED"
        return word, refusal
    problems = []
    off = numpy.abs(losses - reference.losses) / reference.loss_bound()
    if not (off <= 1).all():
        problems.append("losses differ by {:.1e}".format(numpy.max(
            numpy.abs(losses - reference.losses) / abs(reference.losses))))
    values = file_values(folder / f"{way}.onnx")
    seen = set()
    for name, tensor in values.items():
        if name in reference.momenta:
            reference.start_statistic(name, tensor)
    for name, ours in parameters.items():
        initial = values[name]
        keys = counterparts(name, initial, reference)
        if not keys and re.match("onnx::(LSTM|GRU|RNN)_", name):
            continue  # gates in another order; the losses speak for them
        if not keys:
            if norm(ours - initial.ravel()) > 1e-7 * norm(initial):
                problems.append(f"'{name}' moved, which PyTorch does not have")
            continue
        good = [key for key, turned in keys if reference.close(
            key, ours.reshape(initial.shape).T.ravel() if turned else ours)]
        fresh = [key for key in good if key not in seen]
        seen.update(fresh[:1] or good[:1])
        if not good:
            seen.update(key for key, _ in keys)
            problems.append(f"'{name}' differs")
    reordered = any(re.match("onnx::(LSTM|GRU|RNN)_", n) for n in parameters)
    for name, tensor in reference.initial.items():
        if reordered and re.search("(weight|bias)_[ih]h_l", name):
            continue
        twin = [other for other in reference.initial
                if other in seen and tensor.shape ==
                reference.initial[other].shape and (
                    reference.final[other] == reference.final[name]).all()]
        if name not in seen and not twin and reference.has_moved(name):
            problems.append(f"'{name}' is not trained")
    if problems:
        return "WRONG", "; ".join(problems[:4]) + (
            f"; and {len(problems) - 4} more" if len(problems) > 4 else "")
    return "faithful", ""


def reason(text):
    """A refusal without what names this file only."""
    line = next((l for l in text.split("\n") if l.strip()), text)
    line = re.sub(r"^peer_steps: INVALID_ARGUMENT: ", "", line)
    return re.sub(r"'[^']*'", "'...'", re.sub(r"\b\d+\b", "#", line))[:160]


def write_status(folder, results, commit):
    ways = list(dict.fromkeys(way for _, way in results))
    names = list(dict.fromkeys(name for name, _ in results))
    out = [f"# What trains as PyTorch does, at {commit}\n", "| way | files | "
           "faithful | refused | WRONG | not exported by PyTorch |",
           "| --- | --- | --- | --- | --- | --- |"]
    for way in ways:
        states = collections.Counter(
            state for (_, w), (state, _) in results.items() if w == way)
        files = sum(states.values()) - states["none"] - states["not exported"]
        percent = 100 * states["faithful"] / max(files, 1)
        out.append(
            f"| {way} | {files} | {states['faithful']} ({percent:.0f} %) | "
            f"{states['refused'] + states['FAILED']} | {states['WRONG']} | "
            f"{states['not exported']} |")
    for way in ways:
        out.append(f"\n## Reasons: {way}\n")
        reasons = collections.defaultdict(list)
        for (name, w), (state, why) in results.items():
            if w == way and state not in ("faithful", "none"):
                reasons[f"{state}: {reason(why)}"].append(name)
        for text, cases in sorted(reasons.items(), key=lambda r: -len(r[1])):
            out.append(f"- {len(cases)} x {text} -- {', '.join(cases)}")
    out.append("\n## Each\n\n| case | " + " | ".join(ways) + " |")
    out.append("| --- |" + " --- |" * len(ways))
    for name in names:
        cells = [results[name, way][0] for way in ways]
        out.append(f"| {name} | " + " | ".join(
            "" if c == "none" else c for c in cells) + " |")
    out.append("\n## Whole messages\n")
    for (name, way), (state, why) in results.items():
        if state not in ("faithful", "none"):
            out.append(f"### {name} {way}: {state}\n```\n{why[:1500]}\n```")
    (folder / "STATUS.md").write_text("\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ways")
    parser.add_argument("--commit", default="this commit")
    parser.add_argument("--extra", default="", help="for PEER_STEPS")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    ways = (options.ways or "older,older-plain,unoptimized,unoptimized-eval,"
            "default,default-eval").split(",")
    names = options.cases or sorted(
        path.parent.name for path in options.folder.glob("*/torch.npz"))
    jobs = [(name, way) for name in names for way in ways]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        states = list(pool.map(
            lambda job: verdict(options.program.resolve(),
                                options.folder / job[0], job[1],
                                options.extra.split()), jobs))
    results = dict(zip(jobs, states))
    if options.cases:
        for (name, way), (state, why) in results.items():
            print(f"{name} {way}: {state} {why}")
        return
    write_status(options.folder, results, options.commit)
    (options.folder / "status.json").write_text(
        json.dumps([[*job, *state] for job, state in results.items()]))
    print("\n".join((options.folder / "STATUS.md").read_text()
                    .split("\n")[:10]))


if __name__ == "__main__":
    sys.exit(main())
