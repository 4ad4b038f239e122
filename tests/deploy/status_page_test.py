#!/usr/bin/python3
"""The scheduler's status page in a browser, over a real cluster.

  status_page_test.py BUILD_DIR [SCREENSHOT_DIR]

A job trains and another one waits; both are looked at on a phone and on a screen, light and dark: the texts that must be there, names
for all that can be used, no line wider than the screen, nothing on the console,
nothing loaded from elsewhere, the same document from look to look. Then the
scheduler goes away, and comes back; and a cluster with tokens wants one.

Exits with 77 where there is no chromium (deploy/install-deps.sh test).
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import browser  # noqa: E402

SHOTS = pathlib.Path(sys.argv.pop(2)).resolve() if len(sys.argv) > 2 else None
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release").resolve() / "bin"
DEADLINE = 120  # seconds that a state is waited for
# What must have a name to be of use to someone who does not see it.
NAMED = {"button", "link", "combobox", "checkbox", "textbox", "image", "img", "table",
         "progressbar", "heading", "figure", "region", "listbox", "option"}
TEXT = "document.body ? document.body.innerText : ''"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


class Cluster:
    """Daemons in a folder of their own, ended with this object."""

    def __init__(self, scheduler_flags=(), members=()):
        self.temporary = tempfile.TemporaryDirectory(
            # The browser may still write into its profile.
            prefix="syncline-page-", ignore_cleanup_errors=True)
        self.folder = pathlib.Path(self.temporary.name)
        self.flags, self.running = scheduler_flags, {}
        self.listen, self.http = "127.0.0.1:0", "127.0.0.1:0"
        self.start_scheduler()
        for task in members:
            program = "ps" if task.startswith("ps") else "worker"
            self.start(task, [
                BIN / f"syncline-{program}", f"--scheduler={self.listen}", f"--task={task}",
                "--listen=127.0.0.1:0", f"--work-dir={self.folder / 'work'}",
                *(["--threads=1"] if program == "worker" else [])])

    def start_scheduler(self):
        port = self.folder / "port"
        port.unlink(missing_ok=True)
        self.start("scheduler", [
            BIN / "syncline-scheduler", f"--listen={self.listen}", f"--http={self.http}",
            f"--port-file={port}", "--state-dir=state", *self.flags])
        self.listen = eventually("the scheduler's port",
                                 lambda: port.exists() and port.read_text().strip())
        log = (self.folder / "scheduler.log").read_text()
        self.http = re.findall(r"msg=listening.* http=\"?([\d.:]+)|"
                               r"msg=\"listening\".* http=\"?([\d.:]+)", log)[-1]
        self.http = self.http[0] or self.http[1]
        self.page = f"http://{self.http}/"

    def start(self, name, command):
        with open(self.folder / f"{name}.log", "a") as log:
            self.running[name] = subprocess.Popen(
                [str(part) for part in command], stdout=log, stderr=subprocess.STDOUT,
                cwd=self.folder)

    def synctl(self, *arguments):
        done = subprocess.run([BIN / "synctl", *map(str, arguments)], text=True,
                              capture_output=True, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        return done.stdout

    def submit(self, *settings):
        return re.search(r"j-\d+", self.synctl(
            "submit", REPOSITORY / "deploy/examples/mnist/digits.textproto",
            "--scheduler", self.listen, "--set", "data.train.digits.count=2000", "--set",
            "data.test.digits.count=200", "--set", "resources.ps=1", *settings))[0]

    def end(self):
        for process in self.running.values():
            process.kill()
            process.wait()
        self.temporary.cleanup()


def eventually(what, check, seconds=DEADLINE):
    """The first true value of check(); fails with `what` and its last value."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s; last: {value!r}")
        time.sleep(0.2)


