// Measures what a job pays for outliving its processes, and how long a loss
// holds it up. Jobs run on daemons of this machine.
//
//   training     two workers and a ps with 512 MiB of dense state and a table
//                of 1 M rows: samples/s with a checkpoint every 30 s against
//                none, and the longest step of each
//   lost worker  kill -9 of one of four workers of a job in SYNC that may go
//                on with three: until the others' second clock
//   lost ps      kill -9 of a ps with 512 MiB of state, another one is free:
//                until the next attempt's first clock, beside reading the
//                checkpoint once from the disk
//
// When a clock ended is read from the event file among a job's results.

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "proto/tensorboard.pb.h"
#include "tests/bench/benchmarks.h"
#include "tests/bench/cold_read.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(20);
constexpr uint64_t kEventBytesMax = 16 << 20;
// Values and Adam's two moments.
constexpr int kArrays = 3;

// --- Clocks of a job that has ended ------------------------------------------

struct ClockEnd {
  int64_t clock = 0;  // clocks closed
  absl::Time time;    // by the wall clock
};

// Of the job's last attempt, in order.
absl::StatusOr<std::vector<ClockEnd>> ClockEnds(TestCluster* cluster,
                                                const JobStatus& job) {
  std::string name;
  for (const Artifact& artifact : job.artifacts()) {
    if (absl::StrContains(artifact.name(), "tfevents")) name = artifact.name();
  }
  const std::string to =
      cluster->dir().File(absl::StrCat("events-", job.job_id()));
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto result,
      cluster->Synctl({"download", job.job_id(), name, "--to", to}));
  if (result.exit.code != 0) return absl::UnknownError(result.err);
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::string bytes,
      ReadFile(absl::StrCat(to, "/", name), kEventBytesMax));
  std::vector<ClockEnd> ends;
  // A record is a length, its checksum, the event and a checksum.
  constexpr size_t kBefore = sizeof(uint64_t) + sizeof(uint32_t);
  constexpr size_t kBehind = sizeof(uint32_t);
  for (size_t at = 0; at + kBefore < bytes.size();) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof(length));
    at += kBefore;
    TensorBoardEvent event;
    if (length > bytes.size() - at ||
        !event.ParseFromArray(bytes.data() + at, static_cast<int>(length))) {
      return absl::DataLossError(absl::StrCat(name, " is not as written"));
    }
    at += length + kBehind;
    for (const auto& value : event.summary().value()) {
      if (value.tag() != "train/loss") continue;
      ends.push_back(
          {event.step(), absl::UnixEpoch() + absl::Seconds(event.wall_time())});
    }
  }
  for (size_t i = 1; i < ends.size(); ++i) {
    if (ends[i].clock == ends[i - 1].clock + 1) continue;
    return absl::InternalError(
        "a job of so many clocks has a point of several");
  }
  return ends;
}

absl::StatusOr<JobStatus> EndOf(TestCluster* cluster, const std::string& id) {
  SYNCLINE_RETURN_IF_ERROR(cluster->Synctl({"watch", id}, kPatience).status());
  SYNCLINE_ASSIGN_OR_RETURN(JobStatus job, cluster->Get(id));
  if (job.state() == SUCCEEDED) return job;
  return absl::InternalError(
      absl::StrCat("the job did not end well: ", job.ShortDebugString()));
}

// A smoke run starts clusters enough with one of each.
int Repetitions(const BenchOptions& options) {
  return options.smoke ? 1 : options.repetitions;
}

// --- Training with checkpoints -----------------------------------------------

constexpr uint32_t kWorkers = 2;
constexpr int kBatch = 64;
constexpr int kRowDim = 16;

struct Sizes {
  int64_t rows;
  int ids_a_sample;
  int hidden;
  double every_seconds;
  double seconds;  // that a job takes, about

  int samples() const { return static_cast<int>(rows / ids_a_sample); }
  int64_t epoch_clocks() const { return samples() / (kBatch * kWorkers); }
};

