#!/usr/bin/python3
"""Writes the dashboards, deploy/grafana/dashboards/*.json.

  make_dashboards.py            writes them
  make_dashboards.py --check    exits with 1 if they are not what it would write
  make_dashboards.py --queries  prints each panel's queries, for tests: one JSON
                                object a line

The output depends on this file alone. A panel whose query has data only in a
situation that a healthy cluster is not in says so with `only`, in words.
"""

import argparse
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "dashboards"
SCHEMA_VERSION = 39  # Grafana 11
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
GREEN, YELLOW, RED = "green", "yellow", "red"


class Panel:
    """One panel. `queries`: (expression, legend) pairs."""

    def __init__(self, title, queries, unit="short", about="", kind="timeseries",
                 width=8, height=8, warn=None, bad=None, stacked=False,
                 maximum=None, only=""):
        self.title, self.queries, self.unit = title, queries, unit
        self.about, self.kind, self.only = about, kind, only
        self.width, self.height = width, height
        self.warn, self.bad, self.maximum = warn, bad, maximum
        self.stacked = stacked

    def thresholds(self):
        steps = [{"color": GREEN, "value": None}]
        if self.warn is not None:
            steps.append({"color": YELLOW, "value": self.warn})
        if self.bad is not None:
            steps.append({"color": RED, "value": self.bad})
        # A smaller value is the worse one.
        if self.warn is not None and self.bad is not None and self.bad < self.warn:
            steps = [{"color": RED, "value": None},
                     {"color": YELLOW, "value": self.bad},
                     {"color": GREEN, "value": self.warn}]
        return {"mode": "absolute", "steps": steps}

    def to_json(self, number, x, y):
        has_thresholds = self.warn is not None or self.bad is not None
        custom = {}
        if self.kind == "timeseries":
            custom = {
                "drawStyle": "line", "lineWidth": 1, "showPoints": "auto",
                "fillOpacity": 30 if self.stacked else 5, "spanNulls": False,
                "stacking": {"mode": "normal" if self.stacked else "none",
                             "group": "A"},
                "thresholdsStyle": {"mode": "line" if has_thresholds else "off"},
            }
        defaults = {"unit": self.unit, "custom": custom,
                    "color": {"mode": "palette-classic"
                              if self.kind == "timeseries" else "thresholds"},
                    "thresholds": self.thresholds(), "min": 0, "mappings": []}
        if self.unit == "none":
            del defaults["min"]  # a loss may be negative
        if self.maximum is not None:
            defaults["max"] = self.maximum
        options = {
            "timeseries": {"legend": {"displayMode": "list", "placement": "bottom",
                                      "showLegend": True, "calcs": []},
                           "tooltip": {"mode": "multi", "sort": "desc"}},
            "stat": {"colorMode": "value", "graphMode": "area",
                     "justifyMode": "auto", "textMode": "auto",
                     "reduceOptions": {"calcs": ["lastNotNull"], "fields": "",
                                       "values": False}},
            "bargauge": {"displayMode": "gradient", "orientation": "horizontal",
                         "showUnfilled": True,
                         "reduceOptions": {"calcs": ["lastNotNull"], "fields": "",
                                           "values": False}},
        }[self.kind]
        about = self.about
        if self.only:
            about = f"{about} Only has data {self.only}.".strip()
        return {
            "id": number, "type": self.kind, "title": self.title,
            "description": about, "datasource": DATASOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": options,
            "targets": [
                {"refId": chr(ord("A") + i), "datasource": DATASOURCE,
                 "editorMode": "code", "expr": expr, "legendFormat": legend,
                 "instant": self.kind != "timeseries",
                 "range": self.kind == "timeseries"}
                for i, (expr, legend) in enumerate(self.queries)],
        }


def variable(name, label, query, multi=True):
    return {"name": name, "label": label, "type": "query",
            "datasource": DATASOURCE, "definition": query,
            "query": {"query": query, "refId": f"variable-{name}"},
            "refresh": 2, "sort": 3, "multi": multi, "includeAll": multi,
            "allValue": ".*" if multi else None, "hide": 0, "options": [],
            "current": {"text": "All", "value": "$__all"} if multi else {}}


DATASOURCE_VARIABLE = {"name": "datasource", "label": "Prometheus",
                       "type": "datasource", "query": "prometheus", "hide": 0,
                       "refresh": 1, "multi": False, "includeAll": False,
                       "options": [], "current": {}}
JOB = variable("job", "Job", "label_values(syncline_job_state_seconds, job)",
               multi=False)
