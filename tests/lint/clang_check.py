#!/usr/bin/env python3
"""Compiles every source with clang for its warnings only.

  clang_check.py BUILD_DIR JOBS

Warnings, thread safety among them, are errors. Reads the sources and flags from
BUILD_DIR/compile_commands.json and writes BUILD_DIR/clang_check/build.ninja,
so a second run checks only what changed.
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ("-I", "-D", "-isystem", "-std")
WARNINGS = "-Wall -Wextra -Wno-unused-parameter -Wthread-safety -Werror"


def kept_flags(command):
    words = iter(shlex.split(command))
    for word in words:
        if word == "-isystem":
            yield f"-isystem {next(words)}"
        elif word.startswith(KEPT):
            yield shlex.quote(word)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    out = build / "clang_check"
    out.mkdir(exist_ok=True)
    commands = json.loads((build / "compile_commands.json").read_text())
    sources = {}
    for entry in commands:
        source = pathlib.Path(entry["file"])
        inside = ROOT in source.parents and build not in source.parents
        if inside and source.suffix == ".cc":
            sources.setdefault(source, " ".join(kept_flags(entry["command"])))

    lines = [
        "rule check",
        f"  command = clang++ -fsyntax-only {WARNINGS} $flags -MD -MF $out.d -MT $out $in && touch $out",
        "  description = clang $in",
        "  depfile = $out.d",
        "  deps = gcc",
    ]
    for source, flags in sorted(sources.items()):
        stamp = str(source.relative_to(ROOT)).replace("/", "_") + ".ok"
        lines += [f"build {stamp}: check {source}", f"  flags = {flags}"]
    (out / "build.ninja").write_text("\n".join(lines) + "\n")
    jobs = sys.argv[2] if len(sys.argv) > 2 else str(os.cpu_count())
    status = subprocess.run(["ninja", "-C", str(out), "-k", "0", "-j", jobs]).returncode
    print(f"clang_check: {len(sources)} sources, " + ("failed" if status else "no warnings"))
    return status


if __name__ == "__main__":
    sys.exit(main())
