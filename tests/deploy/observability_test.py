#!/usr/bin/python3
"""What an on-call sees, tried on a cluster that is broken on purpose.

  observability_test.py BUILD_DIR

Checks rules, their unit tests, the runbook and the dashboards' files. Then starts
a cluster with two jobs, one of which waits, and a Prometheus with
deploy/prometheus and the scheduler's /sd as its only address. Each query of each
dashboard must have data, but for those that say when they have some. A worker is
frozen, and goes on; a ps is killed: the alerts for that must fire, and resolve.

Durations of the rules are shortened in a copy: what counts are states, each of
which is waited for. Exits with 77 where there is no promtool (Debian's package
prometheus: deploy/install-deps.sh test).
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
BIN = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release") / "bin"
BIN = BIN.resolve()
DEADLINE = 60  # seconds that a state is waited for
PARTS = ("recording.yml", "alerts.yml")
# In the copy that the test runs: a window, a wait, and thresholds in seconds.
SHORTER = [(r"\[1m\]", "[8s]", 2), (r"\[5m\]", "[8s]", 2), (r"\[10m\]", "[20s]", 3),
           (r"\bfor: \d+m", "for: 1s", 10), (r"idle_seconds > 300", "idle_seconds > 3", 1)]
# A scheduler beside the cluster, with a certificate; no member of anything.
TLS_TASK = "tls:0"


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def eventually(what, check, seconds=DEADLINE):
    """The first true value of check(); fails with `what` and its last value."""
    end = time.monotonic() + seconds
    while True:
        try:
            value = check()
            if value:
                return value
            last = value
        except (OSError, ValueError) as error:
            last = error
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s; last: {last!r}")
        time.sleep(0.2)


class Processes:
    """Child processes in a folder of their own, ended with this object."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}

    def start(self, name, command):
        log = open(self.folder / f"{name}.log", "w")
        self.running[name] = subprocess.Popen(
            [str(part) for part in command], stdout=log, stderr=subprocess.STDOUT,
            cwd=self.folder, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        log.close()

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def signal(self, name, number):
        self.running[name].send_signal(number)

    def end(self):
        for process in self.running.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self.running.values():
            process.wait()


def alert_names():
    return re.findall(r"- alert: (\w+)", (DEPLOY / "prometheus/alerts.yml").read_text())


def catalogue():
    return set(re.findall(r"^\| `(\w+)` ", (DEPLOY / "metrics.md").read_text(), re.M))


def dashboard_queries():
    said = subprocess.run([sys.executable, DEPLOY / "grafana/make_dashboards.py",
                           "--queries"], check=True, text=True, capture_output=True)
    return [json.loads(line) for line in said.stdout.splitlines()]


class FilesTest(unittest.TestCase):
    def run_tool(self, *command):
        done = subprocess.run([str(part) for part in command], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_rules_are_valid_and_do_what_their_tests_say(self):
        folder = DEPLOY / "prometheus"
        self.run_tool("promtool", "check", "config", folder / "prometheus.yml")
        self.run_tool("promtool", "check", "rules", *(folder / part for part in PARTS))
        self.run_tool("promtool", "test", "rules", folder / "alerts_test.yml")

    def test_each_alert_has_a_test_and_an_entry_in_the_runbook(self):
        tests = (DEPLOY / "prometheus/alerts_test.yml").read_text()
        runbook = (DEPLOY / "runbook.md").read_text()
        rules = (DEPLOY / "prometheus/alerts.yml").read_text()
        for name in alert_names():
            self.assertIn(f"name: {name}\n", tests)
            self.assertIn(f"\n## {name}\n", runbook)
            self.assertIn(f"runbook: deploy/runbook.md#{name.lower()}\n", rules)
        for title in re.findall(r"^## (Syncline\w+)$", runbook, re.M):
            self.assertIn(title, alert_names())

    def test_dashboards_are_what_their_script_writes(self):
        self.run_tool(sys.executable, DEPLOY / "grafana/make_dashboards.py", "--check")
        for file in (DEPLOY / "grafana/dashboards").glob("*.json"):
            board = json.loads(file.read_text())
            ids = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(ids), len(set(ids)))
            taken = set()
            for panel in board["panels"]:
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24)
                self.assertTrue(panel["targets"] and panel["fieldConfig"]["defaults"]["unit"])
                for x in range(place["x"], place["x"] + place["w"]):
                    for y in range(place["y"], place["y"] + place["h"]):
                        self.assertNotIn((x, y), taken, f"{file.name}: {panel['title']}")
                        taken.add((x, y))

    def test_rules_and_dashboards_name_metrics_that_there_are(self):
        texts = [(DEPLOY / "prometheus" / part).read_text() for part in PARTS]
        texts += [query["expr"] for query in dashboard_queries()]
        known = catalogue()
        self.assertGreater(len(known), 50)
        recorded = set(re.findall(r"record: (\S+)", texts[0]))
        for text in texts:
            for name in re.findall(r"\w+:syncline_[\w:]+|\w+:process_[\w:]+", text):
                self.assertIn(name, recorded)
            for name in re.findall(r"(?<![\w:])(?:syncline|process)_\w+(?!:)\b", text):
                plain = re.sub(r"_(bucket|sum|count)$", "", name)
                self.assertTrue({name, plain} & known, name)


class ClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="syncline-seen-")
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.processes = Processes(cls.folder)
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.addClassCleanup(cls.processes.end)
        cls.start_cluster()
        cls.job = cls.submit("--set", "training.epochs=10000")
        cls.waiting = cls.submit("--set", "training.epochs=1")
        cls.start_prometheus()

    @classmethod
    def start_cluster(cls):
        # A frozen worker is no lost one.
        cls.processes.start("scheduler", [
            BIN / "syncline-scheduler", "--listen=127.0.0.1:0", "--port-file=port",
            "--state-dir=state", "--lease-seconds=300"])
        port = cls.folder / "port"
        cls.scheduler = eventually("the scheduler's port", lambda: port.exists()
                                   and port.read_text().strip())
        cls.page = "http://" + eventually("its page", lambda: cls.page_of("scheduler"))
        for task, program in (("ps:0", "ps"), ("ps:1", "ps"), ("chief:0", "worker"),
                              ("worker:0", "worker")):
            cls.processes.start(task, [
                BIN / f"syncline-{program}", f"--scheduler={cls.scheduler}",
                f"--task={task}", "--listen=127.0.0.1:0",
                *(["--work-dir=.", "--threads=1"] if program == "worker" else [])])

    @classmethod
    def make_certificate(cls, days):
        subprocess.run([BIN / "synctl", "certs", "create", "--dir", cls.folder / "certs",
                        f"--days={days}", "scheduler"], check=True, capture_output=True)

    @classmethod
    def start_with_certificate(cls):
        """A scheduler whose certificate ends in three days; its HTTP address."""
        cls.make_certificate(3)
        certs = cls.folder / "certs"
        (cls.folder / "tokens").write_text("# nobody\n")
        cls.processes.start(TLS_TASK, [
            BIN / "syncline-scheduler", "--listen=127.0.0.1:0", "--state-dir=state-tls",
            f"--tls-cert={certs}/scheduler.crt", f"--tls-key={certs}/scheduler.key",
            f"--tls-ca={certs}/ca.crt", "--token-file=tokens"])
        return eventually("the address of its page", lambda: cls.page_of(TLS_TASK))

    @classmethod
    def page_of(cls, name):
        """HOST:PORT of the HTTP server; None: not yet."""
        found = re.search(r"\bhttp=\"?([\d.:]+)|\"http\": ?\"([\d.:]+)\"",
                          "\n".join(line for line in cls.processes.log(name).splitlines()
                                    if "advertised" in line))
        return found and (found[1] or found[2])

    @classmethod
    def submit(cls, *settings):
        said = subprocess.run(
            [BIN / "synctl", "submit", DEPLOY / "examples/mnist/digits.textproto",
             "--scheduler", cls.scheduler, "--output=json", "--set",
             "resources.workers=2", "--set", "data.train.digits.count=2000", "--set",
             "data.test.digits.count=200", "--set",
             "limits.step_timeout_seconds=300", "--set", "checkpoint.every_seconds=2",
             "--set", f"checkpoint.directory={cls.folder / 'checkpoints'}", *settings],
            capture_output=True, text=True, check=False)
        if said.returncode != 0:
            raise AssertionError(said.stdout + said.stderr)
        return json.loads(said.stdout)["job_id"]

    @classmethod
    def start_prometheus(cls):
        for part in PARTS:
            text = (DEPLOY / "prometheus" / part).read_text()
            (cls.folder / part).write_text(text)
        for pattern, short, least in SHORTER:
            replaced = 0
            for part in PARTS:
                text, count = re.subn(pattern, short, (cls.folder / part).read_text())
                (cls.folder / part).write_text(text)
                replaced += count
            if replaced < least:
                raise AssertionError(f"{pattern} is in the rules only {replaced} times")
        config = (DEPLOY / "prometheus/prometheus.yml").read_text()
        config = config.replace("http://127.0.0.1:8080/sd", cls.page + "/sd")
        config = config.replace(": 10s", ": 1s")
        config += ("  - job_name: tls\n    static_configs:\n"
                   f"      - targets: ['{cls.start_with_certificate()}']\n"
                   f"        labels: {{instance: '{TLS_TASK}'}}\n")
        (cls.folder / "prometheus.yml").write_text(config)
        cls.processes.start("prometheus", [
            "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
            "--web.listen-address=127.0.0.1:0", "--log.level=info"])
        found = eventually("Prometheus' port", lambda: re.search(
            r"Listening on\" address=(\S+)", cls.processes.log("prometheus")))
        cls.prometheus = f"http://{found[1]}"

    def query(self, expression):
        answer = json.loads(get(f"{self.prometheus}/api/v1/query?" +
                                urllib.parse.urlencode({"query": expression})))
        self.assertEqual(answer["status"], "success")
        return answer["data"]["result"]

    def alert(self, name, **labels):
        """The firing alert of this name and labels, or None."""
        alerts = json.loads(get(f"{self.prometheus}/api/v1/alerts"))["data"]["alerts"]
        for alert in alerts:
            if (alert["labels"]["alertname"] == name and alert["state"] == "firing" and
                    labels.items() <= alert["labels"].items()):
                return alert
        return None

    def test_1_prometheus_finds_every_process(self):
        def tasks():
            targets = json.loads(get(self.page + "/sd"))
            return sorted(f"{t['labels']['task']}:{t['labels']['index']}" for t in targets)
        wanted = ["chief:0", "ps:0", "ps:1", "scheduler:0", "worker:0"]
        eventually("/sd", lambda: tasks() == wanted)
        eventually("up", lambda: sorted(
            series["metric"]["instance"]
            for series in self.query('up{job="syncline"} == 1')) == wanted)
        self.assertEqual(len(self.query('process_open_fds{instance="ps:1"}')), 1)

    def test_2_what_is_served_is_the_catalogues(self):
        eventually("the job", lambda: self.query(f'syncline_job_clock{{job="{self.job}"}} > 5'))
        known = catalogue()
        for target in json.loads(get(self.page + "/sd")):
            text = get(f"http://{target['targets'][0]}/metrics")
            checked = subprocess.run(["promtool", "check", "metrics"], input=text,
                                     text=True, capture_output=True, check=False)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
            names = set(re.findall(r"^# TYPE (\w+) ", text, re.M))
            self.assertGreater(len(names), 20)
            self.assertLessEqual(names, known)
            for line in text.splitlines():
                if not line.startswith("#"):
                    self.assertNotRegex(line, r'="[^"]*:\d+[^"]*"', "an address in a label")

    def test_3_every_panel_has_data(self):
        def missing():
            lacking = []
            for query in dashboard_queries():
                if query["only"]:
                    self.query(query["expr"])  # but it is one that can be asked
                    continue
                expression = query["expr"]
                value = self.job if query["dashboard"] == "job" else ".*"
                expression = expression.replace("$job", value).replace("$task", ".*")
                if not self.query(expression):
                    lacking.append(f"{query['dashboard']}: {query['panel']}: {expression}")
            return lacking
        try:
            eventually("panels", lambda: not missing())
        except AssertionError:
            self.fail("no data:\n" + "\n".join(missing()))
        self.assertTrue(self.query("syncline_scheduler_queue_oldest_seconds > 0"))
        self.assertTrue(self.query(
            f'syncline_job_state_seconds{{job="{self.waiting}",state="queued"}}'))
        eventually("an evaluation", lambda: self.query("syncline_job_evaluation_loss"))

    def test_4_a_frozen_worker_is_named_and_the_job_is_stuck(self):
        self.assertIsNone(self.alert("SynclineJobStuck"))
        self.processes.signal("worker:0", signal.SIGSTOP)
        try:
            stuck = eventually("stuck", lambda: self.alert("SynclineJobStuck", job=self.job))
            self.assertIn(self.job, stuck["annotations"]["summary"])
            straggler = eventually("straggler", lambda: self.alert(
                "SynclineStraggler", job=self.job, rank="1"))
            self.assertIn("worker 1", straggler["annotations"]["summary"])
            self.assertIsNone(self.alert("SynclineStraggler", rank="0"))
            eventually("down", lambda: self.alert("SynclineMemberDown", instance="worker:0"))
            # No worker closes a clock, so no checkpoint comes.
            old = eventually("old", lambda: self.alert("SynclineCheckpointOld", job=self.job))
            self.assertIn(self.job, old["annotations"]["summary"])
        finally:
            self.processes.signal("worker:0", signal.SIGCONT)
        for name in ("SynclineJobStuck", "SynclineStraggler", "SynclineMemberDown",
                     "SynclineCheckpointOld"):
            eventually(f"{name} resolved", lambda name=name: self.alert(name) is None)

    def test_5_a_killed_ps_is_a_lost_member_and_its_job_leaves_nothing(self):
        self.assertIsNone(self.alert("SynclineMemberLost"))
        self.processes.signal("ps:1", signal.SIGKILL)
        eventually("lost", lambda: self.alert("SynclineMemberLost", cause="died"))
        for target in json.loads(get(self.page + "/sd")):
            eventually("series of the ended job", lambda t=target: f'job="{self.job}"' not in
                       get(f"http://{t['targets'][0]}/metrics"))
        eventually("resolved", lambda: self.alert("SynclineMemberLost") is None)

    def test_6_what_a_scheduler_cannot_use_is_told_and_mended(self):
        soon = eventually("soon", lambda: self.alert("SynclineCertificateExpiring",
                                                     instance=TLS_TASK))
        self.assertIn(TLS_TASK, soon["annotations"]["summary"])
        self.make_certificate(90)
        eventually("resolved", lambda: self.alert("SynclineCertificateExpiring") is None)
        self.assertIsNone(self.alert("SynclineFileUnusable"))
        (self.folder / "tokens").write_text("what is this\n")
        unusable = eventually("unusable", lambda: self.alert(
            "SynclineFileUnusable", instance=TLS_TASK, file="tokens"))
        self.assertIn("its file of tokens", unusable["annotations"]["summary"])
        (self.folder / "tokens").write_text("# nobody\n")
        eventually("resolved", lambda: self.alert("SynclineFileUnusable") is None)
        # Its series of a scheduler are in the way of the next test.
        self.processes.signal(TLS_TASK, signal.SIGKILL)

    def test_7_a_lost_scheduler_is_told(self):
        self.processes.signal("scheduler", signal.SIGKILL)
        eventually("down", lambda: self.alert("SynclineSchedulerDown"))


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/bin"
    if shutil.which("promtool") is None or shutil.which("prometheus") is None:
        print("no promtool or prometheus: install Debian's package prometheus")
        sys.exit(77)
    unittest.main(failfast=True)
