#!/usr/bin/python3
"""The manual pages that deploy/make_manpages.py writes.

  manpages_test.py BUILD_DIR

There is a page for each program and each command of synctl; each names all
options of its --help, and neither mandoc nor groff has anything to complain of.

Exits with 77 where there is no mandoc or groff (deploy/install-deps.sh test).
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release").resolve() / "bin"
DAEMONS = ("syncline-scheduler", "syncline-ps", "syncline-worker")


def run(*command, **more):
    return subprocess.run([str(part) for part in command], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)


class ManpagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="syncline-man-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        made = run(REPOSITORY / "deploy/make_manpages.py", BIN, cls.folder)
        if made.returncode != 0:
            raise AssertionError(made.stdout)
        cls.pages = {page.stem: page for page in cls.folder.glob("man*/*")}

    def shown(self, name):
        """As a terminal shows it, without bold and underlines."""
        done = run("mandoc", "-Tutf8", "-Owidth=200", self.pages[name])
        self.assertEqual(done.returncode, 0, done.stdout)
        return re.sub(".\x08", "", done.stdout)

    def test_there_is_a_page_for_each_program_and_command(self):
        said = run(BIN / "synctl", "--help").stdout
        commands = re.findall(r"^  (\S+) ", said.split("Subcommands:")[1].split("Examples:")[0],
                              re.M)
        self.assertGreater(len(commands), 20)
        for name in ("synctl", *DAEMONS, *(f"synctl-{command}" for command in commands)):
            self.assertIn(name, self.pages)
        self.assertIn("synctl-checkpoints-export", self.pages)

    def test_pages_say_what_help_says(self):
        for name in self.pages:
            words = name.split("-") if name.startswith("synctl") else [name]
            if name == "synctl-tf-config":
                words = ["synctl", "tf-config"]
            said = run(BIN / words[0], *words[1:], "--help").stdout
            shown = self.shown(name)
            plain = re.sub(r"\s+", " ", shown)
            for option in re.findall(r"^  (-\S+)", said, re.M):
                self.assertIn(f" {option}", plain, name)
            for line in said.splitlines():
                if line.startswith("  ") and "synctl " in line and "--" in line:
                    self.assertIn(re.sub(r"\s+", " ", line.strip()), plain, name)
            for part in ("NAME", "SYNOPSIS", "OPTIONS", "SEE ALSO"):
                self.assertRegex(shown, rf"(?m)^{part}$", name)

    def test_mandoc_has_no_warning(self):
        done = run("mandoc", "-Tlint", "-W", "warning", *sorted(self.pages.values()))
        self.assertEqual(done.stdout, "")

    def test_groff_has_no_warning(self):
        for page in self.pages.values():
            done = run("groff", "-man", "-Tutf8", "-ww", "-z", page)
            self.assertEqual((done.returncode, done.stdout), (0, ""), page)

    def test_man_shows_them(self):
        if shutil.which("man") is None:
            self.skipTest("no man")
        done = run("man", "-l", self.pages["synctl-logs"])
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("synctl logs", done.stdout)

    def test_the_same_programs_give_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as again:
            run(REPOSITORY / "deploy/make_manpages.py", BIN, again)
            for page in self.pages.values():
                other = pathlib.Path(again) / page.relative_to(self.folder)
                self.assertEqual(page.read_bytes(), other.read_bytes())


if __name__ == "__main__":
    if shutil.which("mandoc") is None or shutil.which("groff") is None:
        print("no mandoc or groff: deploy/install-deps.sh test")
        sys.exit(77)
    unittest.main()
