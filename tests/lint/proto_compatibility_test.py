#!/usr/bin/env python3
"""Goal: proto_compatibility.py names each change that breaks peers of the last
release, and nothing else. Method: a contract is released in a tree written
here, then changed."""

import pathlib
import subprocess
import sys
import tempfile

LINT = pathlib.Path(__file__).with_name("proto_compatibility.py")

CONTRACT = """// A comment with a message Foo {.
syntax = "proto3";
package one;
import "proto/other.proto";
service Calls {
  // A comment.
  rpc Push(PushRequest) returns (stream PushResponse);
}
message PushRequest {
  reserved 20 to 31;
  /* clock = 9; */
  int64 clock = 1;
  repeated uint32 blocks = 2 [packed = true];
  map<string, int32> counts = 3;
  oneof source {
    bytes payload = 4;
    string path = 5;
  }
  message Inner { optional double loss = 1; }
  enum Kind { KIND_UNSPECIFIED = 0; SGD = 1; }
  Kind kind = 6;
}
message PushResponse {}
"""

# name -> (what is replaced by what, what the output must say; None: nothing)
CASES = {
    "nothing": ("", "", None),
    "a new field, message and method": (
        "message PushResponse {}",
        "message PushResponse { int32 outcome = 1; } message New { int32 a = 1; }\n"
        "service More { rpc Pull(New) returns (New); }", None),
    "other options and comments": ("[packed = true]", "/* again */", None),
    "another number": (
        "int64 clock = 1;", "int64 clock = 7;",
        "one.PushRequest.clock had number 1, now 7"),
    "another type": (
        "int64 clock", "uint64 clock", 'one.PushRequest.clock was "int64", now "uint64"'),
    "another label": (
        "repeated uint32", "uint32",
        'one.PushRequest.blocks was "repeated uint32", now "uint32"'),
    "another map": (
        "map<string, int32>", "map<string, int64>",
        'one.PushRequest.counts was "map<string, int32>", now "map<string, int64>"'),
    "out of a oneof": (
        "bytes payload = 4;\n", "", "one.PushRequest.payload is gone: say `reserved 4; "
        "reserved \"payload\";` in one.PushRequest"),
    "without a word": (
        "int64 clock = 1;", "", "one.PushRequest.clock is gone: say `reserved 1; "
        "reserved \"clock\";` in one.PushRequest"),
    "reserved": ("int64 clock = 1;", 'reserved 1; reserved "clock";', None),
    "reserved in a range": ("int64 clock = 1;", "reserved 1, 40 to max;", None),
    "a number that means something else": (
        "int64 clock = 1;", "int64 step = 1;",
        "one.PushRequest.clock: its number 1 is now step's"),
    "a nested field": (
        "optional double loss", "double loss",
        'one.PushRequest.Inner.loss was "optional double", now "double"'),
    "an enum value": (
        "SGD = 1;", "ADAM = 1;", "one.PushRequest.Kind.SGD: its number 1 is now ADAM's"),
    "a message": (
        "message Inner { optional double loss = 1; }", "",
        "one.PushRequest.Inner.loss is gone"),
    "a method's messages": (
        "returns (stream PushResponse)", "returns (PushResponse)",
        'one.Calls.Push was "(PushRequest) returns (stream PushResponse)", now '
        '"(PushRequest) returns (PushResponse)"'),
}


def run(folder, *arguments):
    done = subprocess.run([sys.executable, LINT, *arguments, folder], capture_output=True, text=True)
    return done.returncode, done.stdout.strip()


def main():
    failed = 0
    for name, (old, new, wanted) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in {"proto/one.proto": CONTRACT,
                               "common/base/version.h": 'char kVersion[] = "0.9.0";'}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            run(folder, "--write")
            (root / "proto/released/0.10.0.txt").write_text(
                (root / "proto/released/0.9.0.txt").read_text())
            (root / "proto/released/0.9.0.txt").write_text("one.Old.field = 1: int64\n")
            (root / "proto/one.proto").write_text(CONTRACT.replace(old, new) if old else CONTRACT)
            code, said = run(folder)
        wanted_code = 0 if wanted is None else 1
        line = None if wanted is None else f"proto compatibility: since 0.10.0: {wanted}"
        if code != wanted_code or (line is not None and said != line):
            failed += 1
            print(f"proto_compatibility_test: {name}: exit {code}, said: {said}")
    if not failed:
        print(f"proto_compatibility_test: {len(CASES)} cases")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
