#!/usr/bin/env python3
"""Holds tests and sources together.

  mirror.py BUILD_DIR [ROOT]     ROOT: another tree, for this script's own test

A unit is <folder>/x.cc, <folder>/x.h or both; main.cc is none. Checked:
- tests/unit/<folder>/x_test.cc and x_<subject>_test.cc test a unit
  <folder>/x, so that a reader can predict where a test is;
- each unit has such a test, or a line in tests/lint/covered_by.txt that names
  the tests that cover it;
- each of these lines is needed, and true as far as the build knows: the unit
  has no test of its name, the named tests exist, and the unit is part of each:
  of the test itself or of a program that the test starts;
- the build configured in BUILD_DIR compiles every *_test.cc and *_fuzz.cc.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys

FOLDERS = ("common", "kernels", "scheduler", "server", "worker")
COVERED_BY = "tests/lint/covered_by.txt"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def files_of(root):
    """Tracked files, and those that are about to be."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=root, check=True, capture_output=True, text=True).stdout.split("\n")
        return sorted(name for name in listed if name and (root / name).exists())
    found = (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith("build/"))


def units_of(files):
    """The unit's name -> its files."""
    units = collections.defaultdict(list)
    for name in files:
        stem, end = os.path.splitext(name)
        if (name.split("/")[0] in FOLDERS and end in (".cc", ".cu", ".h")
                and os.path.basename(stem) != "main"):
            units[stem].append(name)
    return units


def unit_of(test, units):
    """The unit that this file below tests/unit tests, by its name, or None.
    a_b_test.cc tests a_b if there is one, else a."""
    stem = test[len("tests/unit/"):-len("_test.cc")]
    folder, _, name = stem.rpartition("/")
    while name:
        if f"{folder}/{name}" in units:
            return f"{folder}/{name}"
        name = name.rpartition("_")[0]
    return None


class Build:
    """What the Ninja build files of one configured build say."""

    def __init__(self, folder, root):
        self.root = root
        self.edges = {}    # output -> (rule, what it is made of)
        text = (pathlib.Path(folder) / "build.ninja").read_text().replace("$\n", "")
        for line in re.findall(r"^build (.*)$", text, re.MULTILINE):
            # A space or a colon within a name has a $ before it.
            words = [re.sub(r"\$(.)", r"\1", word)
                     for word in re.findall(r"(?:\$.|[^\s$:])+|:", line)]
            colon = words.index(":")
            inputs = [word for word in words[colon + 2:] if word not in ("|", "||")]
            for output in words[:colon]:
                self.edges[output] = (words[colon + 1], inputs)
        self.sources = {self.source(inputs[0]) for rule, inputs in self.edges.values()
                        if "_COMPILER_" in rule and inputs}

    def source(self, path):
        """As the tree calls it."""
        return os.path.relpath(path, self.root)

    def is_test(self, name):
        """Whether it is a program with an x_test.cc or x_fuzz.cc of its own."""
        rule, inputs = self.edges.get(f"tests/{name}", ("", []))
        return "_EXECUTABLE_LINKER_" in rule and any(
            one.endswith(("_test.cc.o", "_fuzz.cc.o")) for one in inputs)

    def sources_of(self, test):
        """What is compiled for this test, its libraries, and the programs that
        it starts."""
        found = set()
        seen = set()
        left = [f"tests/{test}"]
        while left:
            output = left.pop()
            if output in seen or output not in self.edges:
                continue
            seen.add(output)
            rule, inputs = self.edges[output]
            if "_COMPILER_" in rule:
                found.add(self.source(inputs[0]))
            else:
                left += inputs
        return found


class Includes:
    """Which files of the tree a source includes, directly or not."""

    def __init__(self, root):
        self.root = root
        self.direct = {}

    def of(self, sources):
        seen = set()
        left = list(sources)
        while left:
            name = left.pop()
            if name in seen:
                continue
            seen.add(name)
            if name not in self.direct:
                path = self.root / name
                self.direct[name] = INCLUDE.findall(path.read_text()) if path.is_file() else []
            left += self.direct[name]
        return seen


def lines_of(text):
    """Yields (line number, line) of what is neither empty nor a comment."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line


def cover_problems(text, units, own, build, root):
    """What is wrong with the lines of COVERED_BY, and the units it names."""
    problems = []
    named = []
    includes = Includes(root)
    sources = {}
    reached = {}
    for number, line in lines_of(text):
        where = f"{COVERED_BY}:{number}"
        match = re.fullmatch(r"(\S+): (\w+(?:, \w+)*)", line)
        if not match:
            problems.append(f"{where}: not of the form `unit: test, test`")
            continue
        unit, tests = match.group(1), match.group(2).split(", ")
        if named and unit <= named[-1]:
            problems.append(f"{where}: {unit} is not sorted, or there twice")
        named.append(unit)
        if unit not in units:
            problems.append(f"{where}: there is no {unit}.cc, .cu or .h")
            continue
        if unit in own:
            problems.append(f"{where}: {unit} has a test of its own, {own[unit]}")
            continue
        for test in tests:
            if not build.is_test(test):
                problems.append(f"{where}: the build has no test {test}")
                continue
            if test not in sources:
                sources[test] = build.sources_of(test)
            compiled = [name for name in units[unit] if not name.endswith(".h")]
            if compiled:
                part = compiled[0] in sources[test]
            else:
                if test not in reached:
                    reached[test] = includes.of(sources[test])
                part = f"{unit}.h" in reached[test]
            if not part:
                problems.append(f"{where}: {unit} is no part of {test}")
    return problems, set(named)


def main():
    root = pathlib.Path(sys.argv[2] if len(sys.argv) > 2
                        else pathlib.Path(__file__).resolve().parents[2]).resolve()
    build = Build(sys.argv[1], root)
    files = files_of(root)
    units = units_of(files)
    tests = [name for name in files if name.startswith("tests/")
             and name.endswith(("_test.cc", "_fuzz.cc"))]

    problems = [f"{test}: no CMakeLists.txt builds it" for test in tests
                if test not in build.sources]
    own = {}  # unit -> a test of its name
    for test in tests:
        if test.startswith("tests/unit/"):
            unit = unit_of(test, units)
            if unit:
                own.setdefault(unit, test)
            else:
                stem = test[len("tests/unit/"):-len("_test.cc")]
                problems.append(f"{test}: there is no {stem}.cc or {stem}.h")

    covered_by = root / COVERED_BY
    wrong, covered = cover_problems(
        covered_by.read_text() if covered_by.exists() else "", units, own, build, root)
    problems += wrong
    problems += [f"{unit}: no tests/unit/{unit}_test.cc, and no line in {COVERED_BY}"
                 for unit in sorted(units) if unit not in own and unit not in covered]

    print("\n".join(problems) if problems else
          f"mirror: {len(tests)} tests, {len(units)} units, {len(covered)} covered by others' tests")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
