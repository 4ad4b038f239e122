#!/usr/bin/env python3
"""Checks every source with clang and clang-tidy.

  clang_check.py BUILD_DIR [--jobs N] [--without FOLDER] [SOURCE...]

The checks are those of .clang-tidy, and clang's warnings, thread safety among
them; all are errors. A NOLINT names its check and gives a reason:
"NOLINT(check): reason". Reads the sources and flags from
BUILD_DIR/compile_commands.json and writes BUILD_DIR/clang_check/build.ninja,
so a second run checks only what changed. Sources that the build compiles as one
are checked as one, but for tests, whose settings are others. With SOURCE... only
those are checked, each by itself; with --without all but those below FOLDER.

Three things make it as cheap as clang alone: tidy_scope.cc, one precompiled
header for all sources, with all that the build precompiles, and no C++ modules,
for which clang-tidy would read all headers a second time.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCOPE = pathlib.Path(__file__).with_name("tidy_scope.cc")
KEPT = ("-I", "-D", "-isystem", "-std")
NO_MODULES = "-Xclang -fno-cxx-modules"
WARNINGS = "-Wall -Wextra -Wno-unused-parameter -Wthread-safety"
HEADER = "precompiled.h"
UNITED = re.compile(r'^#include "(.*)"$', re.M)
EXPLAINED = re.compile(r"NOLINT(NEXTLINE|BEGIN)?\([a-z][a-zA-Z0-9.-]+\): \S|NOLINTEND\(")


def parse_command(command):
    """The flags that clang takes too, and the path of the precompiled header or None."""
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
    return flags, precompiled


def parts_of(source, build):
    """The sources of the repository that this one of the build consists of."""
    if build not in source.parents:
        return [source] if ROOT in source.parents and source.suffix == ".cc" else []
    if source.parent.name != "Unity":
        return []
    return [pathlib.Path(part) for part in UNITED.findall(source.read_text())]


def precompiled_header(sources):
    """The text of a header that includes all that the build precompiles, and its flags."""
    includes = {}
    flags = {}
    for own, header in sources.values():
        if header is None:
            continue
        flags.update(dict.fromkeys(own))
        for include in re.findall(r"^#include .*", pathlib.Path(header).read_text(), re.M):
            includes[include] = None
    return "\n".join(["#pragma GCC system_header", *sorted(includes), ""]), list(flags)


def ninja_rules(sources, header_flags, llvm):
    """build.ninja that checks `sources`, a map from each to what parse_command gave."""
    tidy = shlex.quote(str(llvm / "bin/clang-tidy"))
    lines = [
        "rule plugin",
        "  command = c++ -std=c++17 -O1 -fno-rtti -fPIC -shared -Wall -Wextra -Werror"
        f" -isystem {llvm}/include $in -o $out",
        "  description = clang_check $out",
        "rule precompile",
        f"  command = clang++ -x c++-header -w {NO_MODULES} -fpch-instantiate-templates $flags"
        " -MD -MF $out.d -MT $out $in -o $out",
        "  description = clang_check $out",
        "  depfile = $out.d",
        "  deps = gcc",
        # clang-tidy drops -MD. Beside findings it counts those of other headers, so
        # nothing is shown of a source without findings.
        "rule check",
        f"  command = {tidy} --quiet $settings --load ./tidy_scope.so $in -- {WARNINGS}"
        f" {NO_MODULES}"
        " $flags -include-pch precompiled.pch -Wp,-MD,$out.d > $out.log 2>&1"
        " && touch $out || { cat $out.log; false; }",
        "  description = clang-tidy $in",
        "  depfile = $out.d",
        "  deps = gcc",
        f"build tidy_scope.so: plugin {SCOPE}",
        f"build precompiled.pch: precompile {HEADER}",
        f"  flags = {' '.join(header_flags)}",
    ]
    settings = [path for path in ROOT.glob("**/.clang-tidy") if "build" not in path.parts]
    needed = " ".join(["precompiled.pch", "tidy_scope.so", *map(str, sorted(settings))])
    for source, (flags, _) in sorted(sources.items()):
        stamp = os.path.relpath(source, ROOT).replace("/", "_") + ".ok"
        lines += [f"build {stamp}: check {source} | {needed}",
                  f"  flags = {' '.join(flags)}"]
        if source.suffix != ".cc":  # CMake's, which lies where no settings are
            lines += [f"  settings = --config-file={ROOT}/.clang-tidy"]
    return lines


def suppressions_without_reason():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.cc", "*.h"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = []
    for name in listed.split():
        path = ROOT / name
        lines = path.read_text().splitlines() if path.exists() else []
        found += [f"{name}:{number}: NOLINT without its check or a reason"
                  for number, line in enumerate(lines, 1)
                  if "NOLINT" in line and not EXPLAINED.search(line)]
    return found


def write_if_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--jobs", default=str(os.cpu_count()))
    parser.add_argument("--without", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("source", nargs="*", type=lambda path: pathlib.Path(path).resolve())
    options = parser.parse_intermixed_args()
    build = options.build
    out = build / "clang_check"
    out.mkdir(exist_ok=True)
    sources = {}  # what the build compiles
    parts = {}    # and the sources of the repository that it consists of
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        own = [part for part in parts_of(source, build)
               if options.without not in part.parents and part not in parts]
        is_test = any(ROOT / "tests" in part.parents for part in own)
        entry = parse_command(entry["command"])
        parts.update(dict.fromkeys(own, entry))
        sources.update(dict.fromkeys(own if is_test else own and [source], entry))
    header, header_flags = precompiled_header(sources)
    if options.source:
        sources = parts = {source: parts[source] for source in options.source}

    write_if_changed(out / HEADER, header)
    llvm = pathlib.Path(shutil.which("clang-tidy")).resolve().parents[1]
    rules = ninja_rules(sources, header_flags, llvm)
    write_if_changed(out / "build.ninja", "\n".join(rules) + "\n")
    status = subprocess.run(
        ["ninja", "-C", str(out), "-k", "0", "-j", options.jobs]).returncode
    unexplained = suppressions_without_reason()
    print(*unexplained, sep="\n", end="\n" if unexplained else "")
    failed = status != 0 or bool(unexplained)
    print(f"clang_check: {len(parts)} sources, " + ("failed" if failed else "no findings"))
    return failed


if __name__ == "__main__":
    sys.exit(main())
