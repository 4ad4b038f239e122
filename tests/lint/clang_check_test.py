#!/usr/bin/env python3
"""Goal: clang_check.py names what clang and clang-tidy find in sources, in their
headers and beside a precompiled header, and suppressions without a reason; it
checks again what changed, and no more. Method: it is run over a small tree
written here, whose sources have one mistake each."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

LINT = pathlib.Path(__file__).parent

LOCKED = """#pragma once
struct __attribute__((capability("mutex"))) Mutex {
  void Lock() __attribute__((acquire_capability()));
};
"""

# name -> (text, what the output must say; None: the source passes)
SOURCES = {
    "server/clean.cc": ('#include "server/clean.h"\nint Clean(Base* b) { return b->Value(); }\n',
                        None),
    "server/pointer.cc": ("int* Pointer() { return 0; }\n", "modernize-use-nullptr"),
    "server/unused.cc": ("static int Unused() { return 1; }\n", "clang-diagnostic-unused-function"),
    "server/locked.cc": ('#include "server/locked.h"\nvoid Locked(Mutex& mu) { mu.Lock(); }\n',
                         "clang-diagnostic-thread-safety-analysis"),
    # What the tree's own header has is found; what the system's have is not.
    "server/derived.cc": ('#include "server/derived.h"\nint Value() { return Derived().Value(); }\n',
                          "server/derived.h:3:7: error: annotate this function"),
    # Two that the build compiles as one.
    "server/one.cc": ("static int* One() { return nullptr; }\nint* Two() { return One(); }\n", None),
    "server/other.cc": ("int* Other() { return 0; }\n", "server/other.cc:1:23: error: use nullptr"),
    "tests/explained.cc": ("int* Explained() { return 0; }  // NOLINT(modernize-use-nullptr): C\n",
                           None),
    "tests/unexplained.cc": ("int* Unexplained() { return 0; }  // NOLINT\n",
                             "tests/unexplained.cc:1: NOLINT without"),
}
UNITED = ("server/one.cc", "server/other.cc")
BASE = "#pragma once\nstruct Base { virtual int Value() { return 0; } int* none = 0; };\n"
OTHERS = {
    ".clang-tidy": "Checks: '-*,clang-diagnostic-*,modernize-use-nullptr,modernize-use-override'\n"
                   "HeaderFilterRegex: '.*'\nWarningsAsErrors: '*'\n",
    "build/.clang-tidy": "not read",
    "system/base.h": BASE,
    "build/set/cmake_pch.hxx": "#include <base.h>\n",
    "server/clean.h": "#include <base.h>\nint Clean(Base* b);\n",
    "server/locked.h": LOCKED,
    "server/derived.h": "#include <base.h>\nstruct Derived : Base {\n"
                        "  int Value() { return 1; }\n};\n",
}


def check(root, *arguments):
    done = subprocess.run([sys.executable, root / "tests/lint/clang_check.py", root / "build",
                           *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def write_tree(root):
    for name, text in (OTHERS | {n: text for n, (text, _) in SOURCES.items()}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    lint = root / "tests/lint"
    lint.mkdir()
    for name in ("clang_check.py", "tidy_scope.cc"):
        shutil.copy(LINT / name, lint)
    # Every other source precompiles, as the kernels do not.
    commands = []
    united = root / "build/CMakeFiles/server.dir/Unity/unity_0_cxx.cxx"
    united.parent.mkdir(parents=True)
    united.write_text("".join(f'#include "{root / name}"\n' for name in UNITED))
    commands.append({"directory": str(root), "file": str(united),
                     "command": f"c++ -I{root} -std=c++20 -o x.o -c {united}"})
    for i, name in enumerate(name for name in SOURCES if name not in UNITED):
        pch = f"-Winvalid-pch -include {root}/build/set/cmake_pch.hxx " if i % 2 else ""
        commands.append({"directory": str(root), "file": str(root / name),
                         "command": f"c++ -I{root} -isystem {root}/system -O3 -fgnu-only "
                                    f"-std=c++20 {pch}-o x.o -c {root / name}"})
    commands.append({"directory": str(root), "file": str(root / "build/generated.cc"),
                     "command": "c++ -c generated.cc"})
    (root / "build/compile_commands.json").write_text(json.dumps(commands))
    subprocess.run(["git", "init", "-q", root], check=True)


def problems(root):
    status, said = check(root)
    if status != 1:
        yield f"the tree passed:\n{said}"
    for name, (_, wanted) in SOURCES.items():
        failed = f"FAILED: {name.replace('/', '_')}.ok" in said or f"{name}:" in said
        if wanted is None and failed:
            yield f"{name} failed:\n{said}"
        if wanted is not None and wanted not in said:
            yield f"{name}: nothing says {wanted!r}:\n{said}"
    if "system/base.h:" in said:
        yield f"a system header was checked:\n{said}"

    status, said = check(root, root / "server/clean.cc")
    if status != 1 or "1 sources" not in said or "clang-tidy" in said:
        yield f"a source that had passed was checked again:\n{said}"
    (root / "tests/unexplained.cc").unlink()
    (root / "server/clean.h").write_text("#include <base.h>\nint Clean(Base* b, int* none = 0);\n")
    status, said = check(root, root / "server/clean.cc")
    if status != 1 or "server/clean.h:2" not in said:
        yield f"a changed header was not checked:\n{said}"
    (root / "server/clean.h").write_text(OTHERS["server/clean.h"])
    status, said = check(root, root / "server/clean.cc")
    if status != 0 or "no findings" not in said:
        yield f"a clean source failed:\n{said}"


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        write_tree(root)
        found = list(problems(root))
    print("\n".join(found) or "clang_check_test: passed")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
