#!/usr/bin/env python3
"""Holds the wire contract against the last release's.

  proto_compatibility.py [ROOT]          ROOT: another tree, for this script's own test
  proto_compatibility.py --write [ROOT]  writes proto/released/VERSION.txt anew

proto/released/VERSION.txt lists each field, enum value and method of that
release. What it lists must still be there with its number and type, or its
number must be reserved; no number may mean something else; no method may change
its messages. What is new is free until the next release, which writes the
listing of its version (common/base/version.h).
"""

import pathlib
import re
import sys

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/', re.DOTALL)
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[\w.]+|[{}()\[\]<>=;,]')


class Parser:
    """The subset of proto3 that proto/ is written in. Fills `entries`: name ->
    (number, what), and `reserved`: message or enum -> set of numbers."""

    def __init__(self, text):
        self.tokens = TOKEN.findall(NOISE.sub(" ", text))
        self.at = 0
        self.package = ""
        self.entries = {}
        self.reserved = {}
        self.scopes = set()

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def until(self, end):
        taken = []
        while (token := self.next()) != end:
            taken.append(token)
        return taken

    def parse(self):
        while self.at < len(self.tokens):
            word = self.next()
            if word == "package":
                self.package = self.until(";")[0]
            elif word in ("message", "enum"):
                self.block(word, f"{self.package}.{self.next()}")
            elif word == "service":
                self.service(f"{self.package}.{self.next()}")
            else:
                self.until(";")
        return self

    def block(self, kind, name):
        assert self.next() == "{", name
        self.scopes.add(name)
        self.reserved.setdefault(name, set())
        self.body(kind, name, "")

    def body(self, kind, name, oneof):
        while (word := self.next()) != "}":
            if word == ";":
                continue
            if word in ("message", "enum") and self.tokens[self.at + 1] == "{":
                self.block(word, f"{name}.{self.next()}")
            elif word == "oneof":
                self.next_oneof(name)
            elif word == "reserved":
                self.reserve(name)
            elif word == "option":
                self.until(";")
            else:
                self.member(kind, name, [word] + self.until(";"), oneof)

    def next_oneof(self, name):
        oneof = self.next()
        assert self.next() == "{", name
        self.body("message", name, f" in oneof {oneof}")

    def reserve(self, name):
        words = [word for word in self.until(";") if word != ","]
        while words:
            first = words.pop(0)
            if first.startswith('"'):
                continue
            last = first
            if words and words[0] == "to":
                words.pop(0)
                last = words.pop(0)
            last = 2**29 if last == "max" else last
            self.reserved[name] |= set(range(int(first), min(int(last), 100000) + 1))

    def member(self, kind, name, words, oneof):
        equals = words.index("=")
        what = "value" if kind == "enum" else " ".join(words[:equals - 1]) + oneof
        what = what.replace("map < ", "map<").replace(" , ", ", ").replace(" >", ">")
        self.entries[f"{name}.{words[equals - 1]}"] = (int(words[equals + 1]), what)

    def service(self, name):
        assert self.next() == "{", name
        while (word := self.next()) != "}":
            if word != "rpc":
                continue
            method = self.next()
            words = []
            while (token := self.next()) not in (";", "{"):
                words.append(token)
            if token == "{":
                self.until("}")
            what = " ".join(words).replace("( ", "(").replace(" )", ")")
            self.entries[f"{name}.{method}"] = (0, what)


def read(root):
    contract = Parser("")
    for path in sorted((root / "proto").glob("*.proto")):
        one = Parser(path.read_text()).parse()
        contract.entries.update(one.entries)
        contract.reserved.update(one.reserved)
        contract.scopes |= one.scopes
    return contract


def listing(contract):
    return "".join(f"{name} = {number}: {what}\n"
                   for name, (number, what) in sorted(contract.entries.items()))


def version_of(path):
    return tuple(int(part) for part in path.stem.split("."))


def compare(contract, lines):
    """Yields what the contract breaks of a release."""
    owners = {}
    for name, (number, _) in contract.entries.items():
        owners[name.rpartition(".")[0], number] = name.rpartition(".")[2]
    for line in lines:
        name, number, what = re.fullmatch(r"(\S+) = (\d+): (.*)", line).groups()
        number = int(number)
        scope, _, member = name.rpartition(".")
        now = contract.entries.get(name)
        if now == (number, what):
            continue
        if now is not None and now[0] != number:
            yield f"{name} had number {number}, now {now[0]}"
        elif now is not None:
            yield f"{name} was \"{what}\", now \"{now[1]}\""
        elif number == 0 or scope not in contract.scopes:
            yield f"{name} is gone"
        elif (scope, number) in owners:
            yield f"{name}: its number {number} is now {owners[scope, number]}'s"
        elif number not in contract.reserved[scope]:
            yield f"{name} is gone: say `reserved {number}; reserved \"{member}\";` in {scope}"


def main():
    arguments = sys.argv[1:]
    writes = "--write" in arguments
    roots = [a for a in arguments if a != "--write"]
    root = pathlib.Path(roots[0] if roots else pathlib.Path(__file__).resolve().parents[2])
    contract = read(root)
    released = root / "proto" / "released"
    if writes:
        version = re.search(r'kVersion\[\] = "([\d.]+)"',
                            (root / "common/base/version.h").read_text()).group(1)
        released.mkdir(exist_ok=True)
        (released / f"{version}.txt").write_text(listing(contract))
        print(f"proto compatibility: {released / version}.txt written")
        return 0
    releases = sorted(released.glob("*.txt"), key=version_of)
    if not releases:
        print("proto compatibility: proto/released has no listing")
        return 1
    problems = list(compare(contract, releases[-1].read_text().splitlines()))
    for problem in problems:
        print(f"proto compatibility: since {releases[-1].stem}: {problem}")
    if not problems:
        print(f"proto compatibility: {len(contract.entries)} fields, values and methods "
              f"since {releases[-1].stem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
