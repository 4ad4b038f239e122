#!/usr/bin/python3
"""Writes the manual pages from what --help prints: one text, two forms.

  make_manpages.py BIN_DIR OUT_DIR

OUT_DIR/man1 has synctl(1) and a page for each of its commands, synctl-submit(1);
OUT_DIR/man8 has the daemons. `ninja manpages` calls it; deploy/bundle.sh puts the
pages into the archive. Their date is SOURCE_DATE_EPOCH, else that of the last
commit: the same programs give the same bytes.
"""

import datetime
import os
import pathlib
import re
import subprocess
import sys

DAEMONS = ("syncline-scheduler", "syncline-ps", "syncline-worker")
# Heads of the parts that CLI11 prints, and theirs in a manual page.
PARTS = {"Positionals:": "ARGUMENTS", "Options:": "OPTIONS", "Subcommands:": "COMMANDS"}
# In the text below the options: a line that begins so opens a part of its own.
HEADS = {"Examples:": "EXAMPLES", "Exit codes:": "EXIT STATUS"}


def roff(text):
    """Text as roff prints it: no escapes, no requests, hyphens that are minus."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def quoted(text):
    return '"' + roff(text).replace('"', '\\(dq') + '"'


def date():
    said = os.environ.get("SOURCE_DATE_EPOCH")
    if not said:
        git = subprocess.run(["git", "-C", pathlib.Path(__file__).parent, "log", "-1",
                              "--format=%ct"], text=True, capture_output=True, check=False)
        said = git.stdout.strip() or "0"
    return datetime.datetime.fromtimestamp(int(said), datetime.timezone.utc).date().isoformat()


def help_of(program, *command):
    return subprocess.run([program, *command, "--help"], check=True, text=True,
                          capture_output=True).stdout.rstrip("\n").split("\n")


class Page:
    """One manual page, out of the lines of a help text."""

    def __init__(self, name, section, lines, version, see):
        self.out = [f".TH {quoted(name.upper())} {section} {date()} "
                    f"{quoted('Syncline ' + version)} \"Syncline\"",
                    ".nh", ".ad l"]
        self.about = lines[0].split(": ", 1)[-1] if lines[0].startswith(name + ":") else lines[0]
        self.head("NAME")
        # What it is for, in one line, is its first sentence.
        self.add(f"{roff(name)} \\- {roff(self.about.split('. ')[0].rstrip('.'))}")
        self.commands = []
        self.read(lines[1:])
        if see:
            self.head("SEE ALSO")
            self.add(", ".join(f"\\fB{roff(page)}\\fR({number})" for page, number in see))

    def head(self, name):
        self.out.append(f".SH {quoted(name)}")

    def add(self, line):
        self.out.append(line)

    def read(self, lines):
        at = 0
        while at < len(lines):
            line = lines[at]
            at += 1
            if line.startswith("Usage: "):
                program, _, rest = line[len("Usage: "):].partition(" [")
                self.head("SYNOPSIS")
                self.add(f"\\fB{roff(program)}\\fR " + roff("[" + rest if rest else ""))
            elif line in PARTS:
                end = at
                while end < len(lines) and (lines[end].startswith("  ") or (
                        lines[end] == "" and end + 1 < len(lines)
                        and lines[end + 1].startswith("  ") and line not in PARTS)):
                    end += 1
                self.head(PARTS[line])
                self.entries(lines[at:end], line == "Subcommands:")
                at = end
            elif line:
                # All that is left is the text below the options.
                self.footer(lines[at - 1:])
                return

    def entries(self, lines, are_commands):
        """"  --name TYPE   what it is", or that in two lines."""
        for line in lines:
            found = re.match(r"  (\S.*?)(?:\s{2,}(\S.*))?$", line)
            if line.startswith(" " * 20):
                self.add(roff(line.strip()))
                continue
            term, text = found.groups()
            self.add(".TP")
            self.add(f"\\fB{roff(term)}\\fR")
            if text:
                self.add(roff(text))
            if are_commands:
                self.commands.append(term)

    def footer(self, lines):
        if not any(lines[0].startswith(head) for head in HEADS):
            self.head("DESCRIPTION")
        literal = False
        for line in lines:
            head = next((h for h in HEADS if line.startswith(h)), None)
            indented = line.startswith(" ")
            if literal and not indented:
                self.add(".fi")
                self.add(".RE")
                literal = False
            if head:
                self.head(HEADS[head])
                line = line[len(head):].strip()
                if not line:
                    continue
            if indented and not literal:
                self.add(".RS 2")
                self.add(".nf")
                literal = True
            if not line:
                if self.out[-1] not in (".PP", ".RE") and not self.out[-1].startswith(".SH"):
                    self.add(".PP")
            elif line.startswith("Each command has its own help:"):
                continue
            else:
                self.add(roff(line[2:] if literal else line))
        if literal:
            self.add(".fi")
            self.add(".RE")
        while self.out[-1] == ".PP":
            self.out.pop()

    def text(self):
        lines = [line for i, line in enumerate(self.out)
                 if not (line == ".PP" and self.out[i + 1:i + 2]
                         and self.out[i + 1].startswith((".SH", ".RS")))]
        return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    programs, out = map(pathlib.Path, sys.argv[1:])
    for section in (1, 8):
        (out / f"man{section}").mkdir(parents=True, exist_ok=True)
    version = subprocess.run([programs / "synctl", "version"], check=True, text=True,
                             capture_output=True).stdout.split()[1]
    daemons = [(daemon, 8) for daemon in DAEMONS]

    def write(name, section, lines, see):
        page = Page(name, section, lines, version, see)
        (out / f"man{section}" / f"{name}.{section}").write_text(page.text())
        return page

    lines = help_of(programs / "synctl")
    commands = Page("synctl", 1, lines, version, []).commands
    write("synctl", 1, lines, [(f"synctl-{name}", 1) for name in commands] + daemons)
    for name in commands:
        lines = help_of(programs / "synctl", name)
        below = write(f"synctl-{name}", 1, lines, [("synctl", 1)]).commands
        for other in below:
            write(f"synctl-{name}-{other}", 1, help_of(programs / "synctl", name, other),
                  [(f"synctl-{name}", 1)])
    for daemon, section in daemons:
        write(daemon, section, help_of(programs / daemon),
              [("synctl", 1)] + [d for d in daemons if d[0] != daemon])


if __name__ == "__main__":
    main()