JOBS = variable("job", "Job", "label_values(syncline_job_state_seconds, job)")
TASK = variable("task", "Task", 'label_values(up{task!=""}, instance)')
PS = variable("task", "Ps", "label_values(syncline_ps_jobs, instance)")

CLUSTER = [
    Panel("Members", [("syncline_scheduler_members", "{{task}}")], kind="stat",
          width=6, height=4),
    Panel("Jobs", [("syncline_scheduler_jobs", "{{state}}")], kind="stat",
          width=6, height=4),
    Panel("Longest wait in the queue",
          [("syncline_scheduler_queue_oldest_seconds", "oldest")], unit="s",
          kind="stat", width=4, height=4, warn=600, bad=1800),
    Panel("Processes that do not answer",
          [('count(up{task!=""} == 0) or vector(0)', "down")], kind="stat",
          width=4, height=4, warn=1, bad=1),
    Panel("Members lost, last hour",
          [('sum(increase(syncline_scheduler_members_lost_total{cause!="left"}'
            "[1h]))", "lost")], kind="stat", width=4, height=4, warn=1, bad=3),
    Panel("Job progress", [('syncline_job_clock{job=~"$job"} / '
                            '(syncline_job_planned_clocks{job=~"$job"} > 0)',
                            "{{job}}")], unit="percentunit", maximum=1, width=12),
    Panel("Time without progress",
          [('syncline_job_idle_seconds{job=~"$job"}', "{{job}}")], unit="s",
          about="Since a job's slowest worker last closed a clock.", warn=60,
          bad=300, width=12),
    Panel("Samples per second",
          [('syncline_job_samples_per_second{job=~"$job"}', "{{job}}")],
          width=12),
    Panel("Who is waited for",
          [('job_rank:syncline_ps_blame:rate1m{job=~"$job"}',
            "{{job}} worker {{rank}}")], unit="percentunit",
          about="Share of the time that all others wait for this worker alone.",
          warn=0.1, bad=0.2, width=12),
    Panel("Memory", [('process_resident_memory_bytes{instance=~"$task"}',
                      "{{instance}}")], unit="bytes"),
    Panel("Share of the memory it can get",
          [('instance:syncline_process_memory:ratio{instance=~"$task"}',
            "{{instance}}")], unit="percentunit", warn=0.8, bad=0.9, maximum=1),
    Panel("Processors", [('instance:process_cpu_seconds:rate1m{instance=~"$task"}',
                          "{{instance}}")]),
    Panel("Open files", [('process_open_fds{instance=~"$task"} / '
                          'process_max_fds{instance=~"$task"}', "{{instance}}")],
          unit="percentunit", warn=0.7, bad=0.9),
    Panel("Threads", [('process_threads{instance=~"$task"}', "{{instance}}")]),
    Panel("GPU in use",
          [('syncline_worker_gpu_utilization_ratio{instance=~"$task"}',
            "{{instance}}")], unit="percentunit", maximum=1,
          only="where workers have GPUs"),
    Panel("Copies of GPUs",
          [('rate(syncline_worker_gpu_copied_bytes_total'
            '{instance=~"$task"}[1m])', "{{instance}} {{direction}}")],
          unit="Bps", only="where workers have GPUs"),
    Panel("Time of copies of GPUs",
          [('rate(syncline_worker_gpu_copy_seconds_total'
            '{instance=~"$task"}[1m])', "{{instance}} {{direction}}")],
          unit="percentunit", only="where workers have GPUs",
          about="Share of the time that the GPU's queue copies: an estimate."),
]

