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
  138  worth a retry: a process of the cluster was lost or told to stop, the
       queue is full, or another change of the regime is under way

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

inline constexpr char kWhyFooter[] = R"(
What the job waits for; the worker that the others wait for; what most of the
time goes into; each restart with its reason; the last checkpoint, and why one was
not made; what has happened lately; what helps.

Examples:
  synctl why j-0001
  synctl why j-0001 --output json)";

inline constexpr char kEventsFooter[] = R"(
States, attempts and their members, members that were lost and why, checkpoints,
evaluations, changes of the regime, drains, and starts of the scheduler, with
their times. The last 400 are kept, with the job's record; a restarted scheduler
has them, too.

Examples:
  synctl events j-0001
  synctl events j-0001 -f --output json)";
inline constexpr char kLogsFooter[] = R"(
Each line behind the task that logged it. While the job runs its members are
asked, ps too; once it has ended, what they have stored with it. What a killed
process wrote is there if the next process of its task has the same --work-dir.
A member that cannot be reached is named, and the others go on. Of each task up
to 8 MiB are kept. Every line has trace=, the job's trace id: one grep over the
logs of all processes tells its story (`synctl get` prints the id).

Examples:
  synctl logs j-0001
  synctl logs j-0001 -f --tail 20
  synctl logs j-0001 --task ps:0 --output json)";

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

inline constexpr char kTopFooter[] = R"(
Of each running job its clock, loss and samples/s; of each of its workers the
same, the share of its time that it waits for others, and for whom they wait.
Where the output is no terminal it is shown once, after a second.

Examples:
  synctl top
  synctl top --once | head)";

inline constexpr char kCompletionFooter[] = R"(
Examples:
  source <(synctl completion bash)
  synctl completion bash > /etc/bash_completion.d/synctl)";

inline constexpr char kVersionFooter[] = R"(
Examples:
  synctl version)";

inline constexpr char kSubmitFooter[] = R"(
The job file is JobSpec (`synctl help job`) in protobuf text format or JSON; its
model.path is relative to it, and the model travels with the job. Both are
checked here before anything is sent, and all problems are named at once.
A job that needs more than the cluster has is queued, with a warning.
Ctrl-C while watching leaves the job running.
With --from the job goes on at the checkpoint's clock; another optimizer, batch
size or number of workers than its job had is refused. --weights-only takes the
values alone, and so allows all of that.
With --weights the job begins with the values of a safetensors file, as PyTorch's
safetensors.torch.save_file writes it: for fine-tuning. The file travels with the
job. A tensor of another shape, or a parameter that it lacks, is refused.

Examples:
  synctl submit mnist.textproto
  synctl submit mnist.textproto --watch && echo trained
  synctl submit mnist.textproto --key nightly-42 --watch
  synctl submit mnist.textproto --set training.epochs=20
  synctl submit mnist.textproto --from j-0042@800
  synctl submit finetune.textproto --from /ckpt/j-0042/... --weights-only
  synctl submit tune.textproto --weights base.safetensors --rename 'model.*=*'
  synctl submit mnist.textproto --output json)";

inline constexpr char kEvaluateFooter[] = R"(
Submits a job with the model, the test data and the metrics of the checkpoint's
job. The cluster's evaluator scores it, or a worker where no evaluator is free;
it must see the checkpoint's folder. Waits for the end and prints the metrics.

Examples:
  synctl evaluate j-0042
  synctl evaluate j-0042@800 --data /data/other.csv
  synctl evaluate /ckpt/j-0042/... --set metrics=[ACCURACY])";

inline constexpr char kResumeFooter[] = R"(
A new job with the spec and the model of one that has failed or was cancelled; it
begins at the clock of that one's last checkpoint. In SYNC it ends with the same
bits as a job that was never interrupted.

Examples:
  synctl resume j-0042
  synctl resume j-0042 --watch)";

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

inline constexpr char kCheckpointFooter[] = R"(
At the next step at which that is possible, whatever `checkpoint` of the job file
says of when; the job needs one. Prints clock, bytes, seconds and folder once the
checkpoint is whole. The job goes on meanwhile, and keeps as many as before.

Examples:
  synctl checkpoint j-0001
  synctl checkpoint j-0001 --timeout 30 && echo saved)";

inline constexpr char kScaleFooter[] = R"(
A running job writes a checkpoint and goes on from there with so many workers: a
planned move, which counts against no limit of restarts. Where fewer are free it
takes those, and the others once they are free and no job waits for them. A job
that waits in the queue begins with so many. A clock keeps its samples
(training.global_batch, or batch_size times resources.workers; with data.sharing
LEASED one batch), so learning rate, epochs and evaluations stay where they were.

The number is between the job's resources.min_workers and max_workers where it has
them. It is refused where the job has no `checkpoint`, does not train by SYNC and
does not lease its data, or trains by SYNC and has BatchNormalization of each
worker's own batch.

