#!/usr/bin/env python3
"""Holds tests and sources together.

tests/unit/<folder>/x_test.cc tests <folder>/x.cc (or .h), so a reader can
predict where a test is; and every *_test.cc and *_fuzz.cc is named in a
CMakeLists.txt of its folder or above, so that none is silently left out.
"""

import pathlib
import re
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


def registered(test):
    path = ROOT / test
    for folder in path.parents:
        listing = folder / "CMakeLists.txt"
        name = re.escape(str(path.relative_to(folder)))
        if listing.exists() and re.search(rf"(^|[\s(\"/]){name}\b", listing.read_text()):
            return True
        if folder == ROOT / "tests":
            return False
    return False


def main():
    tests = tracked("tests/*_test.cc")
    problems = [p for t in tests if t.startswith("tests/unit/") and (p := mirror_problem(t))]
    everything = tests + tracked("tests/*_fuzz.cc")
    problems += [f"{t}: not registered in any CMakeLists.txt"
                 for t in everything if not registered(t)]
    print("\n".join(problems) if problems else f"mirror: {len(everything)} tests")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
