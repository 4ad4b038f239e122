// Trains a model on given batches with the worker's executor and the optimizer
// kernels of the ps, and says what comes out: for scripts that compare with
// another framework (torch_peer.py).
//
//   peer_steps MODEL BATCHES STEPS BATCH_SIZE sgd|adam RATE WEIGHTS [TIMED]
//
// BATCHES: float32, [STEPS, BATCH_SIZE, inputs], then labels [STEPS,
// BATCH_SIZE]. Prints "loss X" for each step and writes the parameters to
// WEIGHTS, float32, one after another; "parameter NAME COUNT" says which. Then
// runs TIMED more steps and prints "milliseconds X", the median of one.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/aligned_buffer.h"
#include "common/base/status_macros.h"
#include "common/model/training_graph.h"
#include "common/rpc/job_spec_validator.h"
#include "kernels/optimizer.h"
#include "kernels/threads.h"
#include "worker/executor.h"

namespace syncline {
namespace {

struct Arguments {
  std::string model, batches, weights;
  int64_t steps = 0, batch_size = 0;
  OptimizerParams optimizer;
  float rate = 0;
  int timed = 0;
};

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Peer {
 public:
  absl::Status Prepare(const Arguments& arguments);
  absl::Status Run();

 private:
  absl::Status Step(int64_t clock, int64_t data, double* loss);

  Arguments arguments_;
  TrainingGraph training_;
  std::unique_ptr<Executor> executor_;
  std::vector<AlignedFloats> first_, second_;  // slots, by parameter
  std::vector<Batch> batches_;
};

absl::Status Peer::Prepare(const Arguments& arguments) {
  arguments_ = arguments;
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto model, Model::Parse(ReadFile(arguments.model), "the model"));
  JobSpec spec;
  const Graph& graph = model->graph();
  spec.mutable_data()->add_feeds()->set_input(
      graph.values[graph.inputs[0]].name);
  spec.mutable_loss()->set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
  spec.mutable_training()->set_batch_size(arguments.batch_size);
  std::vector<std::string> problems;
  training_ = ResolveTrainingGraph(WithDefaults(spec), *model, &problems);
  if (!problems.empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      executor_, Executor::Create(model, training_,
                                  {.loss = spec.loss(),
                                   .batch_size = arguments.batch_size}));
  for (const auto& parameter : training_.parameters) {
    first_.emplace_back(ElementCount(parameter.dims));
    second_.emplace_back(ElementCount(parameter.dims));
  }
  const std::string bytes = ReadFile(arguments.batches);
  const auto* at = reinterpret_cast<const float*>(bytes.data());
  const int64_t labels = arguments.steps * arguments.batch_size;
  const int64_t total = static_cast<int64_t>(bytes.size() / sizeof(float));
  if (labels <= 0 || total <= labels || total % labels != 0) {
    return absl::InvalidArgumentError("BATCHES has another size");
  }
  const int64_t inputs = (total - labels) / arguments.steps;
  for (int64_t step = 0; step < arguments.steps; ++step) {
    Batch& batch = batches_.emplace_back();
    batch.size = arguments.batch_size;
    batch.feeds.emplace_back(at + step * inputs, at + (step + 1) * inputs);
    const float* const label =
        at + arguments.steps * inputs + step * arguments.batch_size;
    batch.labels.assign(label, label + arguments.batch_size);
  }
  return absl::OkStatus();
}

absl::Status Peer::Step(int64_t clock, int64_t data, double* loss) {
  const Batch& batch = batches_[data];
  SYNCLINE_ASSIGN_OR_RETURN(const auto result,
                            executor_->TrainStep(batch, clock, 0, [](int) {}));
  *loss = result.loss_sum / static_cast<double>(batch.size);
  const OptimizerStep step = {
      .learning_rate = arguments_.rate,
      .gradient_scale = 1.0f / static_cast<float>(batch.size),
      .t = clock + 1};
  for (size_t i = 0; i < first_.size(); ++i) {
    const int index = static_cast<int>(i);
    const absl::Span<float> values = executor_->parameter(index);
    float* const slots[] = {first_[i].data(), second_[i].data()};
    ApplyOptimizer(arguments_.optimizer, step,
                   executor_->gradient(index).data(), values.data(), slots,
                   values.size());
  }
  return absl::OkStatus();
}

absl::Status Peer::Run() {
  double loss = 0;
  for (int64_t step = 0; step < arguments_.steps; ++step) {
    SYNCLINE_RETURN_IF_ERROR(Step(step, step, &loss));
    std::printf("loss %.9g\n", loss);
  }
  std::ofstream out(arguments_.weights, std::ios::binary);
  for (size_t i = 0; i < first_.size(); ++i) {
    const absl::Span<float> values = executor_->parameter(static_cast<int>(i));
    std::printf("parameter %s %zu\n", training_.parameters[i].name.c_str(),
                values.size());
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
  if (!out.good()) return absl::UnavailableError("cannot write WEIGHTS");
  std::vector<double> times;
  for (int i = 0; i < arguments_.timed; ++i) {
    const absl::Time begin = absl::Now();
    SYNCLINE_RETURN_IF_ERROR(
        Step(arguments_.steps + i, i % arguments_.steps, &loss));
    times.push_back(absl::ToDoubleMilliseconds(absl::Now() - begin));
  }
  if (times.empty()) return absl::OkStatus();
  std::nth_element(times.begin(), times.begin() + times.size() / 2,
                   times.end());
  std::printf("milliseconds %.4f\n", times[times.size() / 2]);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  RestartWithPassiveWaiting(argv);
  if (argc < 8) {
    std::fprintf(stderr,
                 "usage: peer_steps MODEL BATCHES STEPS BATCH_SIZE sgd|adam "
                 "RATE WEIGHTS [TIMED]\n");
    return 2;
  }
  Arguments arguments;
  arguments.model = argv[1];
  arguments.batches = argv[2];
  arguments.steps = std::strtoll(argv[3], nullptr, 10);
  arguments.batch_size = std::strtoll(argv[4], nullptr, 10);
  arguments.optimizer.kind = std::string(argv[5]) == "adam"
                                 ? OptimizerKind::kAdam
                                 : OptimizerKind::kSgd;
  arguments.optimizer.epsilon = 1e-6f;  // torch_peer.py says why
  arguments.rate = std::strtof(argv[6], nullptr);
  arguments.weights = argv[7];
  if (argc > 8)
    arguments.timed = static_cast<int>(std::strtol(argv[8], nullptr, 10));
  Peer peer;
  absl::Status status = peer.Prepare(arguments);
  if (status.ok()) status = peer.Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "peer_steps: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace syncline

int main(int argc, char** argv) { return syncline::Main(argc, argv); }
