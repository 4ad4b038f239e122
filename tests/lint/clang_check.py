#!/usr/bin/env python3
"""Compiles every source with clang for its warnings only.

  clang_check.py BUILD_DIR [--jobs N] [--compiled-in DIR:TARGET] [SOURCE...]

Warnings, thread safety among them, are errors. Reads the sources and flags from
BUILD_DIR/compile_commands.json and writes BUILD_DIR/clang_check/build.ninja,
so a second run checks only what changed. It precompiles the headers that the
build precompiles. Sources that TARGET of the clang build
in DIR is made of are left out: they were compiled there, with the same
warnings. With SOURCE... only those are checked.
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ("-I", "-D", "-isystem", "-std")
WARNINGS = "-Wall -Wextra -Wno-unused-parameter -Wthread-safety -Werror"


def parse_command(command):
    """The flags that clang takes too, and the precompiled header's source or None."""
    flags = []
    precompiled = None
    words = iter(shlex.split(command))
    for word in words:
        if word == "-isystem":
            flags.append(f"-isystem {next(words)}")
        elif word == "-include":
            precompiled = next(words)
        elif word.startswith(KEPT):
            flags.append(shlex.quote(word))
    return " ".join(flags), precompiled


def ninja_rules(sources):
    """build.ninja that checks `sources`, a map from each to what parse_command gave."""
    lines = [
        "rule check",
        f"  command = clang++ -fsyntax-only {WARNINGS} $flags -MD -MF $out.d -MT $out $in && touch $out",
        "  description = clang $in",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule precompile",
        "  command = clang++ -x c++-header -w $flags -MD -MF $out.d -MT $out $in -o $out",
        "  description = clang $in",
        "  depfile = $out.d",
        "  deps = gcc",
    ]
    precompiled = {}
    for source, (flags, header) in sorted(sources.items()):
        stamp = str(source.relative_to(ROOT)).replace("/", "_") + ".ok"
        if header is None:
            lines += [f"build {stamp}: check {source}", f"  flags = {flags}"]
            continue
        pch = precompiled.get(header)
        if pch is None:
            pch = precompiled[header] = f"{pathlib.Path(header).parent.name}.pch"
            lines += [f"build {pch}: precompile {header}", f"  flags = {flags}"]
        lines += [f"build {stamp}: check {source} | {pch}",
                  f"  flags = {flags} -include-pch {pch}"]
    return lines


def inputs_of(target):
    """Absolute paths of all that `DIR:TARGET` is built from."""
    folder, _, name = target.partition(":")
    listed = subprocess.run(["ninja", "-C", folder, "-t", "inputs", name],
                            check=True, capture_output=True, text=True).stdout
    return {pathlib.Path(folder, line).resolve() for line in listed.splitlines()
            if line.endswith(".cc")}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--jobs", default=str(os.cpu_count()))
    parser.add_argument("--compiled-in")
    parser.add_argument("source", nargs="*", type=lambda path: pathlib.Path(path).resolve())
    options = parser.parse_args()
    build = options.build
    out = build / "clang_check"
    out.mkdir(exist_ok=True)
    commands = json.loads((build / "compile_commands.json").read_text())
    sources = {}
    for entry in commands:
        source = pathlib.Path(entry["file"])
        inside = ROOT in source.parents and build not in source.parents
        if inside and source.suffix == ".cc":
            sources.setdefault(source, parse_command(entry["command"]))
    if options.compiled_in:
        for source in inputs_of(options.compiled_in):
            sources.pop(source, None)
    if options.source:
        sources = {source: sources[source] for source in options.source}

    (out / "build.ninja").write_text("\n".join(ninja_rules(sources)) + "\n")
    status = subprocess.run(
        ["ninja", "-C", str(out), "-k", "0", "-j", options.jobs]).returncode
    print(f"clang_check: {len(sources)} sources, " + ("failed" if status else "no warnings"))
    return status


if __name__ == "__main__":
    sys.exit(main())
