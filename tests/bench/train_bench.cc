// Measures the parameter server's cost to a worker: the same job, trained once
// by a worker daemon through one ps daemon, and once in this process with
// nothing but the worker's own parts and the optimizer kernel of the ps.
//
// Both read the same digits through the same prefetcher, run the same executor
// with the same number of threads, and end with the same loss, which is checked
// first. Compared are samples per second of the training loop: preparing the
// job, the one evaluation at its end and the upload of results are outside.
// Worker and ps share this machine's cores, as does whatever else runs.

#include <unistd.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/aligned_buffer.h"
#include "common/base/status_macros.h"
#include "common/daemon/process_metrics.h"
#include "common/job/job_spec_validator.h"
#include "common/system/file.h"
#include "kernels/optimizer/optimizer.h"
#include "tests/bench/benchmarks.h"
#include "tests/bench/page_reader.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/test_cluster.h"
#include "worker/compute/initializers.h"
#include "worker/data/prefetcher.h"
#include "worker/evaluation/evaluator.h"
#include "worker/job/prepared_job.h"

namespace syncline {
namespace {

constexpr int kInputs = 784;
constexpr int kHidden = 256;
constexpr int kClasses = 10;
constexpr int kBatch = 1024;
constexpr float kLearningRate = 0.002f;

JobSpec Job(int steps, int threads) {
  JobSpec job = DigitsJob();
  job.set_name("bench-train");
  DataSpec& data = *job.mutable_data();
  data.mutable_train()->mutable_digits()->set_count(steps * kBatch);
  data.mutable_test()->mutable_digits()->set_count(1000);
  data.mutable_test()->mutable_digits()->set_seed(2);
  job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  job.mutable_learning_rate()->set_base(kLearningRate);
  job.mutable_training()->set_batch_size(kBatch);
  job.mutable_training()->set_threads(threads);
  return job;
}

// Where the time of one run's training loop went.
struct Result {
  int64_t steps = 0;
  double samples_per_second = 0;
  double test_loss = 0;
  std::vector<std::pair<std::string, double>> parts;  // seconds, by name
};

// The worker's parts in this process.
class LoneWorker {
 public:
  static absl::StatusOr<std::unique_ptr<LoneWorker>> Create(const JobSpec& job);

  // From the initial values to the last step.
  absl::StatusOr<Result> Train();

 private:
  void Reset();
  void Update(int tensor, int64_t clock, int64_t samples);

