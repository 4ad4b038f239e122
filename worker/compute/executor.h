#ifndef SYNCLINE_WORKER_COMPUTE_EXECUTOR_H_
#define SYNCLINE_WORKER_COMPUTE_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/dtype.h"
#include "common/model/job_plan.h"
#include "common/model/model.h"
#include "common/model/training_graph.h"
#include "common/system/memory_claim.h"
#include "common/system/shared_region.h"
#include "kernels/device/device.h"
#include "worker/compute/parameter_gatherer.h"
#include "worker/compute/step_recorder.h"
#include "worker/data/batch.h"
#include "worker/embedding/row_batch.h"
#include "worker/ops/statistics_exchange.h"

namespace syncline::worker {

// Hears of gradients in memory of the device, for an exchange that reads them
// there.
class GradientListener {
 public:
  virtual ~GradientListener() = default;

  // The kernels that write gradient `i` are in the device's stream; `done` is
  // behind them, so a stream of the listener's own can wait for it. From then
  // on until the next step `values` is final. Comes before on_gradient(i), once
  // per parameter, from the thread of the step. The loss need not be known yet:
  // unless TrainStep returns OK, nothing that was read may be used.
  virtual void OnGradientQueued(int i, const float* values, Event& done) = 0;
};

// Runs a model forward and backward on one device. Owns the parameters and
// their gradients; plans memory once per batch size and length, all plans in
// the memory of the largest. Where the device has graphs, steps that are the
// same but for what they read from its memory are kept as such (step_graphs.h):
// the same bits, by fewer calls. Single thread, except that other threads may
// write parameter(i) between on_gradient(i) of one step and the start of the
// next (the caller orders these).
class Executor {
 public:
  struct Options {
    // That computes; outlives the executor. Null: this machine's processors.
    Device* device = nullptr;
    LossSpec loss;
    bool ignores_labels = false;  // labels may be kIgnoredLabel
    // False: only Evaluate is called; there are no gradients, nor plans of
    // training batches.
    bool trains = true;
    int64_t batch_size = 0;     // largest training batch
    int64_t micro_batches = 1;  // parts that a training batch is run in
    // Larger than batch_size: training batches of up to so many samples may
    // come. One that has more than batch_size is run in more parts of the same
    // size.
    int64_t batch_max = 0;
    // kBfloat16, kFloat16: activations and products in 16 bits, with parameters
    // and their gradients in float32 (dtype_overlay.h).
    DType precision = DType::kFloat32;
    // Products and convolutions of float32 may round their factors to TF32,
    // where the device does (Device::AllowTf32).
    bool takes_tf32 = false;
    // UseLossScale will be called.
    bool scales_loss = false;
    // Of the forward pass, which are computed again in the backward pass: the
    // same gradients, bit for bit, in less memory.
    int recompute_segments = 1;
    int64_t eval_batch_size = 0;  // largest evaluation batch
    // Lengths of batches, ascending; empty: all have the model's.
    std::vector<int64_t> lengths = {};
    int threads = 1;    // for matrix products
    uint64_t seed = 0;  // Dropout
    // Statistics of training batches are those of all workers' batches
    // (UseStatistics), part by part.
    bool folds_statistics = false;
    // Gradients are wanted in memory that another process of this host can map.
    bool shared_gradients = false;
    // gradient(i) is valid within on_gradient(i) alone, wherever parts of a
    // batch do not add up to it: what comes later in backward takes its memory.
    // On this machine's processors alone.
    bool transient_gradients = false;
    // Not 0: training steps do not hold the parameters' values. They are
    // gathered before each use (UseGatherer), in units of about as many bytes
    // (gather_units.h), and their memory is taken for the next ones after it.
    // parameter(i) is then memory of its own, for evaluations and for whoever
    // reads or writes values between steps; it can be given back
    // (ReleaseParameters). On this machine's processors alone, in float32, of
    // batches whose forward pass runs once.
    int64_t gather_unit_bytes = 0;
    // Operators that the device computes together are one step
    // (operator_fusion.h); false is for comparisons.
    bool fuses = true;
  };

  // `model` is shared. Errors: InvalidArgument: an operator, attribute or dtype
  // that cannot be trained, naming the node; ResourceExhausted: more memory
  // than there is.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(
      std::shared_ptr<const Model> model, const TrainingGraph& training,
      const Options& options);
  virtual ~Executor() = default;

  // Memory that Create with the same arguments takes, and operations that a
  // step of options.batch_size samples computes. Takes no memory for either.
  // Errors: Create's.
  static absl::StatusOr<ExecutorPlan> Plan(std::shared_ptr<const Model> model,
                                           const TrainingGraph& training,
                                           const Options& options);

  // [i] follows TrainingGraph::parameters. Row-major float32, 64-byte aligned,
  // at a fixed address. Holds the file's values until written.
  virtual absl::Span<float> parameter(int i) = 0;
  // Gradient of the batch's *summed* loss; valid from on_gradient(i) until the
  // next TrainStep or Evaluate, which use its memory. The caller may change it
  // before it is pushed. Fixed address, but where it is transient. Empty where
  // the options say that nothing is trained.
  virtual absl::Span<float> gradient(int i) const = 0;
  // All of them lie in it; null: in memory of this process alone.
  virtual std::shared_ptr<SharedRegion> gradient_region() const = 0;

