#!/usr/bin/env python3
"""Goal: mirror.py names the tests without a source, the sources without a test,
the tests that nothing builds and the lines that are stale, and nothing else.
Method: it is run over small trees and build files written here."""

import pathlib
import subprocess
import sys
import tempfile

LINT = pathlib.Path(__file__).with_name("mirror.py")
COVERED_BY = "tests/lint/covered_by.txt"


def build(libraries, programs):
    """The text of build.ninja. `libraries`: name -> sources; `programs`: output
    -> (sources, libraries, programs that it starts). {root} is the tree."""
    said = []

    def compiled(owner, sources):
        for source in sources:
            said.append(f"build {owner}.dir/{source}.o: CXX_COMPILER__{owner.replace('/', '_')} "
                        f"{{root}}/{source} | cmake_pch.hxx.gch || cmake_order_{owner}\n"
                        "  FLAGS = -O3 : build x\n")
        return " ".join(f"{owner}.dir/{source}.o" for source in sources)

    for name, sources in libraries.items():
        objects = compiled(name, sources)
        said.append(f"build lib{name}.a: CXX_STATIC_LIBRARY_LINKER__{name} {objects}\n")
    for name, (sources, linked, started) in programs.items():
        objects = compiled(name, sources)
        archives = " ".join(f"lib{library}.a" for library in linked)
        said.append(f"build {name}: CXX_EXECUTABLE_LINKER__{name.replace('/', '_')} {objects} | "
                    f"{archives} $\n    /usr/lib/libz.so || {' '.join(started)}\n")
    return "\n".join(said)


A_TEST = "tests/unit/server/a_test.cc"
A = {"server/a.h": "", "server/a.cc": '#include "server/a.h"\n', A_TEST: "",
     "server/main.cc": ""}
A_BUILT = build({"server": ["server/a.cc"]}, {"tests/a_test": ([A_TEST], ["server"], [])})

# The unit b has no test of its own; a_test links it, and c_test does not.
B = {**A, "server/b.cc": "", "tests/component/c_test.cc": ""}
B_BUILT = build({"server": ["server/a.cc", "server/b.cc"]},
                {"tests/a_test": ([A_TEST], ["server"], []),
                 "tests/c_test": (["tests/component/c_test.cc"], [], [])})

# The unit h is a header alone, which a.cc includes by way of g.h.
H = {**A, "server/a.cc": '#include "server/g.h"\n', "server/g.h": ' #include "server/h.h"\n',
     "server/h.h": "", "tests/component/c_test.cc": "#include <server/h.h>\n"}
H_BUILT = build({"server": ["server/a.cc"]},
                {"tests/a_test": ([A_TEST], ["server"], []),
                 "tests/c_test": (["tests/component/c_test.cc"], [], [])})

# A test that starts a program.
STARTED = build({"server": ["server/a.cc", "server/b.cc"]},
                {"bin/ps": (["server/main.cc"], ["server"], []),
                 "tests/a_test": ([A_TEST], [], []),
                 "tests/c_test": (["tests/component/c_test.cc"], [], ["bin/ps"])})