  std::unique_ptr<worker::PreparedJob> job_;
  OptimizerParams optimizer_;
  // By parameter: Adam's moments.
  std::vector<AlignedFloats> first_moments_;
  std::vector<AlignedFloats> second_moments_;
};

absl::StatusOr<std::unique_ptr<LoneWorker>> LoneWorker::Create(
    const JobSpec& job) {
  const std::string model = MlpModel(kInputs, kHidden, kClasses);
  const JobSpec full = WithDefaults(job);
  SYNCLINE_ASSIGN_OR_RETURN(const auto parsed,
                            ParseJobModel(full, model, "the model"));
  std::vector<std::string> problems;
  AssignmentBuilder builder(full);
  AddModel(ResolveTrainingGraph(full, *parsed, &problems), /*ps=*/1, &builder);
  const JobAssignment assignment = builder.Workers(1).Ps(1).Build();
  auto worker = std::make_unique<LoneWorker>();
  worker->job_ = worker::PrepareJob(assignment, 0, model,
                                    worker::PrepareOptions(), &problems);
  if (!problems.empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  }
  const OptimizerSpec& spec = assignment.spec().optimizer();
  worker->optimizer_ = {.kind = OptimizerKind::kAdam,
                        .beta1 = spec.beta1(),
                        .beta2 = spec.beta2(),
                        .epsilon = spec.epsilon()};
  return worker;
}

void LoneWorker::Reset() {
  const auto& parameters = job_->training.parameters;
  first_moments_.clear();
  second_moments_.clear();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const absl::Span<float> values =
        job_->executor->parameter(static_cast<int>(i));
    worker::InitializeParameter(
        job_->spec().model().initialize(parameters[i].rule),
        worker::FansOf(job_->model->graph(), parameters[i].value).fans,
        job_->spec().training().seed(), parameters[i].name, values);
    first_moments_.emplace_back(values.size());
    second_moments_.emplace_back(values.size());
  }
}

void LoneWorker::Update(int tensor, int64_t clock, int64_t samples) {
  const absl::Span<float> values = job_->executor->parameter(tensor);
  const OptimizerStep step = {
      .learning_rate = kLearningRate,
      .gradient_scale = 1.0f / static_cast<float>(samples),
      .t = clock + 1};
  float* const slots[] = {first_moments_[tensor].data(),
                          second_moments_[tensor].data()};
  ApplyOptimizer(optimizer_, step, job_->executor->gradient(tensor).data(),
                 values.data(), slots, values.size());
}

absl::StatusOr<Result> LoneWorker::Train() {
  Reset();
  worker::Prefetcher::Options options;
  options.plan = {.sample_count = job_->train->size(),
                  .batch_size = kBatch,
                  .seed = job_->spec().training().seed()};
  options.clocks = worker::BatchPlan(options.plan).steps_per_epoch();
  worker::Prefetcher prefetcher(job_->train.get(), options);

  const auto next = [&] {
    return prefetcher.Next(absl::Now() + absl::Minutes(1));
  };
  // The daemon's first batch is read while it initialises the ps.
  SYNCLINE_ASSIGN_OR_RETURN(const worker::Batch* batch, next());
  const absl::Duration waited_before = prefetcher.waited();

  absl::Duration optimizing;
  const absl::Time begin = absl::Now();
  for (int64_t clock = 0; clock < options.clocks; ++clock) {
    if (clock > 0) {
      SYNCLINE_ASSIGN_OR_RETURN(batch, next());
    }
    const auto update = [&](int tensor) {
      const absl::Time updating = absl::Now();
      Update(tensor, clock, batch->size);
      optimizing += absl::Now() - updating;
    };
    SYNCLINE_RETURN_IF_ERROR(
        job_->executor->TrainStep(*batch, clock, update).status());
  }
  const absl::Duration took = absl::Now() - begin;

  SYNCLINE_ASSIGN_OR_RETURN(
      const Evaluation evaluation,
      worker::Evaluator(job_->spec(), job_->test.get(), job_->executor.get())
          .Run([](int64_t, int64_t) { return absl::OkStatus(); },
               [](const worker::Batch&) { return absl::OkStatus(); }));
  Result result;
  result.steps = options.clocks;
  result.samples_per_second = job_->train->size() / absl::ToDoubleSeconds(took);
  result.test_loss = evaluation.loss();
  const absl::Duration waited = prefetcher.waited() - waited_before;
  result.parts = {
      {"compute", absl::ToDoubleSeconds(took - optimizing - waited)},
      {"optimizer", absl::ToDoubleSeconds(optimizing)},
      {"data", absl::ToDoubleSeconds(waited)}};
  return result;
}

// The same through daemons. Waits by one watching process, because asking again
// and again would take the cores that are measured.
absl::StatusOr<Result> TrainOnCluster(TestCluster* cluster,
                                      const std::string& job_file) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string job_id,
                            cluster->Submit(job_file));
  SYNCLINE_RETURN_IF_ERROR(cluster->Synctl({"watch", job_id}).status());
  SYNCLINE_ASSIGN_OR_RETURN(const JobStatus job, cluster->Get(job_id));
  if (job.state() != SUCCEEDED || job.progress().workers_size() != 1 ||
      job.evaluations_size() == 0) {
    return absl::InternalError(
        absl::StrCat("the job did not end well: ", job.ShortDebugString()));
  }
  const WorkerProgress& worker = job.progress().workers(0);
  Result result;
  result.steps = worker.clock();
  result.parts = {{"compute", worker.compute_seconds()},
                  {"push", worker.push_seconds()},
                  {"wait", worker.wait_seconds()},
                  {"pull", worker.pull_seconds()},
                  {"data", worker.data_seconds()}};
  double seconds = 0;
  for (const auto& [part, spent] : result.parts) seconds += spent;
  result.samples_per_second = worker.samples() / seconds;
  result.test_loss = job.evaluations().rbegin()->loss();
  return result;
}