JOB_PANELS = [
    Panel("State", [('syncline_job_state_seconds{job="$job"}', "{{state}}")],
          unit="s", about="How long the job has been in this state.",
          kind="stat", width=4, height=4),
    Panel("Clock", [('syncline_job_clock{job="$job"}', "closed"),
                    ('syncline_job_planned_clocks{job="$job"}', "of")],
          kind="stat", width=6, height=4),
    Panel("Time left", [('(syncline_job_planned_clocks{job="$job"} - '
                         'syncline_job_clock{job="$job"}) / '
                         '(job:syncline_job_clock:deriv1m{job="$job"} > 0)',
                         "at the speed of the last minute")], unit="s",
          kind="stat", width=4, height=4),
    Panel("Without progress", [('syncline_job_idle_seconds{job="$job"}', "idle")],
          unit="s", kind="stat", width=4, height=4, warn=60, bad=300),
    Panel("Attempts", [('syncline_job_attempts_total{job="$job"}', "attempts")],
          kind="stat", width=3, height=4, warn=2, bad=4),
    Panel("Skipped clocks",
          [('syncline_job_skipped_clocks_total{job="$job"}', "skipped")],
          about="A gradient was not finite.", kind="stat", width=3, height=4,
          warn=1, bad=100),
    Panel("Loss", [('syncline_job_loss{job="$job"}', "training"),
                   ('syncline_job_evaluation_loss{job="$job"}', "evaluation")],
          unit="none", width=12, height=9),
    Panel("Samples per second",
          [('syncline_job_samples_per_second{job="$job"}', "all"),
           ('syncline_job_worker_samples_per_second{job="$job"}',
            "worker {{rank}}")], width=12, height=9),
    Panel("Where the time goes",
          [('job_phase:syncline_job_training_seconds:rate1m{job="$job"}',
            "{{phase}}")], stacked=True, width=8,
          about="Seconds per second, over all workers' training threads."),
    Panel("What computing consists of",
          [('sum by (part) (rate('
            'syncline_job_worker_compute_seconds_total{job="$job"}[1m]))',
            "{{part}}")], stacked=True, width=8,
          about="Seconds per second, over all workers, estimated by some of "
                "the steps."),
    Panel("Waiting for others",
          [('job_rank:syncline_job_wait:ratio_rate1m{job="$job"}',
            "worker {{rank}}")], unit="percentunit", width=8, maximum=1,
          about="Share of its time. The straggler waits least."),
    Panel("Who is waited for",
          [('job_rank:syncline_ps_blame:rate1m{job="$job"}', "worker {{rank}}")],
          unit="percentunit", warn=0.1, bad=0.2, width=8,
          about="Share of the time that all others wait for this worker alone."),
    Panel("Clocks at which it came last",
          [('max by (rank) (rate(syncline_ps_blame_clocks_total{job="$job"}[1m]))',
            "worker {{rank}}")], unit="cps", width=8),
    Panel("Clocks of the workers",
          [('syncline_job_worker_clock{job="$job"} - on (job) group_left () '
            'syncline_job_clock{job="$job"}', "worker {{rank}}")], width=8,
          about="Ahead of the slowest one."),
    Panel("Staleness",
          [('max by (job) (syncline_ps_job_clock_spread_clocks{job="$job"})',
            "clocks apart"),
           ('max by (job) (syncline_ps_job_staleness_bound_clocks{job="$job"})',
            "bound")], width=8,
          about="At the bound plus one, the fastest worker waits. ASYNC has no "
                "bound."),
    Panel("Bytes per second, all workers",
          [("sum(rate(syncline_worker_pushed_bytes_total[1m]) * on (instance) "
            'group_left () max by (instance) (syncline_worker_job_clock{job="$job"} '
            ">= bool 0))", "pushed"),
           ("sum(rate(syncline_worker_pulled_bytes_total[1m]) * on (instance) "
            'group_left () max by (instance) (syncline_worker_job_clock{job="$job"} '
            ">= bool 0))", "pulled")], unit="Bps", width=8),
    Panel("Memory that steps take",
          [('sum by (rank, part) (syncline_worker_job_plan_bytes{job="$job"})',
            "worker {{rank}}, {{part}}")], unit="bytes", width=8),
    Panel("Clocks since the last evaluation",
          [('syncline_job_evaluation_lag_clocks{job="$job"}', "behind")],
          width=8, about="Of a job with test data."),
    Panel("Regime", [('syncline_job_regime{job="$job"}', "{{mode}}")], width=8,
          stacked=True, maximum=1, about="The mode in which the job trains."),
    Panel("Changes of the regime",
          [('syncline_job_regime_changes_total{job="$job"}', "changes")], width=8,
          about="While the job ran, by hand or by its rules."),
    Panel("Age of the last checkpoint",
          [('syncline_job_checkpoint_age_seconds{job="$job"}', "age"),
           ('syncline_job_checkpoint_period_seconds{job="$job"}',
            "every_seconds")], unit="s", width=8,
          about="Of a job with checkpoints: the work that a loss would cost."),
]