Examples:
  synctl scale j-0001 --workers 4
  synctl scale j-0001 --workers 2 --reason "the night's batch jobs")";

inline constexpr char kUseFooter[] = R"(
A cordoned member gets no new job. A drained one also lets its job go: the job
writes a checkpoint and goes on from there on other members, or waits in the queue
until there are enough. That is no restart: it counts against no limit. drain
returns when the member has no job any more and can be stopped. It is refused
where the job has no `checkpoint`; and of a ps, where it has no
checkpoint.directory. The use is the task's: a daemon that is started anew in its
place gets no job either, until it is uncordoned, and a scheduler that is started
anew remembers it.

Examples:
  synctl drain ps:1 --reason "new kernel"
  synctl cordon worker:3
  synctl uncordon ps:1)";

inline constexpr char kCheckpointsFooter[] = R"(
A checkpoint is a folder: CHECKPOINTS/JOB/CLOCK-CUT, with a file for each shard
and a manifest. One without a manifest is being written, or was left by a process
that was killed. Nothing is asked of a scheduler or a ps: the folders must be
visible here.

Examples:
  synctl checkpoints list /mnt/checkpoints
  synctl checkpoints show /mnt/checkpoints/j-0001/000000001200-001000000004b0400
  synctl checkpoints export FOLDER --to model.safetensors
  synctl checkpoints export FOLDER --to model.onnx --model submitted.onnx)";

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

inline constexpr char kCertsFooter[] = R"(
A certificate names what its process is: scheduler, ps, worker, chief,
evaluator, client. Called again with the same folder, certificates are renewed
by the same authority; daemons take up the new files by themselves. ca.key can
make a certificate for anyone: keep it off the cluster's machines.

Examples:
  synctl certs create --dir certs
  synctl certs create --dir certs scheduler ps/0 ps/1 worker/0 client/alice
  synctl certs create --dir certs chief/0+scheduler
  synctl certs show certs/worker-0.crt)";

inline constexpr char kStateFooter[] = R"(
The archive has one moment of the scheduler's state: the records of jobs, and
their files. It is taken while jobs run. It also has the secrets of jobs that run:
keep it as you keep the state folder. To restore it, unpack it into an empty
folder and start the scheduler with that as --state-dir:

  mkdir state && tar -xf state.tar -C state

`state verify` reads the archive or the folder, asks no scheduler, and names every
record and file that is damaged or missing.

Examples:
  synctl state backup state.tar
  synctl state verify state.tar
  synctl state verify /var/lib/syncline)";

inline constexpr char kTokenFooter[] = R"(
A scheduler with --token-file wants a token from everyone who uses synctl: set
SYNCLINE_TOKEN, or SYNCLINE_TOKEN_FILE to a file that has it. A viewer may look
at and download everything, a submitter also submit, profile and have checkpoints
written, an operator also cancel, scale, cordon and drain. The file has hashes, so a token is seen once, when it is made.
Changes count at once, without a restart.

With --tenant a token is for the jobs of that tenant alone. Those of others are
to its bearer as if they were not there. Without --tenant an operator or admin
sees all jobs, a viewer or submitter those that have no tenant.

Examples:
  synctl token create alice --role submitter --days 30 --file tokens
  synctl token create bob --role operator --tenant acme --file tokens
  synctl token list --file tokens
  synctl token revoke alice --file tokens)";

inline constexpr char kProfileFooter[] = R"(
A worker of the running job records its next steps: time by operator, forward
and backward, and what else a step's time went into. Nothing is slowed down
before or after. The profile stays with the job as a file of its own. A job that
ends or fails earlier gives the steps that there were, one that is cancelled
none.

Examples:
  synctl profile j-0001
  synctl profile j-0001 --rank 2 --steps 100 --trace trace.json)";

inline constexpr char kRegimeFooter[] = R"(
The change is made at a clock that all workers come to: those that are ahead
wait there for those that are behind. Then all ps and workers go on by the new
mode. The command answers when that has happened. If anything is missing until
then, the job goes on as before and the command says what. `synctl get` has all
changes of a job, with their clocks and reasons.

A change is refused, with the field, where something in the job is tied to its
mode: optimizer LAMB, training.sync_batch_statistics, precision FLOAT16,
tables.cache_clocks, and strategies without ps.

A change of the strategy moves values and the optimizer's state, in sync alone: the
job ends with the bits of one that kept its strategy. Not with tables, groups,
training.sync_batch_statistics, stop, or an evaluator in the cluster; with 16 bits on
the wire between parameter-server and all-reduce alone; to parameter-server only where
the job has reserved ps (resources.ps).

Examples:
  synctl regime j-0001 --mode async
  synctl regime j-0001 --strategy all-reduce
  synctl regime j-0001 --mode bounded-staleness --bound 4 --reason "slow host"
  synctl regime j-0001 --mode sync --learning-rate-factor 0.5)";

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
