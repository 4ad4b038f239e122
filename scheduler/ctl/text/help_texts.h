#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_HELP_TEXTS_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_HELP_TEXTS_H_

// The texts that `synctl --help` and the help of each command print below the
// options: what to know beforehand, and examples.

namespace syncline::ctl {

inline constexpr char kAbout[] =
    R"(synctl: submit training jobs to a Syncline cluster and follow them.)";

inline constexpr char kFooter[] = R"(Examples:
  synctl local deploy/examples/mnist/digits.textproto --ps 2 --workers 3
  synctl submit job.textproto --watch
  synctl list --state running
  synctl --scheduler host0:7070 list
  synctl download j-0001 trained.onnx --to results
  synctl help job optimizer

Exit codes:
  0    done; submit --watch and watch: the job succeeded
  1    the job failed for good, or what was asked is wrong
  2    wrong usage
  3    the scheduler cannot be reached
  130  cancelled, or Ctrl-C
  138  worth a retry: a process of the cluster was lost or told to stop, or the
       queue is full

Each command has its own help: synctl submit --help)";

inline constexpr char kExitCodes[] = R"(
Exit codes: 0 done, 1 not as asked, 2 wrong usage, 3 no scheduler,
130 cancelled or Ctrl-C, 138 worth a retry (synctl --help says more).)";

inline constexpr char kWatchFooter[] = R"(
Ends with the job, with exit code 0 only if it succeeded. Ctrl-C leaves the job
running. Says so if the scheduler is silent, and gives up after 20 s of that.

Examples:
  synctl watch j-0001
  synctl watch j-0001 --output json)";

inline constexpr char kListFooter[] = R"(
Examples:
  synctl list
  synctl list --state queued running --limit 10
In JSON a job has only the name of its spec; `synctl get` has all of it.)";

inline constexpr char kGetFooter[] = R"(
Examples:
  synctl get j-0001
  synctl get j-0001 --output json)";

inline constexpr char kCancelFooter[] = R"(
Its members are free soon after. A job that is over cannot be cancelled.

Examples:
  synctl cancel j-0001
  synctl cancel j-0001 --reason "wrong data")";

inline constexpr char kDownloadFooter[] = R"(
A file is there whole, with the right checksum, or not at all. Where the folder
has files of another job, those of this one go to FOLDER-2.

Examples:
  synctl download j-0001
  synctl download j-0001 trained.onnx --to results)";

inline constexpr char kClusterFooter[] = R"(
Examples:
  synctl cluster
  synctl cluster --output json)";

inline constexpr char kVersionFooter[] = R"(
Examples:
  synctl version)";

inline constexpr char kSubmitFooter[] = R"(
The job file is JobSpec (`synctl help job`) in protobuf text format or JSON; its
model.path is relative to it, and the model travels with the job. Both are
checked here before anything is sent, and all problems are named at once.
A job that needs more than the cluster has is queued, with a warning.
Ctrl-C while watching leaves the job running.

Examples:
  synctl submit mnist.textproto
  synctl submit mnist.textproto --watch && echo trained
  synctl submit mnist.textproto --key nightly-42 --watch
  synctl submit mnist.textproto --set training.epochs=20
  synctl submit mnist.textproto --output json)";

inline constexpr char kLocalFooter[] = R"(
Starts a scheduler, ps and workers as child processes on loopback, runs the job
on them and ends them, also after Ctrl-C and after a failure. Writes
trained.onnx, its weights, tables, metrics.json, history.csv and all logs to the
output folder; one that has files already is left alone, and NAME-2 is taken.
Prints where the scheduler listens: other commands reach it there while the job
runs. Workers that are given a --data-root read nothing outside it.

Examples:
  synctl local mnist.textproto --ps 2 --workers 3
  synctl local mnist.textproto --workers 2 --evaluator
  synctl local mnist.textproto --set learning_rate.base=0.01
  synctl local mnist.textproto --data-root /data --out results/mnist)";

inline constexpr char kGenerateFooter[] = R"(
Row N of a seed is the same on every machine, whatever else is generated. Prints
the AUC of the teacher that drew the labels: what a perfect model would reach.

Examples:
  synctl generate criteo --rows 2000000 --out train.tsv
  synctl generate criteo --rows 100000 --first-row 2000000 --out test.tsv)";

inline constexpr char kGenerateExamples[] = R"(
Examples:
  synctl generate criteo --help
  synctl generate criteo --rows 2000000 --out train.tsv)";

inline constexpr char kModelFooter[] = R"(
Without NAME: lists the models. The file is ONNX with initial values, so a job
needs no model.initialize; a setting that is wrong names those there are. Rows of
click models' tables have none (rows=0): the job declares and fills them.

Examples:
  synctl model
  synctl model mlp --set hidden=1024,1024 > model.onnx
  synctl model lenet --set channels=8,16 --set classes=36 > model.onnx
  synctl model gpt --set layers=6 --set length=128 --set dropout=0.1 > model.onnx
  synctl model dlrm --set tables=each --set rows=100000 > model.onnx)";

inline constexpr char kPlanFooter[] = R"(
Memory by role, the largest tensors and FLOPs by operator, from the same plan
that a worker makes; nothing runs and no data is read. With micro-batches or
recomputed segments, in the job or asked for here, the plan without them is
shown next to it. A multiplication and an addition are two FLOPs.

Examples:
  synctl plan job.textproto
  synctl plan job.textproto --batch-size 1024 --micro-batches 4
  synctl plan job.textproto --set optimizer.kind=ADAM
  synctl plan job.textproto --recompute-segments 8 --output json)";

inline constexpr char kProfileFooter[] = R"(
A worker of the running job records its next steps: time by operator, forward
and backward, and what else a step's time went into. Nothing is slowed down
before or after. The profile stays with the job as a file of its own. A job that
ends or fails earlier gives the steps that there were, one that is cancelled
none.

Examples:
  synctl profile j-0001
  synctl profile j-0001 --rank 2 --steps 100 --trace trace.json)";

inline constexpr char kTablesFooter[] = R"(
Of each table: rows in memory and on disk and their bytes, how often a row was
found where, why keys were refused and rows expired, and the keys pushed most.
The ps report every two seconds, and at the end of the job; what they said last
can be read until the scheduler restarts.

Examples:
  synctl tables
  synctl tables j-0001 --output json)";

inline constexpr char kDoctorFooter[] = R"(
Looks at TF_CONFIG in the environment: its form; and, unless --offline, whether
all host names resolve, this task's port is free, the scheduler answers, all
versions are equal, and processes of this host can share memory. Every problem is
named. Exit code 0: usable, 1: not.

Examples:
  synctl doctor
  TF_CONFIG='{"task":{"type":"worker","index":0}}' synctl doctor --offline)";

inline constexpr char kTfConfigFooter[] = R"help(
Examples:
  export TF_CONFIG="$(synctl tf-config --task worker:0 \
      --cluster chief=a:2222 worker=b:2222 ps=c:2222,d:2222)"
  synctl tf-config --task ps:1 --scheduler a:7070   # from a running cluster)help";

inline constexpr char kHelpFooter[] = R"(
`synctl help job` prints the fields of a job file, message by message, with type,
meaning, default and range; behind it a field or a message prints that alone.

Examples:
  synctl help submit
  synctl help job | less
  synctl help job data.train.csv)";

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_HELP_TEXTS_H_