absl::Status CheckSameLoss(const Result& alone, const Result& cluster,
                           double initial_loss) {
  const bool same =
      std::abs(alone.test_loss - cluster.test_loss) <= 1e-4 * alone.test_loss;
  if (alone.steps == cluster.steps && same && alone.test_loss < initial_loss) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      "the runs differ or do not learn: test loss alone ", alone.test_loss,
      " after ", alone.steps, " steps, through the ps ", cluster.test_loss,
      " after ", cluster.steps));
}

void AddResult(const std::string& name, const Result& result, Report* report) {
  report->Add(name, "samples/s", result.samples_per_second);
  for (const auto& [part, seconds] : result.parts) {
    report->Add(absl::StrCat(name, ": ", part), "ms/step",
                1000 * seconds / result.steps);
  }
}

// The HTTP addresses of all daemons of a cluster, the scheduler's last.
absl::StatusOr<std::vector<std::string>> PagesOf(TestCluster* cluster) {
  std::vector<std::string> addresses;
  SYNCLINE_ASSIGN_OR_RETURN(const ClusterStatus status, cluster->Members());
  for (const auto& entry : status.members()) {
    addresses.push_back(entry.member().http_address());
  }
  for (const absl::string_view line :
       absl::StrSplit(cluster->LogOf("scheduler"), '\n')) {
    constexpr absl::string_view kKey = " http=";
    const size_t at = line.find(kKey);
    if (!absl::StrContains(line, "advertised") || at == line.npos) continue;
    const absl::string_view rest = line.substr(at + kKey.size());
    addresses.emplace_back(rest.substr(0, rest.find_first_of(" \"")));
  }
  if (addresses.size() != 3) {
    return absl::InternalError(absl::StrCat("not the pages of three daemons: ",
                                            absl::StrJoin(addresses, ", ")));
  }
  return addresses;
}

// Processor seconds that the daemons of a cluster have had so far.
absl::StatusOr<double> ProcessorSeconds(TestCluster* cluster) {
  double seconds = 0;
  for (const char* name : {"scheduler", "ps-0", "chief-0"}) {
    const std::string path =
        absl::StrCat("/proc/", cluster->daemon(name).pid(), "/stat");
    SYNCLINE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 1 << 16));
    const auto stat =
        ParseProcessStat(text, static_cast<double>(sysconf(_SC_CLK_TCK)),
                         static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
    if (!stat.has_value()) {
      return absl::InternalError(absl::StrCat(path, " cannot be read"));
    }
    seconds += stat->cpu_seconds;
  }
  return seconds;
}

// One of the two sides that CompareObserved compares.
struct Side {
  std::string name;
  TestCluster* cluster;
  std::string job_file;
};

absl::Status MeasureSide(const Side& side, Report* report) {
  SYNCLINE_ASSIGN_OR_RETURN(const double before,
                            ProcessorSeconds(side.cluster));
  SYNCLINE_ASSIGN_OR_RETURN(const Result result,
                            TrainOnCluster(side.cluster, side.job_file));
  SYNCLINE_ASSIGN_OR_RETURN(const double after, ProcessorSeconds(side.cluster));
  report->Add(side.name, "samples/s", result.samples_per_second);
  report->Add(absl::StrCat(side.name, ": processor"), "s/job", after - before);
  return absl::OkStatus();
}

