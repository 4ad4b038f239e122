#!/usr/bin/env python3
"""Holds the layers: who may include what.

A folder may include itself, the folders named for it below, and no other. The
libraries below may be included only where they are listed. Composition roots
(*/main.cc) may include every role. Also: x.cc includes x.h first, which keeps
headers self-contained.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Folder, most specific first -> folders it may include besides itself.
LAYERS = {
    "common/base": [],
    "common/rpc": ["common/base", "proto"],
    "common/wire": ["common/base", "common/rpc", "proto"],
    "common/model": ["common/base", "proto", "common/rpc/job_spec_fields.h",
                     "common/rpc/job_spec_follow_ons.h",
                     "common/rpc/job_spec_validator.h"],
    "kernels": ["common/base"],
    "server": ["common", "kernels", "proto"],
    "worker": ["common", "kernels", "proto"],
    "scheduler": ["common", "proto"],
    "tests": ["common", "kernels", "server", "worker", "scheduler", "proto"],
}

# Header pattern -> path patterns that may include it.
EXTERNAL = {
    r"onnx/": r"^(common/model/|tests/(unit/common/model/|testing/onnx_node_case\.cc$))",
    r"dnnl|oneapi/dnnl": r"^kernels/",
    r"rocksdb/": r"^(scheduler/state_store|tests/)",
    r"prometheus/": r"^common/rpc/metrics\.cc$",
    r"civetweb": r"^(common/rpc/http_server\.cc$|tests/)",
    r"CLI/": r"^(common|scheduler|server|worker|tests)/.*\.cc$",
    r"grpc|proto/.*\.grpc\.pb\.h": r"^(common/(rpc|wire)|server|worker|scheduler|tests)/",
    r"google/protobuf/": r"^(?!common/base/|kernels/)",
    r"gtest/|gmock/": r"^tests/",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')


def layer_of(path):
    return next((layer for layer in LAYERS if path.startswith(layer + "/")), None)


def is_root(path):
    return path.endswith("/main.cc")


def layer_problem(path, header):
    if not (ROOT / header).exists() and not header.startswith("proto/"):
        return None  # a library's or the system's
    layer = layer_of(path)
    if layer is None:
        return f"{path} is in no known layer"
    allowed = LAYERS[layer] + [layer]
    if is_root(path):
        allowed = allowed + ["server", "worker", "scheduler"]
    if any(header == a or header.startswith(a + "/") for a in allowed):
        return None
    return f"{layer} may not include {header}"


def external_problem(path, header):
    for pattern, allowed in EXTERNAL.items():
        if re.match(pattern, header) and not re.match(allowed, path):
            return f"{header} may be included only where {allowed}"
    return None


def problems_of(path):
    lines = (ROOT / path).read_text().splitlines()
    included = [(n, m.group(1)) for n, line in enumerate(lines, 1)
                if (m := INCLUDE.match(line))]
    for number, header in included:
        for problem in (layer_problem(path, header), external_problem(path, header)):
            if problem:
                yield f"{path}:{number}: {problem}"
    own = path[:-3] + ".h"
    if path.endswith(".cc") and (ROOT / own).exists():
        if not included or included[0][1] != own:
            yield f"{path}: the first include must be {own}"


def main():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.cc", "*.h"],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    files = [f for f in listed if (ROOT / f).exists()]
    problems = [p for path in files for p in problems_of(path)]
    print("\n".join(problems) if problems else f"layers: {len(files)} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