// A bag of rows, their sum, and three dense layers with 44.7 million values:
// 512 MiB with Adam's moments.
constexpr Sizes kSizes = {.rows = 1'024'000,
                          .ids_a_sample = 160,
                          .hidden = 6'680,
                          .every_seconds = 30,
                          .seconds = 75};
constexpr Sizes kSmokeSizes = {.rows = 10'240,
                               .ids_a_sample = 20,
                               .hidden = 256,
                               .every_seconds = 1,
                               .seconds = 4};

std::string BagModel(const Sizes& sizes) {
  return absl::Substitute(
      R"(<ir_version: 8, opset_import: ["" : 13]>
bags (int64[N, $0] ids, float[$1, $2] emb, float[$2, $3] w1, float[$3] b1,
      float[$3, $3] w2, float[$3] b2, float[$3, 1] w3, float[1] b3)
    => (float[N, 1] logit) <int64[1] one = {1}> {
  rows = Gather (emb, ids)
  sum = ReduceSum <keepdims = 0> (rows, one)
  h1 = Gemm (sum, w1, b1)
  a1 = Relu (h1)
  h2 = Gemm (a1, w2, b2)
  a2 = Relu (h2)
  logit = Gemm (a2, w3, b3)
})",
      sizes.ids_a_sample, sizes.rows, kRowDim, sizes.hidden);
}

// Each row is in one sample, so that an epoch changes all of them.
absl::Status WriteSamples(const Sizes& sizes, int count,
                          const std::string& path) {
  std::ofstream file(path);
  int64_t id = 0;
  for (int i = 0; i < count; ++i) {
    file << i % 2;
    for (int k = 0; k < sizes.ids_a_sample; ++k) file << ',' << id++;
    file << '\n';
  }
  file.close();
  return file.good() ? absl::OkStatus() : absl::DataLossError(path);
}

JobSpec BagJob(const Sizes& sizes) {
  JobSpec job = JobFromText(R"pb(
    name: "bags"
    model {
      path: "model.onnxtxt"
      initialize { pattern: "b?" scheme: ZEROS }
      initialize { pattern: "w?" scheme: HE_NORMAL }
    }
    data {
      train { csv { path: "train.csv" } }
      test { csv { path: "test.csv" } }
      label { field: "0" }
    }
    loss { kind: SIGMOID_CROSS_ENTROPY }
    optimizer { kind: ADAM }
    learning_rate { base: 1e-5 }
    consistency { mode: SYNC }
    tables {
      name: "emb"
      optimizer { kind: ROW_WISE_ADAGRAD }
    }
    resources { ps: 1 }
  )pb");
  auto* const feed = job.mutable_data()->add_feeds();
  feed->set_input("ids");
  feed->set_field(absl::StrCat("1:", sizes.ids_a_sample + 1));
  job.mutable_resources()->set_workers(kWorkers);
  job.mutable_training()->set_batch_size(kBatch);
  return job;
}

struct Trained {
  double samples_per_second = 0;
  double median_step = 0;   // seconds
  double longest_step = 0;  // likewise
  std::vector<CheckpointInfo> checkpoints;
};

// Clocks of the first epoch, which makes the rows, are left out.
absl::StatusOr<Trained> TrainBags(TestCluster* cluster, const Sizes& sizes,
                                  const std::string& job_file) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string id, cluster->Submit(job_file));
  SYNCLINE_ASSIGN_OR_RETURN(const JobStatus job, EndOf(cluster, id));
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<ClockEnd> ends,
                            ClockEnds(cluster, job));
  const auto first = static_cast<size_t>(sizes.epoch_clocks());
  if (ends.size() < first + 2) {
    return absl::InternalError(
        absl::StrCat("the job has only ", ends.size(), " clocks"));
  }
  std::vector<double> steps;
  for (size_t i = first; i < ends.size(); ++i) {
    steps.push_back(absl::ToDoubleSeconds(ends[i].time - ends[i - 1].time));
  }
  std::sort(steps.begin(), steps.end());
  const double seconds =
      absl::ToDoubleSeconds(ends.back().time - ends[first - 1].time);
  return Trained{
      .samples_per_second =
          kBatch * kWorkers * static_cast<double>(steps.size()) / seconds,
      .median_step = steps[steps.size() / 2],
      .longest_step = steps.back(),
      .checkpoints = {job.checkpoints().begin(), job.checkpoints().end()}};
}