// The same job in two clusters: in one nobody looks and only errors are logged;
// in the other the metrics of each daemon and the status page are read each
// second, and logs are at their default level. The scheduler's audit log is
// written by both. Jobs are short and come in pairs, one on each side, in
// changing order: what else the machine does changes little within a pair, and
// the ratio of a pair says more than two medians.
absl::Status CompareObserved(const BenchOptions& options, const JobSpec& job,
                             Report* report) {
  TestCluster::Options members;
  members.ps = 1;
  members.workers = 1;
  TestCluster observed(members);
  members.flags = {"--http=off", "--log-level=error"};
  TestCluster quiet(members);
  SYNCLINE_RETURN_IF_ERROR(observed.Start());
  SYNCLINE_RETURN_IF_ERROR(quiet.Start());
  const std::string model = MlpModel(kInputs, kHidden, kClasses);
  const Side sides[] = {
      {"observed", &observed, WriteJob(observed.dir(), job, model)},
      {"quiet", &quiet, WriteJob(quiet.dir(), job, model)}};
  SYNCLINE_ASSIGN_OR_RETURN(const auto addresses, PagesOf(&observed));
  std::vector<PageReader::Page> pages;
  for (const std::string& address : addresses) {
    pages.push_back({address, "/metrics"});
  }
  pages.push_back({addresses.back(), "/status.json"});
  PageReader reader(pages);
  // The first job of a process makes its memory.
  for (const Side& side : sides) {
    SYNCLINE_RETURN_IF_ERROR(
        TrainOnCluster(side.cluster, side.job_file).status());
  }
  for (int i = 0; i < options.repetitions; ++i) {
    for (int j = 0; j < 2; ++j) {
      const Side& side = sides[(i + j) % 2];
      reader.SetPaused(side.cluster != &observed);
      SYNCLINE_RETURN_IF_ERROR(MeasureSide(side, report));
      reader.SetPaused(true);
    }
  }
  if (reader.failures() > 0 || (reader.bytes() == 0 && !options.smoke)) {
    return absl::InternalError("a page did not answer");
  }
  report->Set("threads", options.threads);
  report->Set("page_bytes", reader.bytes());
  report->AddRatio("observed / quiet", "observed", "quiet", 0.98);
  report->ShowInterval("observed / quiet");
  const std::string processor = "observed / quiet: processor";
  report->AddRatio(processor, "observed: processor", "quiet: processor",
                   AtMost(1.02));
  report->ShowInterval(processor);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunTrainBench(const BenchOptions& options, Report* report) {
  const JobSpec job = Job(options.smoke ? 8 : 96, options.threads);
  if (options.observed) return CompareObserved(options, job, report);
  SYNCLINE_ASSIGN_OR_RETURN(const auto lone_worker, LoneWorker::Create(job));
  TestCluster::Options members;
  members.ps = 1;
  members.workers = 1;
  TestCluster cluster(members);
  SYNCLINE_RETURN_IF_ERROR(cluster.Start());
  const std::string job_file =
      WriteJob(cluster.dir(), job, MlpModel(kInputs, kHidden, kClasses));

  report->Set("model", absl::StrCat(kInputs, "-", kHidden, "-", kClasses));
  report->Set("batch", kBatch);
  report->Set("threads", options.threads);
  const double initial_loss = std::log(kClasses);
  for (int i = 0; i < options.repetitions; ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(const Result alone, lone_worker->Train());
    SYNCLINE_ASSIGN_OR_RETURN(const Result through_ps,
                              TrainOnCluster(&cluster, job_file));
    SYNCLINE_RETURN_IF_ERROR(CheckSameLoss(alone, through_ps, initial_loss));
    report->Set("steps", alone.steps);
    report->Set("test_loss", through_ps.test_loss);
    report->Set("same_bits", alone.test_loss == through_ps.test_loss);
    AddResult("alone", alone, report);
    AddResult("through ps", through_ps, report);
  }
  report->AddRatio("through ps / alone", "through ps", "alone", 0.8);
  return absl::OkStatus();
}

}  // namespace syncline
