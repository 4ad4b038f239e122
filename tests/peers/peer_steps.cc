// Trains a model on given batches with the worker's executor and the optimizer
// kernels of the ps, and says what comes out: for scripts that compare with
// another framework (torch_peer.py, onnxruntime_peer.py).
//
//   peer_steps --model M --batches B --steps N --batch-size N ... [--weights W]
//
// step_runner.h says what B has. Prints "loss X" for each step and writes the
// parameters to W, float32, one after another; "parameter NAME COUNT" says
// which. --outputs writes what the model gives for each batch before any step;
// --memory prints "bytes X", the most that was resident during the steps beyond
// what was before the model was read.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <map>
#include <string>

#include "common/base/status_macros.h"
#include "common/job/job_spec_validator.h"
#include "common/system/malloc_policy.h"
#include "kernels/threads.h"
#include "tests/peers/step_runner.h"
#include "tests/testing/process_memory.h"

namespace syncline {
namespace {

struct Arguments {
  StepRunner::Options run;
  std::string weights, outputs;
  bool memory = false;
};

void Write(const std::vector<float>& values, std::ofstream* out) {
  out->write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
}

absl::Status WriteOutputs(const Arguments& arguments, StepRunner* runner) {
  std::ofstream out(arguments.outputs, std::ios::binary);
  for (int64_t step = 0; step < arguments.run.steps; ++step) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::vector<float> outputs,
                              runner->Outputs(step));
    Write(outputs, &out);
  }
  return out.good() ? absl::OkStatus()
                    : absl::UnavailableError("cannot write --outputs");
}

absl::Status WriteWeights(const Arguments& arguments, StepRunner* runner) {
  std::ofstream out(arguments.weights, std::ios::binary);
  for (const StepRunner::Weight& weight : runner->Weights()) {
    std::cout << "parameter " << weight.name << " " << weight.values.size()
              << std::endl;
    Write(weight.values, &out);
  }
  return out.good() ? absl::OkStatus()
                    : absl::UnavailableError("cannot write --weights");
}

// A step of a model of one number: what any model loads, as torch_peer.py does
// before it measures PyTorch.
absl::Status TrainOneNumber() {
  constexpr char kModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
      g (float[N,1] x, float[1] w) => (float[N,1] y)
      { z = Mul(x, w)  y = Relu(z) })";
  JobSpec spec;
  spec.mutable_model()->add_initialize()->set_pattern("w");
  spec.mutable_data()->add_feeds()->set_input("x");
  spec.mutable_loss()->set_kind(LossSpec::MEAN_SQUARED_ERROR);
  spec = WithDefaults(spec);
  SYNCLINE_ASSIGN_OR_RETURN(const auto model,
                            ParseJobModel(spec, kModel, "one number"));
  std::vector<std::string> problems;
  const TrainingGraph training = ResolveTrainingGraph(spec, *model, &problems);
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto executor,
      worker::Executor::Create(model, training,
                               {.loss = spec.loss(), .batch_size = 1}));
  const worker::Batch batch = {.size = 1,
                               .feeds = {{1}},
                               .int_feeds = {{}},
                               .labels = {1},
                               .label_width = 1};
  return executor->TrainStep(batch, 0, [](int) {}).status();
}

absl::Status Run(const Arguments& arguments) {
  if (arguments.memory) SYNCLINE_RETURN_IF_ERROR(TrainOneNumber());
  ReturnFreedMemory();
  const uint64_t before = ProcessMemoryBytes(getpid(), "VmRSS");
  SYNCLINE_ASSIGN_OR_RETURN(const auto runner,
                            StepRunner::Create(arguments.run));
  if (!arguments.outputs.empty()) return WriteOutputs(arguments, runner.get());
  // The peak starts again: reading the model is no part of a step.
  std::ofstream("/proc/self/clear_refs") << "5";
  for (int64_t step = 0; step < arguments.run.steps; ++step) {
    SYNCLINE_ASSIGN_OR_RETURN(const double loss, runner->Step(step));
    std::cout << "loss " << loss << std::endl;
  }
  if (arguments.memory) {
    std::cout << "bytes " << ProcessMemoryBytes(getpid(), "VmHWM") - before
              << std::endl;
  }
  return arguments.weights.empty() ? absl::OkStatus()
                                   : WriteWeights(arguments, runner.get());
}

int Main(int argc, char** argv) {
  RestartWithPassiveWaiting(argv);
  KeepMessageMemory(/*arenas=*/4);  // as a worker does
  std::cout.precision(9);
  CLI::App app("Trains a model on given batches.");
  Arguments arguments;
  StepRunner::Options& run = arguments.run;
  run.optimizer.epsilon = 1e-5f;
  const std::map<std::string, OptimizerKind> optimizers = {
      {"sgd", OptimizerKind::kSgd},
      {"momentum", OptimizerKind::kMomentum},
      {"adam", OptimizerKind::kAdam},
      {"adagrad", OptimizerKind::kAdagrad}};
  const std::map<std::string, LossSpec::Kind> losses = {
      {"softmax", LossSpec::SOFTMAX_CROSS_ENTROPY},
      {"sigmoid", LossSpec::SIGMOID_CROSS_ENTROPY},
      {"mse", LossSpec::MEAN_SQUARED_ERROR}};
  app.add_option("--model", run.model)->required();
  app.add_option("--batches", run.batches)->required();
  app.add_option("--steps", run.steps)->required();
  app.add_option("--batch-size", run.batch_size)->required();
  app.add_option("--optimizer", run.optimizer.kind)
      ->transform(CLI::CheckedTransformer(optimizers));
  app.add_option("--loss", run.loss)
      ->transform(CLI::CheckedTransformer(losses));
  app.add_option("--rate", run.rate);
  app.add_option("--epsilon", run.optimizer.epsilon);
  app.add_option("--table", run.tables, "an initializer that is a table");
  app.add_option("--train", run.train, "a pattern of model.train");
  app.add_option("--freeze", run.freeze, "a pattern of model.freeze");
  app.add_flag("--accept-merged", run.accept_merged);
  app.add_option("--threads", run.threads);
  app.add_option("--weights", arguments.weights);
  app.add_option("--outputs", arguments.outputs);
  app.add_flag("--memory", arguments.memory);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(arguments);
  if (status.ok()) return 0;
  std::cerr << "peer_steps: " << status << std::endl;
  return 1;
}

}  // namespace
}  // namespace syncline

int main(int argc, char** argv) { return syncline::Main(argc, argv); }
