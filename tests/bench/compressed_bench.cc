// Measures what compression of gradients costs a job and what it saves: shipped
// examples, trained by each method and without any, one after the other on
// daemons of this machine. In SYNC a job has the same bits each time, so what
// is learned needs no repetitions, time does.
//
// ONE_BIT_ADAM is for ALL_REDUCE alone, the others are measured by ps. DGC is
// for SGD and MOMENTUM, so an example is trained twice without compression:
// with its own optimizer, for the other methods, and with MOMENTUM. clip_norm
// goes with DGC alone and is left out elsewhere.

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/job/job_spec_validator.h"
#include "common/system/file.h"
#include "tests/bench/benchmarks.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

constexpr uint32_t kWorkers = 2;
constexpr uint32_t kPs = 2;
constexpr uint64_t kFileBytesMax = 1 << 24;
constexpr absl::Duration kPatience = absl::Hours(1);

struct Example {
  std::string name;
  JobSpec job;  // with the optimizer and rate of the example
  std::string model;
  // Of the same job with MOMENTUM 0.9.
  float momentum_rate = 0;
  double momentum_clip_norm = 0;
  uint64_t warmup_clocks = 0;  // of DGC and ONE_BIT_ADAM
  // Goals are of the accuracy, else of the loss.
  bool by_accuracy = false;
};

// Generated digits, which need no files.
Example Digits(int clocks) {
  constexpr int kBatch = 64;
  Example example;
  example.name = "digits";
  example.job = DigitsJob();
  DataSpec& data = *example.job.mutable_data();
  data.mutable_train()->mutable_digits()->set_count(
      static_cast<uint64_t>(clocks) * kBatch * kWorkers);
  data.mutable_test()->mutable_digits()->set_count(2000);
  data.mutable_test()->mutable_digits()->set_seed(2);
  example.job.add_metrics(ACCURACY);
  example.job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  example.job.mutable_learning_rate()->set_base(0.001f);
  example.job.mutable_training()->set_batch_size(kBatch);
  example.model = MlpModel(784, 256, 10);
  example.momentum_rate = 0.02f;
  example.warmup_clocks = static_cast<uint64_t>(clocks) / 4;
  example.by_accuracy = true;
  return example;
}

absl::StatusOr<Example> Shipped(const std::string& name) {
  const std::string folder =
      absl::StrCat(SourceDir(), "/deploy/examples/", name, "/");
  const std::string file = folder + "job.textproto";
  SYNCLINE_ASSIGN_OR_RETURN(const std::string text,
                            ReadFile(file, kFileBytesMax));
  Example example;
  example.name = name;
  SYNCLINE_ASSIGN_OR_RETURN(example.job, ParseJobSpec(text, file));
  SYNCLINE_ASSIGN_OR_RETURN(
      example.model,
      ReadFile(folder + example.job.model().path(), kFileBytesMax));
  return example;
}

absl::StatusOr<std::vector<Example>> Examples(const BenchOptions& options) {
  std::vector<Example> examples = {Digits(options.smoke ? 8 : 800)};
  if (options.smoke || !std::filesystem::exists(TestDataDir())) {
    return examples;
  }
  SYNCLINE_ASSIGN_OR_RETURN(Example cnn, Shipped("mnist-cnn"));
  cnn.momentum_rate = 0.02f;
  cnn.warmup_clocks = 400;
  cnn.by_accuracy = true;
  examples.push_back(std::move(cnn));
  SYNCLINE_ASSIGN_OR_RETURN(Example gpt, Shipped("gpt"));
  gpt.momentum_rate = 0.3f;
  gpt.momentum_clip_norm = 1;
  gpt.warmup_clocks = 500;
  examples.push_back(std::move(gpt));
  return examples;
}

struct Method {
  bool has_momentum = false;
  CompressionSpec::Kind kind = CompressionSpec::NONE;
  bool has_goal = false;
  bool values = false;  // they come back compressed
};
constexpr Method kMethods[] = {
    {false, CompressionSpec::NONE},
    {false, CompressionSpec::INT8, /*has_goal=*/true},
    {false, CompressionSpec::TOP_K},
    {false, CompressionSpec::TERNGRAD},
    {false, CompressionSpec::ONE_BIT_ADAM, /*has_goal=*/true},
    {true, CompressionSpec::NONE},
    {true, CompressionSpec::DGC, /*has_goal=*/true},
    {false, CompressionSpec::INT8, /*has_goal=*/true, /*values=*/true},
    {true, CompressionSpec::DGC, /*has_goal=*/true, /*values=*/true},
};