def eventually_passes(check):
    """Waits until check() raises no AssertionError; fails with the last one."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


class StatusPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(members=("ps:0", "chief:0", "worker:0"))
        cls.addClassCleanup(cls.cluster.end)
        cls.browser = browser.Browser(cls.cluster.folder)
        cls.addClassCleanup(cls.browser.close)
        cls.job = cls.cluster.submit("--set", "training.epochs=100000", "--set",
                                     "resources.workers=2")
        cls.waiting = cls.cluster.submit("--set", "resources.workers=7", "--set",
                                         "name=big.one")

    def text(self):
        return self.browser.run(TEXT)

    def wait_for(self, *texts, missing=()):
        def seen():
            text = self.text()
            return all(t in text for t in texts) and not any(t in text for t in missing)
        try:
            eventually(f"{texts}", seen)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}\n{self.browser.complaints}")

    def test_1_shows_a_running_job_on_every_screen(self):
        self.browser.look_as(1280, 900, dark=False)
        self.browser.open(self.cluster.page)
        self.wait_for(self.job, self.waiting, "running", "queued", "Live", "Training loss",
                      "Who waits for whom", "compute", "What has happened", "chief:0",
                      "worker:0", "ps:0", "Evaluations", "Samples/s", "Mode")
        eventually("the curve", lambda: self.browser.run(
            "document.querySelectorAll('#curve polyline').length"))
        eventually("shares", lambda: self.browser.run(
            "document.querySelectorAll('#split .split').length") == 2)
        eventually("logs", lambda: "trace=" in self.browser.run(
            "document.getElementById('logs-text').textContent"))
        for width, height in ((1280, 900), (390, 844)):
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    self.browser.look_as(width, height, dark)
                    # A new size, new rows and their names take the browser a moment.
                    eventually_passes(lambda wide=width: self.check_screen(wide))
                    self.assertEqual(self.browser.complaints, [])
                    if SHOTS:
                        SHOTS.mkdir(exist_ok=True)
                        self.browser.screenshot(
                            SHOTS / f"page-{width}-{'dark' if dark else 'light'}.png")
        background = self.browser.run(BACKGROUND)
        self.browser.look_as(390, 844, dark=False)
        eventually("a light background", lambda: self.browser.run(BACKGROUND) != background)

    def check_screen(self, width):
        wide = self.browser.run("document.documentElement.scrollWidth")
        self.assertLessEqual(wide, width, "the page scrolls sideways")
        self.assertGreaterEqual(self.browser.run(
            "Math.min(...[...document.querySelectorAll('#curve text')]"
            ".map((text) => text.getBBox().x))"), 0, "a label of the curve is cut")
        nodes = self.browser.accessible()
        self.assertLessEqual({"heading", "link", "progressbar", "table"},
                             {role for role, _ in nodes})
        for role, name in nodes:
            if role.lower() in NAMED:
                self.assertTrue(name.strip(), f"a {role} has no name: {nodes}")
        names = [name for _, name in nodes]
        self.assertTrue(any(n.startswith("Training loss from") for n in names), names)
        self.assertTrue(any(n.startswith("chief:0: ") for n in names), names)
        self.assertTrue(any("waited for" in n or " for " in n for n in names), names)

    def test_2_is_patched_and_not_loaded_again(self):
        self.browser.run("document.body.dataset.kept = 'yes'; 0")
        first = self.browser.run("document.getElementById('job-numbers').innerText")
        eventually("progress", lambda: first != self.browser.run(
            "document.getElementById('job-numbers').innerText"))
        self.assertEqual(self.browser.run("document.body.dataset.kept"), "yes")
        for url in self.browser.requests:
            self.assertTrue(url.startswith((self.cluster.page, "data:")), url)
        self.assertEqual([u for u in self.browser.requests if u == self.cluster.page],
                         [self.cluster.page])

    def test_3_another_job_is_chosen_by_its_name(self):
        self.browser.run(f"document.querySelector('a[href=\"#{self.waiting}\"]').click()")
        self.wait_for(f"{self.waiting} · big.one", "7 workers")
        self.assertEqual(self.browser.complaints, [])

    def test_4_texts_of_users_are_no_markup(self):
        bad = "<img src=x onerror=document.title='taken'>"
        self.cluster.synctl("cancel", self.waiting, "--scheduler", self.cluster.listen,
                            "--reason", bad)
        self.wait_for(bad, "cancelled")
        self.assertEqual(self.browser.run("document.title"), "Syncline")
        self.assertEqual(self.browser.run("document.images.length"), 0)
        self.assertEqual(self.browser.complaints, [])

    def test_5_says_that_the_scheduler_is_away_and_asks_less_often(self):
        self.cluster.running["scheduler"].kill()
        self.cluster.running["scheduler"].wait()
        self.wait_for("The scheduler does not answer")
        # What it knew last is still there.
        self.wait_for(self.job)
        if SHOTS:
            self.browser.screenshot(SHOTS / "page-away.png")
        self.cluster.start_scheduler()
        self.wait_for("Live", missing=("does not answer",))


class TokenPageTest(unittest.TestCase):
    def test_a_cluster_with_tokens_wants_one(self):
        folder = tempfile.TemporaryDirectory(prefix="syncline-token-")
        self.addCleanup(folder.cleanup)
        tokens = pathlib.Path(folder.name) / "tokens"
        made = subprocess.run([BIN / "synctl", "token", "create", "vera", "--role", "viewer",
                               "--file", tokens], check=True, text=True, capture_output=True)
        token = made.stdout.strip()
        cluster = Cluster([f"--token-file={tokens}"])
        self.addCleanup(cluster.end)
        tab = browser.Browser(cluster.folder)
        self.addCleanup(tab.close)
        tab.look_as(390, 844, dark=False)
        tab.open(cluster.page)
        eventually("the question", lambda: "This cluster wants a token" in tab.run(TEXT))
        self.assertNotIn("Members", tab.run(TEXT))
        boxes = [name for role, name in tab.accessible() if role == "textbox"]
        self.assertEqual(len(boxes), 1)
        self.assertIn("This cluster wants a token", boxes[0])
        if SHOTS:
            tab.screenshot(SHOTS / "page-token.png")
        for said, expected in (("synt_wrong", "token"), (token, "Members")):
            tab.run(f"document.getElementById('token').value = {said!r};"
                    "document.getElementById('token-form').requestSubmit(); 0")
            eventually(expected, lambda e=expected: e in tab.run(TEXT))
        self.assertIn("Live", tab.run(TEXT))
        # Not where other tabs or a later visit find it.
        self.assertEqual(tab.run("localStorage.length"), 0)


if __name__ == "__main__":
    if browser.program() is None:
        print("no chromium: deploy/install-deps.sh test")
        sys.exit(77)
    unittest.main(failfast=True)