PS_PANELS = [
    Panel("Jobs", [('syncline_ps_jobs{instance=~"$task"}', "{{instance}}")],
          kind="stat", width=6, height=4),
    Panel("Share of the memory it can get",
          [('instance:syncline_process_memory:ratio{instance=~"$task"} and on '
            "(instance) syncline_ps_jobs", "{{instance}}")], unit="percentunit",
          kind="bargauge", width=9, height=4, warn=0.8, bad=0.9, maximum=1),
    Panel("Requests and answers held",
          [('instance:syncline_ps_in_flight:ratio{instance=~"$task"}',
            "{{instance}}")], unit="percentunit", kind="bargauge", width=9,
          height=4, warn=0.7, bad=0.9, maximum=1),
    Panel("Memory by use",
          [('sum by (instance) (syncline_ps_parameter_bytes{instance=~"$task"})',
            "{{instance}} parameters"),
           ('sum by (instance) (syncline_ps_slot_bytes{instance=~"$task"})',
            "{{instance}} optimizer"),
           ('sum by (instance) (syncline_ps_fold_bytes{instance=~"$task"})',
            "{{instance}} gradients that wait"),
           ('sum by (instance) (syncline_ps_table_bytes{instance=~"$task",'
            'tier="memory"})', "{{instance}} tables")], unit="bytes", width=12,
          stacked=True, only="for tables where a job has some"),
    Panel("Shared memory mapped",
          [('syncline_ps_shared_memory_bytes{instance=~"$task"}', "{{instance}}")],
          unit="bytes", width=12),
    Panel("Calls per second",
          [('sum by (rpc) (rate(syncline_ps_requests_total{instance=~"$task",'
            'code="OK"}[1m]))', "{{rpc}}")], unit="reqps"),
    Panel("Refused and failed calls per second",
          [('sum by (rpc, code) (rate(syncline_ps_requests_total{'
            'instance=~"$task",code!="OK"}[1m]))', "{{rpc}} {{code}}")],
          unit="reqps", only="once a call has failed"),
    Panel("Time of a call, 99 of 100",
          [("histogram_quantile(0.99, sum by (le, rpc) (rate("
            'syncline_ps_request_duration_seconds_bucket{instance=~"$task"}'
            "[1m])))", "{{rpc}}")], unit="s", about="Parking included."),
    Panel("Parked calls", [('syncline_ps_parked_calls{instance=~"$task"}',
                            "{{instance}} {{kind}}")],
          about="They wait for another worker."),
    Panel("Steps in the lanes' queues",
          [('syncline_ps_queued_steps{instance=~"$task"}', "{{instance}}")]),
    Panel("Processors per lane",
          [('instance:process_cpu_seconds:rate1m{instance=~"$task"} / on '
            "(instance) syncline_ps_lanes", "{{instance}}")],
          unit="percentunit"),
    Panel("Payload per second",
          [('rate(syncline_ps_received_bytes_total{instance=~"$task"}[1m])',
            "{{instance}} received"),
           ('rate(syncline_ps_sent_bytes_total{instance=~"$task"}[1m])',
            "{{instance}} sent")], unit="Bps"),
    Panel("Rows of tables",
          [('sum by (table, tier) (syncline_ps_table_rows{instance=~"$task"})',
            "{{table}} {{tier}}")], only="where a job has tables"),
    Panel("Tables, of what they may take",
          [('sum by (table, tier) (syncline_ps_table_bytes{instance=~"$task"}) / '
            '(sum by (table, tier) (syncline_ps_table_limit_bytes{'
            'instance=~"$task"}) > 0)', "{{table}} {{tier}}")],
          unit="percentunit", warn=0.9, bad=0.98, only="where a job has tables"),
    Panel("Rows pulled, by where they were",
          [('sum by (table, from) (rate(syncline_ps_table_pulled_rows_total{'
            'instance=~"$task"}[1m]))', "{{table}} {{from}}")], unit="ops",
          only="where a job has tables"),
    Panel("Pushed rows without effect",
          [('sum by (table, reason) (rate(syncline_ps_table_refused_rows_total{'
            'instance=~"$task"}[1m]))', "{{table}} {{reason}}")], unit="ops",
          only="where a job has tables"),
    Panel("Free disk for rows",
          [('syncline_ps_spill_disk_free_bytes{instance=~"$task"}',
            "{{instance}}")], unit="bytes",
          only="where the ps spill rows to disk"),
    Panel("Gradients that are not finite",
          [('sum by (job, rank) (rate(syncline_ps_non_finite_total{'
            'instance=~"$task"}[1m]))', "{{job}} worker {{rank}}")], unit="ops"),
    Panel("Blocks that came twice",
          [('rate(syncline_ps_duplicate_blocks_total{instance=~"$task"}[1m])',
            "{{instance}}")], unit="ops", about="Workers repeated calls."),
]

