#!/usr/bin/env python3
"""Goal: documents.py names what a document says and the repository has not,
and nothing else. Method: it is run over small trees written here."""

import pathlib
import subprocess
import sys
import tempfile

LINT = pathlib.Path(__file__).with_name("documents.py")
TREE = {
    "server/lane.cc": "void Lane::Run() { Step(); }\n",
    "server/lane.h": "class Lane;\n",
    "server/README.md": "# The server\n\n## Two words, here\n\n## Two words, here\n",
    "tests/unit/server/lane_test.cc": "TEST(Lane, RunsOnce) {}\n",
    "tests/unit/server/CMakeLists.txt": "syncline_test(one_more_test)\n",
}

# name -> (text of docs/a.md, what the output must say; None: nothing is wrong)
CASES = {
    "paths that exist": (
        "`server/lane.cc`, `server/lane.h:1`, `server/lane`, `server/`, `server/l*.h`,\n"
        "`server/lane.{h,cc}`, `lane.cc`, `a.md` and `tests/unit`", None),
    "a file that does not": (
        "one\n`server/lanes/lanes.cc`", "docs/a.md:2: `server/lanes/lanes.cc` does not exist"),
    "a folder that does not": (
        "`tests/system`", "docs/a.md:1: `tests/system` does not exist"),
    "a glob of nothing": ("`server/k*.cc`", "docs/a.md:1: `server/k*.cc` does not exist"),
    "one of several that does not": (
        "`server/lane.{h,cu}`", "docs/a.md:1: `server/lane.{h,cu}` does not exist"),
    "a bare name of nothing": ("`lanes.cc`", "docs/a.md:1: `lanes.cc` does not exist"),
    "what is no path of the repository": (
        "`build/release/bin`, `x.cc`, `ops/x_test.cc`, `trained.onnx`, `a/b`, `tests/<folder>/a.cc`,\n"
        "`job.textproto`, `/metrics`, `application/json`, `data/train.tsv`, `sys/pidfd.h`, `absl/a.h`,\n`$OUT/a.h`\n"
        "and [a page](https://example.org/a.md)", None),
    "what is in fenced code": ("```sh\ncat `server/lanes/lanes.cc`\n```", None),
    "functions that occur": (
        "`server/lane.cc: Run`, `server/lane.cc: Lane::Run, Step`, `server/lane.cc:\nStep`", None),
    "a function that does not": (
        "`server/lane.cc: Run, Stop`",
        "docs/a.md:1: `server/lane.cc: Run, Stop`: Stop does not occur in server/lane.cc"),
    "a function of no file": (
        "`server/lanes/lanes.cc: Run`",
        "docs/a.md:1: `server/lanes/lanes.cc: Run`: there is no file server/lanes/lanes.cc"),
    "a part of a name": (
        "`server/lane.cc: Ru`",
        "docs/a.md:1: `server/lane.cc: Ru`: Ru does not occur in server/lane.cc"),
    "tests": ("`lane_test`, `server_lane_test`, `one_more_test`", None),
    "no test": ("`lanes_test`", "docs/a.md:1: `lanes_test` is no test"),
    "links that lead somewhere": (
        "# Above\n[a](../server/README.md), [b](../server/README.md#the-server), [c](#above),\n"
        "[d](../server/README.md#two-words-here-1) and [e](../server)", None),
    "a link that does not": (
        "[a](../server/READ.md)", "docs/a.md:1: the link ../server/READ.md leads nowhere"),
    "a link to no heading": (
        "[a](../server/README.md#the-servers)",
        "docs/a.md:1: the link ../server/README.md#the-servers names no heading of "
        "server/README.md"),
    "a link out of the tree": (
        "[a](../../b.md)", "docs/a.md:1: the link ../../b.md leads out of the repository"),
}

VERSION = 'constexpr char kVersion[] = "1.2.3";\n'
AGAIN = "the version stands in common/base/version.h; read it there"
# name -> (files beside TREE, what the output must say)
VERSION_CASES = {
    "one version": (
        {"common/base/version.h": VERSION, "CHANGELOG.md": "# Changes\n\n## 1.2.3 (soon)\n\n## 1.2.2\n",
         "server/a.cc": '// "1.2.3" is an example\nF("11.2.3", "1.2.3.4");\n',
         "tests/a.cc": 'F("1.2.3");\n'}, None),
    "a changelog of another": (
        {"common/base/version.h": VERSION, "CHANGELOG.md": "# Changes\n\n## 1.2.2\n"},
        "CHANGELOG.md:1: its first version is not that of common/base/version.h, 1.2.3"),
    "a version in a source": (
        {"common/base/version.h": VERSION, "server/a.cc": '\nF("1.2.3");\n'},
        f"server/a.cc:2: {AGAIN}"),
    "a version for CMake": (
        {"common/base/version.h": VERSION, "CMakeLists.txt": "# of 1.2.3\nproject(a VERSION 1.2.3)\n"},
        f"CMakeLists.txt:2: {AGAIN}"),
    "none": ({"common/base/version.h": "\n"}, "common/base/version.h:1: there is no kVersion"),
}


def run(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, content in {**TREE, **files}.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        done = subprocess.run([sys.executable, LINT, folder], capture_output=True, text=True)
        return done.returncode, done.stdout.strip()


def main():
    failed = 0
    cases = {name: ({"docs/a.md": text}, wanted) for name, (text, wanted) in CASES.items()}
    cases.update(VERSION_CASES)
    for name, (files, wanted) in cases.items():
        code, said = run(files)
        fits = code == (0 if wanted is None else 1) and (wanted is None or said == wanted)
        if not fits:
            failed += 1
            print(f"documents_test: {name}: exit {code}, said: {said}")
    if not failed:
        print(f"documents_test: {len(cases)} cases")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
