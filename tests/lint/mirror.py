#!/usr/bin/env python3
"""Holds tests and sources together.

  mirror.py BUILD_DIR

tests/unit/<folder>/x_test.cc tests <folder>/x.cc (or .h), so a reader can
predict where a test is; and every *_test.cc and *_fuzz.cc is part of the build
configured in BUILD_DIR, so that none is silently left out.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tracked(pattern):
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", pattern],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return [f for f in listed if (ROOT / f).exists()]


def mirror_problem(test):
    stem = test[len("tests/unit/"):-len("_test.cc")]
    if any((ROOT / (stem + suffix)).exists() for suffix in (".cc", ".h")):
        return None
    return f"{test}: there is no {stem}.cc or {stem}.h"


def built(build):
    """The sources that the configured build knows, relative to the root."""
    commands = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    return {os.path.relpath(entry["file"], ROOT) for entry in commands}


def main():
    tests = tracked("tests/*_test.cc")
    problems = [p for t in tests if t.startswith("tests/unit/") and (p := mirror_problem(t))]
    everything = tests + tracked("tests/*_fuzz.cc")
    known = built(sys.argv[1])
    problems += [f"{t}: no CMakeLists.txt builds it" for t in everything if t not in known]
    print("\n".join(problems) if problems else f"mirror: {len(everything)} tests")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