absl::Status MeasureTraining(const BenchOptions& options, Report* report) {
  const Sizes sizes = options.smoke ? kSmokeSizes : kSizes;
  const TempDir data;
  SYNCLINE_RETURN_IF_ERROR(
      WriteSamples(sizes, sizes.samples(), data.File("train.csv")));
  SYNCLINE_RETURN_IF_ERROR(WriteSamples(sizes, 8, data.File("test.csv")));
  TestCluster cluster({.ps = 1, .workers = kWorkers, .data_root = data.path()});
  SYNCLINE_RETURN_IF_ERROR(cluster.Start());
  const std::string folder = cluster.dir().File("checkpoints");
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(folder));

  JobSpec job = BagJob(sizes);
  job.mutable_training()->set_threads(options.threads);
  const auto write = [&](const std::string& name, int64_t clocks) {
    job.set_name(name);
    job.mutable_training()->set_max_clocks(static_cast<uint64_t>(clocks));
    job.mutable_training()->set_epochs(
        static_cast<uint32_t>(clocks / sizes.epoch_clocks() + 1));
    return WriteJob(cluster.dir(), job, BagModel(sizes));
  };
  SYNCLINE_ASSIGN_OR_RETURN(
      const Trained first,
      TrainBags(&cluster, sizes, write("first", 2 * sizes.epoch_clocks())));
  const int64_t clocks =
      sizes.epoch_clocks() +
      static_cast<int64_t>(sizes.seconds / first.median_step);
  const std::string without = write("without", clocks);
  job.mutable_checkpoint()->set_every_seconds(sizes.every_seconds);
  job.mutable_checkpoint()->set_directory(folder);
  const std::string with = write("with", clocks);

  report->Set("workers", kWorkers);
  report->Set("batch", kBatch);
  report->Set("rows", sizes.rows);
  report->Set("clocks", clocks);
  for (int i = 0; i < Repetitions(options); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(const Trained plain,
                              TrainBags(&cluster, sizes, without));
    SYNCLINE_ASSIGN_OR_RETURN(const Trained saved,
                              TrainBags(&cluster, sizes, with));
    if (!plain.checkpoints.empty() || saved.checkpoints.empty()) {
      return absl::InternalError("the wrong job has checkpoints");
    }
    const CheckpointInfo& last = saved.checkpoints.back();
    report->Add("training without checkpoints", "samples/s",
                plain.samples_per_second);
    report->Add("training with checkpoints", "samples/s",
                saved.samples_per_second);
    report->Add("checkpoints of a job", "",
                static_cast<double>(saved.checkpoints.size()));
    report->Add("size of the last", "MiB",
                static_cast<double>(last.bytes()) / (1 << 20));
    report->Add("time of the last, from its cut's announcement", "s",
                last.seconds());
    for (const auto& [name, side] :
         {std::pair("without", &plain), std::pair("with", &saved)}) {
      report->Add(absl::StrCat("median step ", name), "ms",
                  1000 * side->median_step);
      report->Add(absl::StrCat("longest step ", name), "ms",
                  1000 * side->longest_step);
      report->Add(absl::StrCat("2 x the median step + 50 ms ", name), "ms",
                  2000 * side->median_step + 50);
    }
  }
  report->AddRatio("training: with / without checkpoints",
                   "training with checkpoints", "training without checkpoints",
                   0.95);
  for (const char* name : {"with", "without"}) {
    report->AddRatio(absl::StrCat("longest step ", name, " / bound"),
                     absl::StrCat("longest step ", name),
                     absl::StrCat("2 x the median step + 50 ms ", name),
                     AtMost(1));
  }
  return absl::OkStatus();
}

// --- Losses ------------------------------------------------------------------

