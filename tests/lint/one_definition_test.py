#!/usr/bin/env python3
"""Goal: one_definition.py names what is defined twice, and nothing else.
Method: it is run over small trees written here."""

import pathlib
import subprocess
import sys
import tempfile

LINT = pathlib.Path(__file__).with_name("one_definition.py")

# name -> ({file: text}, what the output must say; None: nothing is wrong)
CASES = {
    "two structs of one name": (
        {"server/a.h": "namespace syncline {\nstruct RowRange {\n  int first;\n};\n}",
         "worker/b.h": "namespace syncline { struct RowRange { long key; }; }"},
        "syncline::RowRange is defined more than once: server/a.h:2, worker/b.h:1"),
    "namespaces of their own": (
        {"server/a.h": "namespace syncline::ps { struct Rows { int n; }; }",
         "worker/b.h": "namespace syncline::worker { struct Rows { long n; }; }"}, None),
    "anonymous namespaces": (
        {"server/a.cc": "namespace syncline { namespace { struct Rows { int n; }; } }",
         "worker/b.cc": "namespace syncline { namespace { struct Rows { long n; }; } }"}, None),
    "a class and its forward declaration, in a comment and in a string": (
        {"server/a.h": "namespace syncline { class Rows final : public Base { int n; }; }",
         "worker/b.h": "namespace syncline { class Rows; // class Rows {\n"
                       "inline const char* Name() { return \"class Rows {\"; } }"}, None),
    "classes within classes and functions": (
        {"server/a.h": "namespace syncline { class A { struct Rows { int n; }; }; }",
         "worker/b.h": "namespace syncline { inline void B() { struct Rows { int n; }; } }"}, None),
    "inline constants": (
        {"server/a.h": "namespace syncline { inline constexpr int kRows = 1; }",
         "worker/b.h": "namespace syncline { inline constexpr int kRows = 2; }"},
        "syncline::kRows is defined more than once: server/a.h:1, worker/b.h:1"),
    "constants whose value is cast": (
        {"server/a.h": "namespace syncline { inline constexpr int64_t kA = int64_t{1} << 4; }",
         "worker/b.h": "namespace syncline { inline constexpr int64_t kB = int64_t{1} << 4; }"},
        None),
    "enumerations, after a template": (
        {"server/a.h": "namespace syncline { template <typename T> struct Box { T t; };\n"
                       "enum class Kind : int { kOne }; }",
         "worker/b.h": "namespace syncline { enum class Kind { kTwo }; }"},
        "syncline::Kind is defined more than once: server/a.h:2, worker/b.h:1"),
}


def run(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, LINT, folder], capture_output=True, text=True)
        return done.returncode, done.stdout.strip()


def main():
    failed = 0
    for name, (files, wanted) in CASES.items():
        code, said = run(files)
        fits = code == (0 if wanted is None else 1) and (wanted is None or said == wanted)
        if not fits:
            failed += 1
            print(f"one_definition_test: {name}: exit {code}, said: {said}")
    if not failed:
        print(f"one_definition_test: {len(CASES)} cases")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
