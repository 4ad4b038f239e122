#!/usr/bin/env python3
"""Holds one definition: no type and no inline variable of a named namespace is
defined in two files. Two roles live in one binary, and the linker takes either
of two classes of one name without a word.

  one_definition.py [ROOT]     ROOT: another tree, for this script's own test
"""

import collections
import pathlib
import re
import sys

FOLDERS = ("common", "kernels", "server", "worker", "scheduler")

# Text that is not code: comments, strings, characters, preprocessor lines.
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'|^[ \t]*\#(?:\\\n|[^\n])*',
    re.DOTALL | re.MULTILINE)
TOKEN = re.compile(r"[A-Za-z_]\w*|::|[{}();=<>:,\[\]&*]")
NAMESPACE = re.compile(r"(?:inline )?namespace((?: (?:\w+|::))*)$")
TYPE = re.compile(
    r"(?:^|[;}] ?)(?:template < .* > )?(?:typedef )?(?:struct|class|union|enum(?: class| struct)?)"
    r"(?: \[ \[ .*? \] \])?(?: alignas \( [^)]* \))? (\w+)(?: final)?(?: : .*)?$")
SPECIALISATION = re.compile(r"template < > ")
INLINE_VARIABLE = re.compile(r"(?:^|[;}] ?)inline (?:constexpr|const) .*?(\w+)(?: \[ .*\])?(?: = .*)?$")


def definitions(text):
    """Yields (qualified name, offset) of what is defined at namespace scope."""
    code = NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    scopes = []  # a namespace's name, or None where other files cannot name it
    head = []    # tokens since the last statement ended
    for match in TOKEN.finditer(code):
        token = match.group()
        at_namespace = all(scope is not None for scope in scopes)
        if token == "{" or token == "=":
            text_of_head = " ".join(head)
            name = None
            if at_namespace and token == "{":
                namespace = NAMESPACE.match(text_of_head)
                if namespace:
                    name = namespace.group(1).replace(" ", "") or None
                elif not SPECIALISATION.match(text_of_head):
                    kind = TYPE.search(text_of_head)
                    if kind:
                        yield "::".join(scopes + [kind.group(1)]), match.start()
            if at_namespace:
                variable = INLINE_VARIABLE.match(text_of_head)
                if variable:
                    yield "::".join(scopes + [variable.group(1)]), match.start()
            if token == "{":
                scopes.append(name)
                head = []
            else:
                head.append(token)
        elif token == "}":
            if scopes:
                scopes.pop()
            head = []
        elif token == ";":
            head = []
        else:
            head.append(token)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                        else pathlib.Path(__file__).resolve().parents[2])
    found = collections.defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            text = path.read_text()
            for name, offset in definitions(text):
                line = text.count("\n", 0, offset) + 1
                found[name].append(f"{path.relative_to(root)}:{line}")
    # Twice in one file: one of them by the preprocessor.
    twice = {name: places for name, places in found.items()
             if len({place.rsplit(":", 1)[0] for place in places}) > 1}
    for name, places in sorted(twice.items()):
        print(f"{name} is defined more than once: {', '.join(places)}")
    if not twice:
        print(f"one definition: {len(found)} types and inline variables")
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
