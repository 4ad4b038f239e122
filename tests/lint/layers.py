#!/usr/bin/env python3
"""Holds the layers: who may include what.

A room (a folder of sources) may include itself, the rooms named for it below, and
no other; so no two rooms include each other. The libraries below may be included only where they are listed. Composition roots
(*/main.cc) may include every role. Also: x.cc includes x.h first, which keeps
headers self-contained.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Room -> rooms that it may include besides itself, lowest first. "common" is all of
# common/, "kernels" all of kernels/. "worker/ops/." is that folder alone, without
# the rooms inside it.
LAYERS = {
    "common/base": [],
    "common/system": ["common/base"],
    "common/job": ["common/base", "common/system", "proto"],
    # Whom certificates and tokens name, and what those may do.
    "common/security": ["common/base", "common/system", "common/job"],
    "common/rpc": ["common/base", "common/system", "common/security", "proto"],
    # Decisions about cuts, for whichever member wants one.
    "common/cuts": ["common/base"],
    "common/wire": ["common/base", "common/cuts", "proto"],
    # The state of a shard as records, for whoever has one.
    "common/state": ["common/base", "proto"],
    "common/checkpoint": ["common/base", "common/system", "common/cuts", "common/job",
                          "common/state", "common/wire", "common/update", "proto"],
    # How a job trains from which clock on.
    "common/regime": ["common/base", "common/job", "common/wire", "proto"],
    "common/cluster": ["common/base", "common/system", "common/job", "common/rpc",
                       "proto"],
    "common/daemon": ["common/base", "common/system", "common/security", "common/rpc",
                      "common/cluster"],
    "common/model/graph": ["common/base"],
    "common/model/inference": ["common/base", "common/model/graph"],
    "common/model/import": ["common/base", "common/model/graph",
                            "common/model/inference"],
    "common/model": ["common/base", "common/system", "common/job",
                     "common/model/graph", "common/model/inference",
                     "common/model/import", "proto"],
    "common/model/zoo": ["common/base", "common/model/graph"],
    "kernels/elementwise": ["common/base"],
    "kernels/optimizer": ["common/base", "kernels/elementwise"],
    "kernels": ["common/base", "kernels/elementwise"],
    # What a device offers, then each device.
    "kernels/device": ["common/base", "kernels/elementwise",
                       "kernels/optimizer", "kernels/."],
    "kernels/cpu": ["common/base", "kernels/elementwise", "kernels/.",
                    "kernels/device"],
    "kernels/cuda": ["common/base", "kernels/elementwise",
                     "kernels/optimizer", "kernels/.", "kernels/device"],
    "kernels/reference": ["common/base", "kernels"],
    # The arithmetic of updates, for whoever owns parameters: a ps, or a worker.
    "common/update": ["common/base", "common/system", "common/job", "common/regime",
                      "common/wire", "kernels/optimizer", "proto"],
    "server/consistency": ["common/base", "common/cuts", "common/regime", "common/wire",
                           "common/update"],
    "server/lanes": ["common/base", "common/system", "common/update",
                     "server/consistency"],
    "server/memory": ["common/base", "common/system", "common/wire"],
    "server/tables": ["common/base", "common/state", "common/wire",
                      "kernels/optimizer", "common/update", "server/memory"],
    "server/spill": ["common/base", "common/system", "server/tables"],
    "server/shard": ["common", "kernels/optimizer", "proto", "server/consistency",
                     "server/lanes", "server/memory", "server/tables"],
    "server/checkpoint": ["common", "proto", "server/consistency", "server/lanes",
                          "server/memory", "server/tables", "server/shard"],
    "server/service": ["common", "proto", "server/lanes", "server/memory",
                       "server/tables", "server/spill", "server/shard",
                       "server/checkpoint"],
    "worker/ops": ["common/base", "common/model/graph", "kernels"],
    # What is common to the families of operators, then the families. Nothing outside
    # of worker/ops includes a family: the table in worker/ops leads to all of them.
    "worker/ops/tensor": ["common/base", "common/model/graph", "kernels",
                          "worker/ops/."],
    "worker/ops/elementwise": ["common/base", "common/model/graph", "kernels",
                               "worker/ops/."],
    "worker/ops/reduction": ["common/base", "common/model/graph", "kernels",
                             "worker/ops/.", "worker/ops/elementwise",
                             "worker/ops/tensor"],
    "worker/ops/fused": ["common/base", "common/model/graph", "kernels",
                         "worker/ops/."],
    "worker/ops/linear": ["common/base", "common/model/graph", "kernels",
                          "worker/ops/.", "worker/ops/tensor"],
    "worker/ops/nn": ["common/base", "common/model/graph", "kernels", "worker/ops/.",
                      "worker/ops/reduction", "worker/ops/tensor"],
    "worker/ops/recurrent": ["common/base", "common/model/graph", "kernels",
                             "worker/ops/."],
    "worker/data/reading": ["common/base", "common/system", "proto"],
    "worker/data/formats": ["common/base", "common/system", "proto",
                            "worker/data/reading"],
    "worker/data": ["common/base", "common/system", "common/job", "proto",
                    "worker/data/reading", "worker/data/formats"],
    "worker/embedding": ["common", "kernels/optimizer", "proto", "worker/data"],
    "worker/compute": ["common", "kernels", "proto", "worker/data",
                       "worker/embedding", "worker/ops/."],
    # The GPU of a worker process, if it has one.
    "worker/device": ["common/base", "common/system", "common/daemon",
                      "kernels/device", "kernels/cuda"],
    # What a rank needs of the others, by any way. Those who train and evaluate know
    # this room, and not the ways behind it.
    "worker/exchange": ["common/base", "common/system", "common/cuts",
                        "common/regime", "common/wire", "kernels/optimizer",
                        "worker/embedding", "worker/compute", "worker/ops/."],
    # Messages between ranks, and what is summed with them.
    "worker/collectives": ["common/base", "common/system", "common/job", "common/rpc",
                           "kernels/optimizer", "proto"],
    "worker/client/transport": ["common", "proto"],
    "worker/client": ["common", "kernels/optimizer", "proto", "worker/embedding",
                      "worker/compute", "worker/exchange", "worker/ops/.",
                      "worker/client/transport"],
    # A job without ps.
    "worker/peers": ["common", "kernels/optimizer", "proto", "worker/embedding",
                     "worker/compute", "worker/exchange", "worker/ops/.",
                     "worker/client/transport", "worker/collectives"],
    "worker/job": ["common", "kernels/device", "kernels/optimizer", "proto", "worker/data",
                   "worker/embedding", "worker/compute", "worker/exchange",
                   "worker/client", "worker/collectives", "worker/peers"],
    "worker/evaluation": ["common", "proto", "worker/data", "worker/embedding",
                          "worker/compute", "worker/exchange", "worker/job"],
    "worker/export": ["common", "proto", "worker/job"],
    "worker/training": ["common", "kernels/device", "kernels/optimizer", "proto", "worker/data",
                        "worker/embedding", "worker/compute",
                        "worker/exchange", "worker/job",
                        "worker/evaluation", "worker/export"],
    "scheduler/core": ["common/base", "common/job", "proto"],
    "scheduler/core/job": ["common/base", "common/cuts", "common/job", "common/regime",
                           "proto", "scheduler/core/."],
    "scheduler/core/cluster": ["common/base", "common/job", "proto", "scheduler/core/.",
                               "scheduler/core/job"],
    "scheduler/service": ["common", "proto", "scheduler/core"],
    "scheduler/ctl/text": ["common/base", "common/job", "common/model", "proto"],
    "scheduler/ctl": ["common", "proto", "scheduler/core", "scheduler/ctl/text"],
    # The scheduler inside another process, with the job of its command line.
    "scheduler": ["common", "scheduler/service", "scheduler/ctl"],
    "tests": ["common", "kernels", "server", "worker", "scheduler", "proto"],
}

# Header pattern -> path patterns that may include it.
EXTERNAL = {
    r"onnx/": r"^(common/model/|tests/(unit/common/model/|testing/onnx_node_case\.cc$))",
    r"dnnl|oneapi/dnnl": r"^kernels/",
    r"cuda_runtime|cublas|cudnn|nccl": r"^kernels/cuda/",
    r"boost/": r"^tests/testing/cuda_emulator/",
    r"rocksdb/": r"^(scheduler/service/state_store|tests/)",
    r"prometheus/": r"^common/daemon/metrics\.cc$",
    r"openssl/": r"^(common/security/(certificate|signature_key)\.cc$|tests/bench/"
    r"|worker/collectives/(tls_stream|peer_hello)\."
    r"|tests/testing/web_token_signer\.h$|tests/unit/common/(rpc|security)/"
    r"|tests/unit/worker/collectives/tls_stream_test)",
    r"civetweb": r"^(common/daemon/http_server\.cc$|tests/)",
    r"CLI/": r"^(common|scheduler|server|worker|tests)/.*\.cc$",
    r"grpc|proto/.*\.grpc\.pb\.h": r"^(common/(rpc|wire|cluster|daemon)|server|worker|scheduler|tests)/",
    r"google/protobuf/": r"^(?!common/(base|system)/|kernels/)",
    r"gtest/|gmock/": r"^tests/",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')


def layer_of(path):
    """The longest one that the path lies in."""
    inside = [layer for layer in LAYERS if path.startswith(layer + "/")]
    return max(inside, key=len, default=None)


def is_root(path):
    return path.endswith("/main.cc")


def allows(room, header):
    if room.endswith("/."):
        return layer_of(header) == room[:-2]
    return header.startswith(room + "/")


def layer_problem(path, header):
    if not (ROOT / header).exists() and not header.startswith("proto/"):
        return None  # a library's or the system's
    if is_root(path):
        return None
    layer = layer_of(path)
    if layer is None:
        return f"{path} is in no known room"
    if layer_of(header) == layer:
        return None
    if any(allows(room, header) for room in LAYERS[layer]):
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
        ["git", "ls-files", "-co", "--exclude-standard", "*.cc", "*.cu", "*.h"],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    files = [f for f in listed if (ROOT / f).exists()]
    problems = [p for path in files for p in problems_of(path)]
    print("\n".join(problems) if problems else f"layers: {len(files)} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