JobSpec JobOf(const Example& example, const Method& method) {
  JobSpec job = example.job;
  job.set_name(absl::StrCat(example.name, "-",
                            CompressionSpec::Kind_Name(method.kind),
                            method.has_momentum ? "-momentum" : ""));
  job.mutable_optimizer()->clear_clip_norm();
  if (method.has_momentum) {
    job.clear_optimizer();
    job.mutable_optimizer()->set_kind(OptimizerSpec::MOMENTUM);
    job.mutable_optimizer()->set_momentum(0.9f);
    job.mutable_optimizer()->set_clip_norm(
        static_cast<float>(example.momentum_clip_norm));
    LearningRateSpec& rate = *job.mutable_learning_rate();
    const float factor = example.momentum_rate / rate.base();
    rate.set_base(example.momentum_rate);
    if (rate.has_start()) rate.set_start(rate.start() * factor);
    if (rate.has_final()) rate.set_final(rate.final() * factor);
  }
  if (method.kind != CompressionSpec::NONE) {
    job.mutable_compression()->set_kind(method.kind);
    job.mutable_compression()->set_values(method.values);
    if (method.kind == CompressionSpec::DGC ||
        method.kind == CompressionSpec::ONE_BIT_ADAM) {
      job.mutable_compression()->set_warmup_clocks(example.warmup_clocks);
    }
  }
  job.mutable_training()->set_threads(1);
  job.mutable_resources()->set_workers(kWorkers);
  job.mutable_resources()->set_ps(kPs);
  if (method.kind == CompressionSpec::ONE_BIT_ADAM) {
    job.set_strategy(ALL_REDUCE);
    job.mutable_resources()->clear_ps();
  }
  return job;
}

absl::Status Measure(TestCluster* cluster, const Example& example,
                     const Method& method, const std::string& name,
                     Report* report) {
  const JobSpec job = JobOf(example, method);
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::string id,
      cluster->Submit(WriteJob(cluster->dir(), job, example.model)));
  SYNCLINE_RETURN_IF_ERROR(cluster->Synctl({"watch", id}, kPatience).status());
  SYNCLINE_ASSIGN_OR_RETURN(const JobStatus status, cluster->Get(id));
  if (status.state() != SUCCEEDED || status.evaluations().empty() ||
      status.progress().workers_size() != static_cast<int>(kWorkers)) {
    return absl::InternalError(
        absl::StrCat(name, " did not end well: ", status.ShortDebugString()));
  }
  double seconds = 0;
  double sent = 0;
  double whole = 0;
  double values = 0;
  for (const WorkerProgress& worker : status.progress().workers()) {
    seconds =
        std::max(seconds, worker.compute_seconds() + worker.push_seconds() +
                              worker.wait_seconds() + worker.pull_seconds() +
                              worker.data_seconds());
    sent += static_cast<double>(worker.gradient_bytes());
    whole += static_cast<double>(worker.gradient_float32_bytes());
    values += static_cast<double>(worker.value_bytes());
  }
  const auto steps = static_cast<double>(status.progress().clock());
  const double worker_steps = steps * kWorkers;
  const Evaluation& end = *status.evaluations().rbegin();
  report->Add(absl::StrCat(name, ": step"), "ms", 1000 * seconds / steps);
  report->Add(absl::StrCat(name, ": gradients"), "KiB/step",
              sent / worker_steps / 1024);
  report->Add(absl::StrCat(name, ": values"), "KiB/step",
              values / worker_steps / 1024);
  report->Add(absl::StrCat(name, ": smaller"), "x", whole / sent);
  report->Add(absl::StrCat(name, ": loss"), "", end.loss());
  report->Add(absl::StrCat(name, ": accuracy"), "", end.accuracy());
  return absl::OkStatus();
}

}  // namespace

absl::Status RunCompressedBench(const BenchOptions& options, Report* report) {
  TestCluster cluster(
      {.ps = kPs, .workers = kWorkers, .data_root = TestDataDir()});
  SYNCLINE_RETURN_IF_ERROR(cluster.Start());
  report->Set("workers", kWorkers);
  report->Set("ps", kPs);
  report->Set("fraction", 0.01);
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<Example> examples,
                            Examples(options));
  const auto name_of = [](const Example& example, const Method& method,
                          CompressionSpec::Kind kind) {
    const bool values = method.values && kind != CompressionSpec::NONE;
    return absl::StrCat(
        example.name, " ",
        OptimizerSpec::Kind_Name(method.has_momentum
                                     ? OptimizerSpec::MOMENTUM
                                     : example.job.optimizer().kind()),
        " ", CompressionSpec::Kind_Name(kind), values ? " both ways" : "");
  };
  for (const Example& example : examples) {
    std::vector<Method> measured;
    for (int i = 0; i < options.repetitions; ++i) {
      for (const Method& method : kMethods) {
        const std::string name = name_of(example, method, method.kind);
        // One method alone is compared with nothing.
        if (!absl::StrContains(name, options.only)) continue;
        if (i == 0) measured.push_back(method);
        SYNCLINE_RETURN_IF_ERROR(
            Measure(&cluster, example, method, name, report));
      }
    }
    for (const Method& method : measured) {
      const bool has_base = std::any_of(
          measured.begin(), measured.end(), [&](const Method& other) {
            return other.has_momentum == method.has_momentum &&
                   other.kind == CompressionSpec::NONE;
          });
      if (method.kind == CompressionSpec::NONE || !has_base) continue;
      const std::string name = name_of(example, method, method.kind);
      const std::string base = name_of(example, method, CompressionSpec::NONE);
      const auto add_ratio = [&](const char* what, std::optional<Goal> goal) {
        report->AddRatio(absl::StrCat(name, ": ", what, " / NONE"),
                         absl::StrCat(name, ": ", what),
                         absl::StrCat(base, ": ", what), goal);
      };
      add_ratio("step", std::nullopt);
      std::optional<Goal> goal;
      if (method.has_goal) goal = example.by_accuracy ? 0.99 : AtMost(1.01);
      add_ratio(example.by_accuracy ? "accuracy" : "loss", goal);
    }
  }
  return absl::OkStatus();
}

}  // namespace syncline
