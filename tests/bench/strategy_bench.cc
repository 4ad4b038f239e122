// Measures the strategies against each other, and ALL_REDUCE against PyTorch's
// DistributedDataParallel: the same SYNC job with two workers, by two ps, by
// ALL_REDUCE and by SHARDED, stages 1 and 3, one after the other on one cluster
// of daemons of this machine. All must end with the same bits, which is
// checked first. Compared are the samples per second of the training loops:
// preparing the job, the evaluation at its end and the upload of results are
// outside.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "tests/bench/benchmarks.h"
#include "tests/bench/peer_programs.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

constexpr uint32_t kWorkers = 2;
constexpr uint32_t kPs = 2;
constexpr uint64_t kModelBytesMax = uint64_t{1} << 30;

struct Model {
  std::string name;
  std::string text;
  int batch = 0;
  std::vector<int> widths;
};

std::vector<Model> Models() {
  return {{"784-256-10", MlpModel(784, 256, 10), 256, {784, 256, 10}},
          {"784-1024-1024-10",
           R"(<ir_version: 8, opset_import: ["" : 13]>
mlp (float[N,784] x, float[784,1024] w1, float[1024] b1, float[1024,1024] w2,
     float[1024] b2, float[1024,10] w3, float[10] b3) => (float[N,10] logits) {
  hidden1 = Gemm(x, w1, b1)
  active1 = Relu(hidden1)
  hidden2 = Gemm(active1, w2, b2)
  active2 = Relu(hidden2)
  logits = Gemm(active2, w3, b3)
}
)",
           256,
           {784, 1024, 1024, 10}}};
}

// A strategy, and of SHARDED its stage.
struct Way {
  Strategy strategy = PARAMETER_SERVER;
  uint32_t stage = 0;

  std::string name() const {
    return absl::StrCat(Strategy_Name(strategy),
                        stage > 1 ? absl::StrCat(" stage ", stage) : "");
  }
};

JobSpec Job(const Model& model, const Way& way, int steps) {
  const Strategy strategy = way.strategy;
  JobSpec job = DigitsJob();
  job.set_name(absl::StrCat("bench-", Strategy_Name(strategy), way.stage, "-",
                            model.name));
  if (way.stage > 0) job.mutable_sharding()->set_stage(way.stage);
  const auto samples = static_cast<uint32_t>(steps * model.batch) * kWorkers;
  job.mutable_data()->mutable_train()->mutable_digits()->set_count(samples);
  job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  job.mutable_learning_rate()->set_base(0.001f);
  job.mutable_training()->set_batch_size(model.batch);
  job.mutable_training()->set_threads(1);
  job.set_strategy(strategy);
  job.mutable_resources()->set_workers(kWorkers);
  job.mutable_resources()->set_ps(strategy == PARAMETER_SERVER ? kPs : 0);
  return job;
}

struct Result {
  double samples_per_second = 0;
  std::vector<std::pair<std::string, double>> parts;  // ms a step, of the chief
  std::string trained;                                // trained.onnx
};

absl::StatusOr<Result> Train(TestCluster* cluster, const JobSpec& job,
                             const Model& model) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::string id,
      cluster->Submit(WriteJob(cluster->dir(), job, model.text)));
  // One process that watches: asking again and again would take the cores that
  // are measured.
  SYNCLINE_RETURN_IF_ERROR(cluster->Synctl({"watch", id}).status());
  SYNCLINE_ASSIGN_OR_RETURN(const JobStatus status, cluster->Get(id));
  if (status.state() != SUCCEEDED ||
      status.progress().workers_size() != static_cast<int>(kWorkers)) {
    return absl::InternalError(
        absl::StrCat("the job did not end well: ", status.ShortDebugString()));
  }
  Result result;
  double samples = 0;
  double longest = 0;
  for (const WorkerProgress& worker : status.progress().workers()) {
    samples += static_cast<double>(worker.samples());
    longest =
        std::max(longest, worker.compute_seconds() + worker.push_seconds() +
                              worker.wait_seconds() + worker.pull_seconds() +
                              worker.data_seconds());
  }
  result.samples_per_second = samples / longest;
  const WorkerProgress& chief = status.progress().workers(0);
  const double steps = static_cast<double>(chief.clock());
  result.parts = {{"compute", 1000 * chief.compute_seconds() / steps},
                  {"push", 1000 * chief.push_seconds() / steps},
                  {"wait", 1000 * chief.wait_seconds() / steps},
                  {"pull", 1000 * chief.pull_seconds() / steps}};
  SYNCLINE_ASSIGN_OR_RETURN(const std::string file, cluster->FetchModel(id));
  SYNCLINE_ASSIGN_OR_RETURN(result.trained, ReadFile(file, kModelBytesMax));
  return result;
}