  struct StepResult {
    double loss_sum = 0;  // over the batch's samples
    // With a loss scale: what of the gradients is not finite, "element 3 of
    // 'w'"; empty: all of them are finite.
    std::string overflow = {};
  };
  // Forward and backward on batch.size samples (> 0, <= options.batch_size, or
  // batch_max), in options.micro_batches parts, or more, of nearly equal size:
  // the same gradients but
  // for the order of sums. `clock` and the place of a sample in the step
  // (Batch.first_in_step) seed what is random.
  // Calls on_gradient(i) once per parameter, from this thread, as soon as its
  // gradient is final and its value is not read again in this step, or, from a
  // graph, with others that are final soon after; order is the backward order
  // of the last part. REQUIRES: options.trains.
  // Errors: InvalidArgument: a label outside the classes (row and value named),
  // an index of Gather or ScatterND out of range (node named);
  // FailedPrecondition: the loss is not finite (the first node whose output is
  // not finite is named), or statistics of all workers are not; what
  // UseStatistics' Fold says. Gradients are then unspecified.
  virtual absl::StatusOr<StepResult> TrainStep(
      const Batch& batch, int64_t clock,
      absl::FunctionRef<void(int)> on_gradient) = 0;

  struct EvalResult {
    double loss_sum = 0;  // NaN or infinite where the scores make it so
    // Output of the loss's node for the batch, [size, positions, width], as
    // Loss has them; borrowed until the next call.
    absl::Span<const float> scores;
    int64_t positions = 1;
    int64_t width = 0;
  };
  // Forward in inference mode (Dropout is the identity). Same errors, but that
  // a loss that is not finite is a result.
  virtual absl::StatusOr<EvalResult> Evaluate(const Batch& batch) = 0;
  // Why that loss is not finite: FailedPrecondition, which names the first node
  // whose output is not. Runs the forward pass again, over the scores.
  // REQUIRES: the latest call was the Evaluate that gave it.
  virtual absl::Status WhyNotFinite(const EvalResult& result) = 0;

  // The rows that the steps and evaluations which follow read and whose
  // gradients a step adds up, by TrainingGraph::tables index: those of their
  // batch. They outlive their use; memory of theirs may change between steps.
  virtual void UseTables(absl::Span<RowBatch* const> tables) = 0;

  // In the steps that follow the gradient that enters backward is multiplied by
  // `factor`, and those that leave it, of parameters and rows, are divided by
  // it in float32 before on_gradient. What BatchNormalization says of its input
  // is no gradient, and is left alone. REQUIRES: options.scales_loss; a power
  // of two.
  virtual void UseLossScale(float factor) = 0;

  // With gather_unit_bytes, the units of a step: the parameters that it gathers
  // together, in the order in which a ParameterGatherer is asked for them. One
  // parameter may be in several. A step in parts comes to all units of each
  // part again; they are those of the largest number of parts, and a step of
  // fewer ends before the last. Else empty.
  virtual absl::Span<const std::vector<int>> gather_units() const = 0;
  // Brings the values of the steps that follow. REQUIRES: gather_unit_bytes; it
  // is set before the first step. Outlives its use; null: nobody.
  virtual void UseGatherer(ParameterGatherer* gatherer) = 0;
  // With gather_unit_bytes: the memory of all parameter(i) goes back to the
  // system until it is written again, and holds no values; else nothing is
  // done. Between steps.
  virtual void ReleaseParameters() = 0;

  // Where steps compute on a device that is not the host: the values of all
  // parameters, and their gradients, each one array in memory of the device
  // with parameter after parameter, each from a multiple of kCacheLineBytes on;
  // and where steps are queued. Else null. With options.trains. Between steps
  // nothing else is under way.
  struct OnDevice {
    Stream* stream = nullptr;
    float* values = nullptr;
    float* gradients = nullptr;
  };
  virtual OnDevice on_device() = 0;
  // While it is true TrainStep leaves values and gradients on the device, where
  // the caller updates the values: what is written to parameter(i) is not seen
  // by it, and gradient(i) stays as it is.
  virtual void KeepOnDevice(bool keeps) = 0;

  // While it is true TrainStep computes with the values that are in
  // on_device(), which the caller has put into its stream, and leaves the
  // host's where they are. Gradients come to the host. An evaluation computes
  // with the host's values, and leaves these on the device.
  virtual void TakeValuesOnDevice(bool takes) = 0;

  // Outlives its use; null: nobody.
  virtual void UseGradientListener(GradientListener* listener) = 0;

  // Records what steps do from now on, in TrainStep; null: no longer.
  virtual void UseRecorder(StepRecorder* recorder) = 0;

  // With folds_statistics: what the steps that follow fold them with, in the
  // order of the graph and then against it, part after part; null: nothing,
  // each batch has its own.
  virtual void UseStatistics(StatisticsExchange* statistics) = 0;

  // Takes the memory that steps need from the system, so that none of them can
  // find it gone: until then only parameters with values of the file are
  // resident. Errors: ResourceExhausted: less is there than when this was
  // created; those of `go_on`, which is asked every 64 MiB.
  virtual absl::Status MakeResident(const GoOnCheck& go_on) = 0;

  // Bytes of the activation arena for the longest training batch, or a part of
  // it, that do not find room in the memory of gradients before these are
  // written.
  virtual int64_t arena_bytes() const = 0;
  // Bytes that it holds where it computes: parameters, gradients and arena.
  // With gather_unit_bytes: without those of parameter(i).
  virtual int64_t memory_bytes() const = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_EXECUTOR_H_
