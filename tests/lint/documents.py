#!/usr/bin/env python3
"""Holds what the documents say of the repository against the repository.

  documents.py [ROOT]     ROOT: another tree, for this script's own test

Checked in every *.md file, outside of fenced code:
- a link to a file or folder leads to one, and its #anchor to a heading;
- what looks like a path in backticks exists, as a file, a folder, a glob, or
  the common name of x.h and x.cc;
- `FILE: Name` and `FILE: Name, Name`: each name occurs in that file;
- `some_test` is a test.
Checked of the version in common/base/version.h:
- the first heading "## " of CHANGELOG.md names it;
- no other source, CMakeLists.txt or script has it as a value.

What looks like a path: it begins with a folder of the repository's top level
and a slash, or it ends as a source file does. It is looked for from the top,
from the document's folder and from the folders above that one; a name without
a slash may be anywhere. So build outputs, users' files, URLs and placeholders
(x.cc, <folder>, NNN, $DIR) are left out.
"""

import pathlib
import re
import subprocess
import sys

SOURCE = r"\.(?:h|cc|cu|py|sh|proto|md|textproto|onnxtxt)"
PATH = re.compile(r"[\w.*{},+-]+(?:/[\w.*{},+-]+)*/?(?::\d+)?")
NAMED = re.compile(r"([\w./-]+" + SOURCE + r"): ([\w:]+(?:, [\w:]+)*)")
TEST = re.compile(r"\w+_test")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
PLACEHOLDER = re.compile(r"(?:^|/)x(?:_\w+)?\.\w+$|\bNNN\b|\.\.\.")
# Named like sources, but made by users, or the system's.
OTHERS = re.compile(
    r"job\.textproto|(?:data|results|build)/.*|(?:sys|linux|absl|google|grpc|grpcpp|rocksdb|onnx)/.*")