// Samples per second of the same training by PyTorch's DistributedDataParallel
// on Gloo. Errors: Unimplemented: PyTorch is not installed.
absl::StatusOr<double> TrainByDdp(const Model& model, int steps) {
  const TempDir folder;
  std::vector<std::vector<std::string>> argvs;
  for (uint32_t r = 0; r < kWorkers; ++r) {
    std::vector<std::string> argv = {
        "/usr/bin/python3",
        absl::StrCat(SYNCLINE_SOURCE_DIR, "/tests/peers/ddp_mlp.py"),
        folder.path(),
        absl::StrCat(r),
        absl::StrCat(kWorkers),
        absl::StrCat(model.batch),
        absl::StrCat(steps)};
    for (const int width : model.widths) argv.push_back(absl::StrCat(width));
    argvs.push_back(std::move(argv));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const std::string printed,
                            RunPeerPrograms(argvs, folder.path()));
  double samples_per_second = 0;
  if (!absl::SimpleAtod(absl::StripAsciiWhitespace(printed),
                        &samples_per_second)) {
    return absl::InternalError(absl::StrCat("ddp_mlp.py prints ", printed));
  }
  return samples_per_second;
}

}  // namespace

absl::Status RunStrategyBench(const BenchOptions& options, Report* report) {
  TestCluster cluster({.ps = kPs, .workers = kWorkers});
  SYNCLINE_RETURN_IF_ERROR(cluster.Start());
  report->Set("workers", kWorkers);
  report->Set("ps", kPs);
  report->Set("batch", Models()[0].batch);
  const int steps = options.smoke ? 8 : 200;
  const Way by_ps = {PARAMETER_SERVER};
  const Way by_all_reduce = {ALL_REDUCE};
  const Way ways[] = {by_ps, by_all_reduce, {SHARDED, 1}, {SHARDED, 3}};
  for (const Model& model : Models()) {
    if (model.name.find(options.only) == std::string::npos) continue;
    const auto name_of = [&](const Way& way) {
      return absl::StrCat(model.name, " ", way.name());
    };
    const std::string ddp =
        absl::StrCat(model.name, " DistributedDataParallel");
    bool has_ddp = true;
    for (int i = 0; i < options.repetitions; ++i) {
      std::string trained;
      for (const Way& way : ways) {
        SYNCLINE_ASSIGN_OR_RETURN(
            const Result result,
            Train(&cluster, Job(model, way, steps), model));
        if (trained.empty()) trained = result.trained;
        if (result.trained != trained) {
          return absl::InternalError(absl::StrCat(
              name_of(way), " ends with other bits than ", name_of(by_ps)));
        }
        report->Add(name_of(way), "samples/s", result.samples_per_second);
        for (const auto& [part, milliseconds] : result.parts) {
          report->Add(absl::StrCat(name_of(way), ": ", part), "ms/step",
                      milliseconds);
        }
      }
      if (!has_ddp) continue;
      const auto by_ddp = TrainByDdp(model, steps);
      has_ddp = !absl::IsUnimplemented(by_ddp.status());
      if (!has_ddp) {
        report->Set("not installed", "PyTorch (python3-torch)");
        continue;
      }
      SYNCLINE_RETURN_IF_ERROR(by_ddp.status());
      report->Add(ddp, "samples/s", *by_ddp);
    }
    if (has_ddp) {
      report->AddRatio(absl::StrCat(name_of(by_all_reduce), " / DDP"),
                       name_of(by_all_reduce), ddp, 2.0);
    }
    for (const Way& way : ways) {
      if (way.strategy == PARAMETER_SERVER) continue;
      report->AddRatio(absl::StrCat(name_of(way), " / ps"), name_of(way),
                       name_of(by_ps), 1.0);
    }
  }
  return absl::OkStatus();
}

}  // namespace syncline