// From `killed` to the end of the second clock after it: the first one may have
// had all gradients of the lost worker.
absl::StatusOr<double> HeldUp(const std::vector<ClockEnd>& ends,
                              absl::Time killed) {
  const auto first =
      std::find_if(ends.begin(), ends.end(),
                   [&](const ClockEnd& one) { return one.time > killed; });
  if (ends.end() - first < 2) {
    return absl::InternalError("the job ended at the kill");
  }
  return absl::ToDoubleSeconds((first + 1)->time - killed);
}

// Kills the daemon, and returns when.
absl::Time Kill(TestCluster* cluster, const std::string& name) {
  const absl::Time now = absl::Now();
  cluster->daemon(name).Signal(SIGKILL);
  return now;
}

absl::Status Revive(TestCluster* cluster, const std::string& name,
                    int members) {
  cluster->daemon(name).WaitUntil(absl::Now() + kPatience);
  SYNCLINE_RETURN_IF_ERROR(cluster->StartDaemon(name));
  return cluster->WaitForFreeMembers(members, kPatience);
}

absl::Status MeasureLostWorker(const BenchOptions& options, Report* report) {
  constexpr int kLosing = 4;
  const int clocks = options.smoke ? 150 : 300;
  TestCluster cluster(
      {.ps = 2, .workers = kLosing, .step_pause = absl::Milliseconds(20)});
  SYNCLINE_RETURN_IF_ERROR(cluster.Start());
  const std::string folder = cluster.dir().File("checkpoints");
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(folder));
  JobSpec job = DigitsJob();
  job.set_name("lost-worker");
  job.mutable_data()->mutable_train()->mutable_digits()->set_count(
      static_cast<uint64_t>(clocks) * kLosing * kBatch);
  job.mutable_training()->set_batch_size(kBatch);
  job.mutable_training()->set_threads(1);
  job.mutable_resources()->set_workers(kLosing);
  job.mutable_resources()->set_min_workers(kLosing - 1);
  job.mutable_checkpoint()->set_every_seconds(1000);
  job.mutable_checkpoint()->set_directory(folder);
  job.mutable_restart()->set_max(1);
  const std::string name = "lost worker: kill -9 to the others' second clock, ";
  for (int i = 0; i < Repetitions(options); ++i) {
    for (const int ps : {1, 2}) {
      job.mutable_resources()->set_ps(ps);
      SYNCLINE_ASSIGN_OR_RETURN(
          const std::string id,
          cluster.Submit(WriteJob(cluster.dir(), job, MlpModel(784, 256, 10))));
      SYNCLINE_RETURN_IF_ERROR(
          cluster.WaitForClock(id, clocks / 10, kPatience).status());
      const absl::Time killed = Kill(&cluster, "worker-1");
      SYNCLINE_ASSIGN_OR_RETURN(const JobStatus end, EndOf(&cluster, id));
      if (end.attempt() != 1 || end.lost_workers_size() != 1) {
        return absl::InternalError(
            absl::StrCat("the job did not go on without the worker: ",
                         end.ShortDebugString()));
      }
      SYNCLINE_ASSIGN_OR_RETURN(const auto ends, ClockEnds(&cluster, end));
      SYNCLINE_ASSIGN_OR_RETURN(const double held_up, HeldUp(ends, killed));
      report->Add(absl::StrCat(name, ps, " ps"), "s", held_up);
      SYNCLINE_RETURN_IF_ERROR(Revive(&cluster, "worker-1", kLosing + 2));
    }
  }
  for (const int ps : {1, 2}) {
    report->SetGoal(absl::StrCat(name, ps, " ps"), AtMost(3));
  }
  return absl::OkStatus();
}

// The files of a checkpoint.
absl::StatusOr<std::vector<std::string>> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.is_regular_file(error)) files.push_back(entry.path().string());
  }
  if (error) return absl::UnknownError(error.message());
  return files;
}