# name -> (files, build.ninja, lines of covered_by.txt, what is said; None: all is well)
CASES = {
    "each unit has its test": (A, A_BUILT, [], None),
    "a test without a source": (
        {**A, "tests/unit/server/z_test.cc": ""},
        build({"server": ["server/a.cc"]},
              {"tests/a_test": ([A_TEST, "tests/unit/server/z_test.cc"], ["server"], [])}), [],
        ["tests/unit/server/z_test.cc: there is no server/z.cc or server/z.h"]),
    "a test in another folder than its source": (
        {**A, "tests/unit/worker/a_test.cc": ""},
        build({"server": ["server/a.cc"]},
              {"tests/a_test": ([A_TEST, "tests/unit/worker/a_test.cc"], ["server"], [])}), [],
        ["tests/unit/worker/a_test.cc: there is no worker/a.cc or worker/a.h"]),
    "tests that nothing builds": (
        {**A, "tests/fuzz/a_fuzz.cc": "", "tests/component/c_test.cc": ""}, A_BUILT, [],
        ["tests/component/c_test.cc: no CMakeLists.txt builds it",
         "tests/fuzz/a_fuzz.cc: no CMakeLists.txt builds it"]),
    "tests of a unit by subject": (
        {"server/a.h": "", "tests/unit/server/a_limits_test.cc": ""},
        build({}, {"tests/a_limits_test": (["tests/unit/server/a_limits_test.cc"], [], [])}),
        [], None),
    "the test of a longer name belongs to the longer unit": (
        {"server/a.h": "", "server/a_b.h": "", "tests/unit/server/a_b_test.cc": ""},
        build({}, {"tests/a_b_test": (["tests/unit/server/a_b_test.cc"], [], [])}), [],
        [f"server/a: no tests/unit/server/a_test.cc, and no line in {COVERED_BY}"]),
    "a unit without test and line": (
        B, B_BUILT, ["# server/b: a_test"],
        [f"server/b: no tests/unit/server/b_test.cc, and no line in {COVERED_BY}"]),
    "a unit that another test covers": (B, B_BUILT, ["# Why.", "", "server/b: a_test"], None),
    "a unit that the named test does not link": (
        B, B_BUILT, ["server/b: a_test, c_test"],
        [f"{COVERED_BY}:1: server/b is no part of c_test"]),
    "a unit in a program that the test starts": (B, STARTED, ["server/b: c_test"], None),
    "a test that is not there": (
        B, B_BUILT, ["server/b: a_test, d_test"],
        [f"{COVERED_BY}:1: the build has no test d_test"]),
    "a program for a test": (
        B, build({"server": ["server/a.cc", "server/b.cc"]},
                 {"tests/a_test": ([A_TEST], ["server"], []),
                  "tests/c_test": (["tests/component/c_test.cc"], [], []),
                  "tests/steps": (["server/main.cc"], ["server"], [])}),
        ["server/b: steps"], [f"{COVERED_BY}:1: the build has no test steps"]),
    "a line for a unit with a test of its own": (
        A, A_BUILT, ["server/a: a_test"],
        [f"{COVERED_BY}:1: server/a has a test of its own, {A_TEST}"]),
    "a line for no unit": (
        A, A_BUILT, ["server/z: a_test"], [f"{COVERED_BY}:1: there is no server/z.cc, .cu or .h"]),
    "lines that are not sorted, or there twice": (
        {**B, "server/d.cc": ""},
        build({"server": ["server/a.cc", "server/b.cc", "server/d.cc"]},
              {"tests/a_test": ([A_TEST], ["server"], []),
               "tests/c_test": (["tests/component/c_test.cc"], [], [])}),
        ["server/d: a_test", "server/b: a_test", "server/b: a_test"],
        [f"{COVERED_BY}:2: server/b is not sorted, or there twice",
         f"{COVERED_BY}:3: server/b is not sorted, or there twice"]),
    "a line of another form": (
        A, A_BUILT, ["server/a a_test"],
        [f"{COVERED_BY}:1: not of the form `unit: test, test`"]),
    "headers that the test reaches": (H, H_BUILT, ["server/g: a_test", "server/h: a_test"], None),
    "a header that the named test does not reach": (
        H, H_BUILT, ["server/g: a_test", "server/h: c_test"],
        [f"{COVERED_BY}:2: server/h is no part of c_test"]),
}


def run(files, ninja, lines):
    # A space in the path, which build files write with a $ before it.
    with tempfile.TemporaryDirectory(prefix="a tree ") as folder:
        root = pathlib.Path(folder).resolve()
        escaped = str(root).replace(" ", "$ ")
        written = {**files, COVERED_BY: "\n".join(lines) + "\n",
                   "build/release/build.ninja": ninja.replace("{root}", escaped)}
        for name, text in written.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, LINT, root / "build/release", root],
                              capture_output=True, text=True)
        return done.returncode, done.stdout.strip() + done.stderr


def main():
    failed = 0
    for name, (files, ninja, lines, wanted) in CASES.items():
        code, said = run(files, ninja, lines)
        fits = code == 0 if wanted is None else (
            code == 1 and sorted(said.split("\n")) == sorted(wanted))
        if not fits:
            failed += 1
            print(f"mirror_test: {name}: exit {code}, said: {said}")
    if not failed:
        print(f"mirror_test: {len(CASES)} cases")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