SCHEDULER = [
    Panel("Queued", [("syncline_scheduler_jobs_queued", "jobs")], kind="stat",
          width=6, height=4),
    Panel("Longest wait", [("syncline_scheduler_queue_oldest_seconds", "oldest")],
          unit="s", kind="stat", width=6, height=4, warn=600, bad=1800),
    Panel("Members at work", [("syncline_scheduler_members_engaged", "engaged"),
                              ("sum(syncline_scheduler_members)", "of")],
          kind="stat", width=6, height=4),
    Panel("Free disk", [("syncline_scheduler_disk_free_bytes / "
                         "syncline_scheduler_disk_bytes", "free")],
          unit="percentunit", kind="stat", width=6, height=4, warn=0.2, bad=0.1),
    Panel("Jobs by state", [("syncline_scheduler_jobs", "{{state}}")],
          stacked=True),
    Panel("Jobs per hour, by how they ended",
          [("sum by (state) (increase(syncline_scheduler_job_transitions_total{"
            'state=~"succeeded|failed|cancelled"}[1h]))', "{{state}}")]),
    Panel("Submitted jobs per hour",
          [("sum by (outcome) (increase(syncline_scheduler_submits_total[1h]))",
            "{{outcome}}")]),
    Panel("Calls per second", [("sum by (rpc) (rate("
                                "syncline_scheduler_rpcs_total[1m]))", "{{rpc}}")],
          unit="reqps", about="Calls that have ended; streams end with a member."),
    Panel("Failed calls per hour",
          [('sum by (rpc, code) (increase(syncline_scheduler_rpcs_total{'
            'code!="OK"}[1h]))', "{{rpc}} {{code}}")],
          about="Refused uploads and submits are among them."),
    Panel("Members gone per hour",
          [("sum by (cause) (increase(syncline_scheduler_members_lost_total"
            "[1h]))", "{{cause}}")]),
    Panel("Delay of the control loop",
          [("histogram_quantile(0.5, sum by (le) (rate("
            "syncline_scheduler_loop_delay_seconds_bucket[1m])))", "half"),
           ("histogram_quantile(0.99, sum by (le) (rate("
            "syncline_scheduler_loop_delay_seconds_bucket[1m])))", "99 of 100")],
          unit="s", warn=0.3, bad=1),
    Panel("Records that could not be written",
          [("increase(syncline_scheduler_state_write_failures_total[10m])",
            "failures")], warn=1, bad=1),
    Panel("Disk", [("syncline_scheduler_disk_free_bytes", "free"),
                   ("syncline_scheduler_disk_bytes", "size")], unit="bytes"),
]

DASHBOARDS = [
    ("cluster", "Syncline: cluster", [DATASOURCE_VARIABLE, JOBS, TASK], CLUSTER),
    ("job", "Syncline: one job", [DATASOURCE_VARIABLE, JOB], JOB_PANELS),
    ("ps", "Syncline: ps", [DATASOURCE_VARIABLE, PS], PS_PANELS),
    ("scheduler", "Syncline: scheduler", [DATASOURCE_VARIABLE], SCHEDULER),
]


def place(panels):
    placed, x, y, row_height = [], 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > WIDTH:
            x, y, row_height = 0, y + row_height, 0
        placed.append(panel.to_json(number, x, y))
        x, row_height = x + panel.width, max(row_height, panel.height)
    return placed


def dashboard(name, title, variables, panels):
    return {
        "uid": f"syncline-{name}", "title": title, "tags": ["syncline"],
        "schemaVersion": SCHEMA_VERSION, "version": 1, "editable": True,
        "timezone": "browser", "refresh": "10s", "graphTooltip": 1,
        "time": {"from": "now-30m", "to": "now"},
        "annotations": {"list": []},
        "links": [{"type": "dashboards", "tags": ["syncline"], "title": "Syncline",
                   "asDropdown": True, "includeVars": True, "keepTime": True,
                   "icon": "external link", "targetBlank": False, "tooltip": "",
                   "url": ""}],
        "templating": {"list": variables}, "panels": place(panels),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--queries", action="store_true")
    arguments = parser.parse_args()
    if arguments.queries:
        for name, _, _, panels in DASHBOARDS:
            for panel in panels:
                for expr, _ in panel.queries:
                    print(json.dumps({"dashboard": name, "panel": panel.title,
                                      "expr": expr, "only": panel.only}))
        return 0
    stale = []
    FOLDER.mkdir(exist_ok=True)
    for name, title, variables, panels in DASHBOARDS:
        text = json.dumps(dashboard(name, title, variables, panels), indent=2)
        file = FOLDER / f"{name}.json"
        if file.exists() and file.read_text() == text + "\n":
            continue
        stale.append(str(file))
        if not arguments.check:
            file.write_text(text + "\n")
    if arguments.check and stale:
        print(f"not up to date, run {sys.argv[0]}: {' '.join(stale)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