def files_of(root):
    """Tracked files, and those that are about to be."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=root, capture_output=True, text=True, check=True).stdout.split("\n")
        return {name for name in listed if name and (root / name).exists()}
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith("build/")}


def prose(text):
    """The lines outside of fenced code; line numbers stay."""
    fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            yield ""
        else:
            yield "" if fenced else line


def anchors(text):
    """As GitHub makes them of headings."""
    found = set()
    for line in prose(text):
        heading = re.match(r"#+ +(.*?) *#*$", line)
        if not heading:
            continue
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        name, count = slug, 0
        while name in found:
            count += 1
            name = f"{slug}-{count}"
        found.add(name)
    return found


def alternatives(path):
    """Spells out {a,b}."""
    brace = re.search(r"\{([^{}]*)\}", path)
    if not brace:
        return [path]
    return [made for one in brace.group(1).split(",")
            for made in alternatives(path[:brace.start()] + one + path[brace.end():])]


class Repository:
    def __init__(self, root):
        self.root = root
        self.files = files_of(root)
        self.folders = {str(parent) for name in self.files
                        for parent in pathlib.PurePosixPath(name).parents}
        self.names = {pathlib.PurePosixPath(name).name for name in self.files}
        self.tops = {name.split("/")[0] for name in self.files if "/" in name}
        self.tests = self.find_tests()

    def find_tests(self):
        """A test is called by its file, with or without folders before it, or
        as a CMakeLists.txt calls it."""
        tests = set()
        for name in self.files:
            parts = pathlib.PurePosixPath(name).with_suffix("").parts
            if parts[0] != "tests":
                continue
            if parts[-1] == "CMakeLists":
                tests |= set(re.findall(r"\w+_test\b", (self.root / name).read_text()))
            elif parts[-1].endswith("_test"):
                folders = [*parts[1:-1], *(["synctl"] if "ctl" in parts else [])]
                tests |= {parts[-1]} | {f"{folder}_{parts[-1]}" for folder in folders}
                tests |= {"_".join(parts[first:]) for first in range(1, len(parts))}
                # CMakeLists.txt leaves the innermost room out of a name.
                tests |= {"_".join([*parts[first:-2], parts[-1]]) for first in range(1, len(parts))}
        return tests

    def is_there(self, path):
        path = path.rstrip("/")
        if path in self.files or path in self.folders:
            return True
        if "*" in path:
            pattern = re.compile(
                "".join("[^/]*" if c == "*" else re.escape(c) for c in path) + r"(?:\.\w+)?$")
            return any(pattern.match(name) for name in self.files | self.folders)
        return any(path + end in self.files for end in (".h", ".cc", ".py", ".proto"))

    def finds(self, path, document):
        """Whether `path` is something, seen from this document."""
        for one in alternatives(path):
            if "/" not in one and one in self.names:
                continue
            starts = [""] + [str(p) + "/" for p in pathlib.PurePosixPath(document).parents]
            if not any(self.is_there((start if start != "./" else "") + one) for start in starts):
                return False
        return True

    def looks_like_ours(self, path):
        if PLACEHOLDER.search(path) or OTHERS.fullmatch(path):
            return False
        first, slash, _ = path.partition("/")
        if slash and first in self.tops:
            return True
        if re.match(r"[*.]", path):
            return False
        return re.search(SOURCE + r"$", path) is not None


def check_link(repository, document, target):
    if re.match(r"[a-z]+:", target):
        return None
    path, _, anchor = target.partition("#")
    folder = pathlib.PurePosixPath(document).parent
    parts = []
    for part in (folder / path).parts if path else pathlib.PurePosixPath(document).parts:
        if part == "..":
            if not parts:
                return f"the link {target} leads out of the repository"
            parts.pop()
        else:
            parts.append(part)
    name = "/".join(parts)
    if name and name not in repository.files and name not in repository.folders:
        return f"the link {target} leads nowhere"
    if anchor and name.endswith(".md") and (
            anchor not in anchors((repository.root / name).read_text())):
        return f"the link {target} names no heading of {name}"
    return None


def check_span(repository, document, span):
    named = NAMED.fullmatch(span)
    if named:
        path, names = named.groups()
        if path not in repository.files:
            return [f"`{span}`: there is no file {path}"]
        text = (repository.root / path).read_text()
        return [f"`{span}`: {name} does not occur in {path}" for name in names.split(", ")
                if not re.search(rf"\b{re.escape(name.split('::')[-1])}\b", text)]
    if TEST.fullmatch(span):
        return [] if span in repository.tests else [f"`{span}` is no test"]
    if not PATH.fullmatch(span):
        return []
    path = re.sub(r":\d+$", "", span)
    if not repository.looks_like_ours(path) or repository.finds(path, document):
        return []
    return [f"`{span}` does not exist"]


VERSION_FILE = "common/base/version.h"
VERSIONED = re.compile(r"(?!tests/).*\.(?:h|cc|cu|cmake|py|sh|json|yml|yaml)|(?:.*/)?CMakeLists\.txt")
REMARK = re.compile(r"//.*|(?:^|\s)#.*")


def version_problems(repository):
    """(file, line, problem) of what contradicts or repeats the version."""
    root = repository.root
    if VERSION_FILE not in repository.files:
        return
    found = re.search(r'kVersion\[\] = "([\d.]+)"', (root / VERSION_FILE).read_text())
    if not found:
        yield VERSION_FILE, 1, "there is no kVersion"
        return
    version = found.group(1)
    if "CHANGELOG.md" in repository.files:
        text = (root / "CHANGELOG.md").read_text()
        heading = re.search(r"^## +(\S+)", text, re.MULTILINE)
        if not heading or heading.group(1) != version:
            yield "CHANGELOG.md", 1, f"its first version is not that of {VERSION_FILE}, {version}"
    value = re.compile(rf"(?<![\w.-]){re.escape(version)}(?![\w.-])")
    for name in sorted(repository.files - {VERSION_FILE}):
        if not VERSIONED.fullmatch(name):
            continue
        for number, line in enumerate((root / name).read_text().split("\n"), 1):
            if value.search(REMARK.sub("", line)):
                yield name, number, f"the version stands in {VERSION_FILE}; read it there"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                        else pathlib.Path(__file__).resolve().parents[2])
    repository = Repository(root)
    documents = sorted(name for name in repository.files if name.endswith(".md"))
    wrong = 0
    checked = 0
    for document in documents:
        # A span may go on in the next line.
        text = "\n".join(prose((root / document).read_text()))
        found = []
        for match in LINK.finditer(text):
            checked += 1
            problem = check_link(repository, document, match.group(1))
            if problem:
                found.append((match.start(), problem))
        for match in SPAN.finditer(text):
            checked += 1
            span = re.sub(r"\s+", " ", match.group(1))
            found += [(match.start(), problem)
                      for problem in check_span(repository, document, span)]
        for offset, problem in sorted(found):
            wrong += 1
            print(f"{document}:{text.count(chr(10), 0, offset) + 1}: {problem}")
    for name, line, problem in version_problems(repository):
        wrong += 1
        print(f"{name}:{line}: {problem}")
    if not wrong:
        print(f"documents: {len(documents)} files, {checked} links and names")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