absl::Status MeasureLostPs(const BenchOptions& options, Report* report) {
  constexpr int kClocks = 60;
  constexpr int kEvery = 20;
  constexpr int kInputs = 784;
  constexpr int kClasses = 10;
  const int64_t state_bytes = int64_t{options.smoke ? 12 : 512} << 20;
  const auto hidden = static_cast<int>(state_bytes / kArrays / sizeof(float) /
                                       (kInputs + 1 + kClasses));
  // The job lasts until its ps is killed, however small its state is.
  TestCluster cluster(
      {.ps = 2, .workers = 1, .step_pause = absl::Milliseconds(50)});
  SYNCLINE_RETURN_IF_ERROR(cluster.Start());
  const std::string folder = cluster.dir().File("checkpoints");
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(folder));
  JobSpec job = DigitsJob();
  job.set_name("lost-ps");
  job.mutable_data()->mutable_train()->mutable_digits()->set_count(kClocks);
  job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  job.mutable_learning_rate()->set_base(1e-5f);
  job.mutable_training()->set_batch_size(1);
  job.mutable_training()->set_threads(1);
  job.mutable_checkpoint()->set_every_clocks(kEvery);
  job.mutable_checkpoint()->set_keep_last(kClocks / kEvery);
  job.mutable_checkpoint()->set_directory(folder);
  job.mutable_restart()->set_max(1);
  job.mutable_restart()->set_backoff_seconds(0);
  const std::string job_file =
      WriteJob(cluster.dir(), job, MlpModel(kInputs, hidden, kClasses));
  const std::string lost = "lost ps: kill -9 to the next attempt's first clock";
  const std::string rest = "lost ps: beyond reading the checkpoint cold";
  for (int i = 0; i < Repetitions(options); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::string id, cluster.Submit(job_file));
    JobStatus status;
    const bool saved = Eventually(kPatience, [&] {
      const auto now = cluster.Get(id);
      if (now.ok()) status = *now;
      return status.state() > RUNNING || !status.checkpoints().empty();
    });
    if (!saved || status.state() != RUNNING) {
      return absl::InternalError(
          absl::StrCat("no checkpoint was made: ", status.ShortDebugString()));
    }
    const CheckpointInfo checkpoint = *status.checkpoints().rbegin();
    const std::string victim =
        absl::StrCat("ps-", status.ps(0).member().task().index());
    SYNCLINE_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                              FilesIn(checkpoint.path()));
    for (const std::string& file : files) {
      SYNCLINE_RETURN_IF_ERROR(DropCache(file));
    }
    const absl::Time killed = Kill(&cluster, victim);
    SYNCLINE_ASSIGN_OR_RETURN(const JobStatus end, EndOf(&cluster, id));
    if (end.attempt() != 2) {
      return absl::InternalError(
          absl::StrCat("the job did not go back: ", end.ShortDebugString()));
    }
    SYNCLINE_ASSIGN_OR_RETURN(const auto ends, ClockEnds(&cluster, end));
    const auto next =
        std::find_if(ends.begin(), ends.end(), [&](const ClockEnd& one) {
          return one.time > killed && one.clock == checkpoint.clock() + 1;
        });
    if (next == ends.end()) {
      return absl::InternalError("the attempt's first clock has no time");
    }
    const double seconds = absl::ToDoubleSeconds(next->time - killed);
    double cold = 0;
    for (const std::string& file : files) {
      SYNCLINE_ASSIGN_OR_RETURN(const double one, ReadCold(file));
      cold += one;
    }
    report->Set("MiB of the lost state",
                static_cast<double>(checkpoint.bytes()) / (1 << 20));
    report->Add(lost, "s", seconds);
    report->Add("lost ps: reading the checkpoint cold", "s", cold);
    report->Add(rest, "s", seconds - cold);
    SYNCLINE_RETURN_IF_ERROR(Revive(&cluster, victim, 3));
  }
  report->SetGoal(rest, AtMost(5));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunFailoverBench(const BenchOptions& options, Report* report) {
  const auto wants = [&](absl::string_view name) {
    return absl::StrContains(name, options.only);
  };
  if (wants("training")) {
    SYNCLINE_RETURN_IF_ERROR(MeasureTraining(options, report));
  }
  if (wants("lost worker")) {
    SYNCLINE_RETURN_IF_ERROR(MeasureLostWorker(options, report));
  }
  if (wants("lost ps")) return MeasureLostPs(options, report);
  return absl::OkStatus();
}

}  // namespace syncline
