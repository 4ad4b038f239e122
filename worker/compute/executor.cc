#include "worker/compute/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/system/memory_claim.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/data_error.h"
#include "kernels/threads.h"
#include "worker/compute/backward_graph.h"
#include "worker/compute/step_plan.h"

namespace syncline::worker {
namespace {

// Of a length: full, short last and evaluation batches, with room for an odd
// size or two.
constexpr size_t kPlansPerLength = 8;

int64_t AlignedCount(int64_t count) {
  constexpr int64_t kFloats = kCacheLineBytes / sizeof(float);
  return (count + kFloats - 1) / kFloats * kFloats;
}

absl::Span<char> BytesOf(AlignedFloats* floats) {
  return {reinterpret_cast<char*>(floats->data()),
          floats->size() * sizeof(float)};
}

// One block of memory, cut into aligned arrays of the given sizes.
class ParameterSlab {
 public:
  // `shared`: in memory that other processes can be let read, if there is any.
  void Allocate(absl::Span<const int64_t> counts, bool shared) {
    const int64_t bytes = BytesFor(counts);
    if (shared) {
      if (auto region = SharedRegion::Create(bytes); region.ok()) {
        region_ = *std::move(region);
      }
    }
    if (region_ == nullptr) memory_ = AlignedFloats(bytes / sizeof(float));
    float* at = region_ != nullptr ? reinterpret_cast<float*>(region_->data())
                                   : memory_.data();
    for (int64_t count : counts) {
      addresses_.push_back(at);
      at += AlignedCount(count);
    }
  }
  // Shared memory is resident from the start. Errors: ResourceExhausted, and
  // those of `go_on`.
  absl::Status Touch(absl::string_view what, const GoOnCheck& go_on) {
    return TouchMemory(what, BytesOf(&memory_), go_on);
  }
  // Of an array's beginning, by its place in the list.
  static std::vector<int64_t> OffsetsFor(absl::Span<const int64_t> counts) {
    std::vector<int64_t> offsets;
    int64_t at = 0;
    for (int64_t count : counts) {
      offsets.push_back(at);
      at += AlignedCount(count) * static_cast<int64_t>(sizeof(float));
    }
    return offsets;
  }
  static int64_t BytesFor(absl::Span<const int64_t> counts) {
    int64_t bytes = 0;
    for (int64_t count : counts) bytes += AlignedCount(count) * sizeof(float);
    return bytes;
  }
  absl::Span<float* const> addresses() const { return addresses_; }
  const std::shared_ptr<SharedRegion>& region() const { return region_; }

 private:
  AlignedFloats memory_;
  std::shared_ptr<SharedRegion> region_;  // null: in memory_
  std::vector<float*> addresses_;
};

// Of as many runs, dearest first.
std::vector<PlannedOperator> ByOperator(
    absl::Span<const StepPlan::NodeCost> costs, double runs) {
  std::map<std::string, PlannedOperator> by_type;
  for (const StepPlan::NodeCost& cost : costs) {
    PlannedOperator& planned = by_type[cost.node->op_type];
    planned.op_type = cost.node->op_type;
    ++planned.nodes;
    planned.forward_flops += runs * cost.flops.forward;
    planned.backward_flops += runs * cost.flops.backward;
    if (cost.runs_again) planned.recomputed_flops += runs * cost.flops.forward;
  }
  std::vector<PlannedOperator> operators;
  for (auto& [type, planned] : by_type) operators.push_back(planned);
  std::stable_sort(operators.begin(), operators.end(),
                   [](const PlannedOperator& a, const PlannedOperator& b) {
                     return a.flops() > b.flops();
                   });
  return operators;
}

class GraphExecutor : public Executor {
 public:
  GraphExecutor(std::shared_ptr<const Model> model,
                const TrainingGraph& training, const Options& options)
      : model_(std::move(model)),
        training_(training),
        options_(options),
        device_(options.device != nullptr ? *options.device : ThisMachine()) {
    for (const auto& p : training_.parameters) {
      parameters_.push_back(p.value);
      counts_.push_back(ElementCount(p.dims));
    }
    std::vector<ValueId> trained = parameters_;
    for (const auto& table : training_.tables) trained.push_back(table.value);
    with_gradients_ =
        BuildBackwardGraph(model_->graph(), training_.loss_output, trained);
    forward_only_ =
        BuildBackwardGraph(model_->graph(), training_.loss_output, {});
    PlanGradients();
  }

  // Plans the largest batches, and says what they take.
  absl::StatusOr<ExecutorPlan> PlanBatches();
  // Takes the plan's memory. Errors: ResourceExhausted: there is not as much.
  absl::Status Allocate(const ExecutorPlan& plan);

  absl::Span<float> parameter(int i) override {
    return {values_.addresses()[i], Count(i)};
  }
  absl::Span<const float> gradient(int i) const override {
    if (!options_.trains) return {};
    return {gradients_.addresses()[i], Count(i)};
  }
  std::shared_ptr<SharedRegion> gradient_region() const override {
    return gradients_.region();
  }
  absl::StatusOr<StepResult> TrainStep(
      const Batch& batch, int64_t clock, uint32_t rank,
      absl::FunctionRef<void(int)> on_gradient) override;
  absl::StatusOr<EvalResult> Evaluate(const Batch& batch) override;
  absl::Status WhyNotFinite(const EvalResult& result) override;
  void UseTables(absl::Span<RowBatch* const> tables) override {
    tables_.assign(tables.begin(), tables.end());
  }
  void UseRecorder(StepRecorder* recorder) override { recorder_ = recorder; }
  void UseStatistics(StatisticsExchange* statistics) override {
    statistics_ = statistics;
  }
  absl::Status MakeResident(const GoOnCheck& go_on) override;
  int64_t arena_bytes() const override { return training_arena_bytes_; }
  int64_t memory_bytes() const override {
    return ParameterSlab::BytesFor(counts_) +
           ParameterSlab::BytesFor(GradientCounts()) +
           static_cast<int64_t>(arena_.size() * sizeof(float));
  }

 private:
  struct CachedPlan {
    bool training;
    int64_t batch_size;
    int64_t length;
    std::unique_ptr<StepPlan> plan;
  };

  // Samples of a training batch that are computed at once.
  int64_t LargestPart() const {
    const int64_t parts = options_.micro_batches;
    return (options_.batch_size + parts - 1) / parts;
  }
  // The least number of samples that a part of a full batch has. A smaller part
  // is of a short batch.
  int64_t SmallestPart() const {
    return std::max<int64_t>(1, options_.batch_size / options_.micro_batches);
  }
  // Not lent: what parts of a batch add up to, what BatchNormalization says of
  // its input, and the zeros of parameters that do not lead to the loss.
  void PlanGradients() {
    if (!options_.trains) return;
    const std::vector<int64_t> offsets = ParameterSlab::OffsetsFor(counts_);
    std::vector<bool> written(model_->graph().values.size(), false);
    for (size_t p = 0; p < with_gradients_.nodes.size(); ++p) {
      const Node& node = model_->graph().nodes[with_gradients_.nodes[p]];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (with_gradients_.wants_gradient[p][i])
          written[node.inputs[i]] = true;
      }
    }
    for (size_t i = 0; i < counts_.size(); ++i) {
      gradient_memory_.push_back(
          {.offset = offsets[i],
           .bytes = AlignedCount(counts_[i]) * int64_t{sizeof(float)},
           .is_lent = options_.micro_batches == 1 && written[parameters_[i]] &&
                      !training_.parameters[i].momentum.has_value()});
    }
  }
  absl::Span<const int64_t> GradientCounts() const {
    if (!options_.trains) return {};
    return counts_;
  }
  size_t Count(int i) const { return static_cast<size_t>(counts_[i]); }
  absl::Status CheckInputs() const;
  void FillParameters();
  // Parameters and what is in the arena.
  std::vector<PlannedTensor> LargestFirst(const StepPlan& plan) const;
  absl::StatusOr<StepPlan*> PlanFor(bool training, int64_t batch_size,
                                    int64_t length);
  void EnsureArena(int64_t bytes);
  absl::Status CheckSize(const Batch& batch, int64_t most) const;
  // Shorter and longer ones; 0 alone: there is one, the model's.
  absl::Span<const int64_t> Lengths() const;
  absl::Status PlanLength(int64_t length, ExecutorPlan* plan);
  // Describes the whole job by the plan of the longest batches.
  void Describe(const StepPlan& step, ExecutorPlan* plan) const;
  // Samples [first, first + size) of a batch.
  struct Part {
    int64_t first = 0;
    int64_t size = 0;
  };
  absl::StatusOr<StepPlan*> Ready(bool training, const Batch& batch, Part part);
  double RunLoss(const StepPlan& plan, const Batch& batch, Part part);
  // Returns the part's summed loss.
  absl::StatusOr<double> TrainPart(const Batch& batch, Part part, int64_t clock,
                                   uint64_t seed,
                                   absl::FunctionRef<void(int)> ready);
  void ForgetErrors() {
    static constexpr DataError kNone;
    stream_->CopyToDevice(errors_.data(), &kNone, sizeof(kNone));
  }
  // What the kernels of the forward pass have reported. Errors:
  // InvalidArgument, naming the node.
  absl::Status CheckData(const StepPlan& plan);
  // `failure` of a node, with the value that is not finite if there is one.
  absl::Status Located(StepPlan& plan, const absl::Status& failure,
                       uint64_t seed);
  // The loss is not finite: says why.
  absl::Status NotFinite(StepPlan& plan, double loss, uint64_t seed);

  const std::shared_ptr<const Model> model_;
  const TrainingGraph training_;
  const Options options_;
  Device& device_;
  std::vector<ValueId> parameters_;
  std::vector<int64_t> counts_;                  // by parameter
  std::vector<GradientMemory> gradient_memory_;  // likewise
  BackwardGraph with_gradients_;
  BackwardGraph forward_only_;
  ParameterSlab values_;
  ParameterSlab gradients_;
  std::vector<RowBatch*> tables_;  // as UseTables said
  std::vector<CachedPlan> plans_;  // latest use first
  AlignedFloats arena_;            // shared by the plans: one runs at a time
  int64_t training_arena_bytes_ = 0;
  StepRecorder* recorder_ = nullptr;
  StatisticsExchange* statistics_ = nullptr;
  std::unique_ptr<Stream> stream_;  // from Allocate on
  DeviceMemory errors_;             // likewise: a DataError
};

absl::Span<const int64_t> GraphExecutor::Lengths() const {
  static constexpr int64_t kOfTheModel[] = {0};
  if (options_.lengths.empty()) return kOfTheModel;
  return options_.lengths;
}

absl::StatusOr<ExecutorPlan> GraphExecutor::PlanBatches() {
  SYNCLINE_RETURN_IF_ERROR(CheckInputs());
  SetComputeThreads(options_.threads);
  ExecutorPlan plan;
  plan.parameters = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  plan.parameter_bytes = ParameterSlab::BytesFor(counts_);
  plan.gradient_bytes = ParameterSlab::BytesFor(GradientCounts());
  for (const int64_t length : Lengths()) {
    absl::Status planned = PlanLength(length, &plan);
    if (!planned.ok() && length > 0) {
      planned = Annotate(planned, absl::StrCat("length ", length));
    }
    SYNCLINE_RETURN_IF_ERROR(planned);
  }
  return plan;
}

absl::Status GraphExecutor::PlanLength(int64_t length, ExecutorPlan* plan) {
  const StepPlan* described = nullptr;
  if (options_.eval_batch_size > 0) {
    SYNCLINE_ASSIGN_OR_RETURN(
        described,
        PlanFor(/*training=*/false, options_.eval_batch_size, length));
    plan->evaluation_arena_bytes =
        std::max(plan->evaluation_arena_bytes, described->arena_bytes());
  }
  // Parts of both sizes, so that what one of them cannot do is refused before
  // anything trains. The largest is the last, whose plan stays the latest.
  for (const int64_t part : {SmallestPart(), LargestPart()}) {
    if (!options_.trains) break;
    SYNCLINE_ASSIGN_OR_RETURN(described,
                              PlanFor(/*training=*/true, part, length));
    plan->training_arena_bytes =
        std::max(plan->training_arena_bytes, described->arena_bytes());
  }
  if (described == nullptr) return absl::OkStatus();  // nothing runs
  Describe(*described, plan);
  if (length == 0) return absl::OkStatus();
  double flops = 0;
  for (const PlannedOperator& op : plan->operators) flops += op.flops();
  plan->lengths.push_back({length, described->arena_bytes(), flops});
  return absl::OkStatus();
}

void GraphExecutor::Describe(const StepPlan& step, ExecutorPlan* plan) const {
  plan->tensors = LargestFirst(step);
  plan->operators =
      ByOperator(step.Costs(), static_cast<double>(options_.batch_size) /
                                   static_cast<double>(LargestPart()));
}

std::vector<PlannedTensor> GraphExecutor::LargestFirst(
    const StepPlan& plan) const {
  std::vector<PlannedTensor> tensors = plan.ArenaTensors();
  for (const TrainingGraph::Parameter& p : training_.parameters) {
    tensors.push_back({p.name, "parameter", p.dims,
                       ElementCount(p.dims) * int64_t{sizeof(float)}});
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const PlannedTensor& a, const PlannedTensor& b) {
                     return a.bytes > b.bytes;
                   });
  return tensors;
}

absl::Status GraphExecutor::Allocate(const ExecutorPlan& plan) {
  // The model holds the values of its file until they are released; what is
  // touched only after that (MakeResident) finds their memory free.
  uint64_t released = 0;
  for (const TrainingGraph::Parameter& p : training_.parameters) {
    released += model_->graph().initializers[p.initializer].tensor.bytes.size();
  }
  const auto total = static_cast<uint64_t>(plan.memory_bytes());
  const auto at_once = static_cast<uint64_t>(
      plan.parameter_bytes +
      (options_.shared_gradients ? plan.gradient_bytes : 0));
  SYNCLINE_RETURN_IF_ERROR(
      CheckMemoryFor("parameters, gradients and activations",
                     std::max(at_once, total - std::min(total, released))));
  SYNCLINE_ASSIGN_OR_RETURN(stream_, device_.MakeStream());
  SYNCLINE_ASSIGN_OR_RETURN(errors_, device_.Allocate(sizeof(DataError)));
  ForgetErrors();
  values_.Allocate(counts_, /*shared=*/false);
  gradients_.Allocate(GradientCounts(), options_.shared_gradients);
  FillParameters();
  EnsureArena(plan.arena_bytes());
  training_arena_bytes_ = plan.training_arena_bytes;
  return absl::OkStatus();
}

absl::Status GraphExecutor::MakeResident(const GoOnCheck& go_on) {
  SYNCLINE_RETURN_IF_ERROR(values_.Touch("parameters", go_on));
  SYNCLINE_RETURN_IF_ERROR(gradients_.Touch("gradients", go_on));
  return TouchMemory("activations", BytesOf(&arena_), go_on);
}

void GraphExecutor::EnsureArena(int64_t bytes) {
  const size_t floats = (bytes + sizeof(float) - 1) / sizeof(float);
  if (arena_.size() < floats) arena_ = AlignedFloats(floats);
}

// Everything that the loss depends on is there, in a type that is fed.
absl::Status GraphExecutor::CheckInputs() const {
  const Graph& graph = model_->graph();
  std::vector<bool> given(graph.values.size(), false);
  for (ValueId v : training_.feeds) {
    if (v == kNoValue) continue;
    given[v] = true;
    const DType dtype = graph.values[v].dtype;
    if (dtype != DType::kFloat32 && dtype != DType::kInt64) {
      return absl::InvalidArgumentError(absl::StrCat(
          "graph input \"", graph.values[v].name, "\" is ", DTypeName(dtype),
          "; only float32 and int64 inputs are fed"));
    }
  }
  for (ValueId v : parameters_) given[v] = true;
  for (const Initializer& i : graph.initializers) {
    if (i.origin != Initializer::Origin::kDeclared) given[i.value] = true;
  }
  for (const auto& table : training_.tables) given[table.value] = true;
  for (int n : with_gradients_.nodes) {
    for (ValueId v : graph.nodes[n].inputs) {
      if (v == kNoValue || graph.values[v].producer >= 0 || given[v]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", graph.values[v].name, "\" has no value: nothing feeds it"));
    }
  }
  return absl::OkStatus();
}

// Parameters without values in the file stay zero until they are written.
void GraphExecutor::FillParameters() {
  const Graph& graph = model_->graph();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& bytes =
        graph.initializers[training_.parameters[i].initializer].tensor.bytes;
    std::memcpy(values_.addresses()[i], bytes.data(), bytes.size());
  }
}

absl::StatusOr<StepPlan*> GraphExecutor::PlanFor(bool training,
                                                 int64_t batch_size,
                                                 int64_t length) {
  const auto found =
      std::find_if(plans_.begin(), plans_.end(), [&](const CachedPlan& p) {
        return p.training == training && p.batch_size == batch_size &&
               p.length == length;
      });
  if (found != plans_.end()) {
    std::rotate(plans_.begin(), found, found + 1);
    return plans_.front().plan.get();
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<StepPlan> plan,
      StepPlan::Create(
          {.device = &device_,
           .model = model_.get(),
           .flow = training ? &with_gradients_ : &forward_only_,
           .feeds = training_.feeds,
           .parameters = parameters_,
           .gradients = gradient_memory_,
           .tables = training_.tables,
           .loss_output = training_.loss_output,
           .loss = options_.loss.kind(),
           .ignores_labels = options_.ignores_labels,
           .batch_size = batch_size,
           .length = length,
           .is_short = training && batch_size < SmallestPart(),
           .table_samples =
               training ? options_.batch_size : options_.eval_batch_size,
           .training = training,
           .recompute_segments = training ? options_.recompute_segments : 1,
           .folds_statistics = training && options_.folds_statistics}));
  if (plans_.size() == kPlansPerLength * Lengths().size()) plans_.pop_back();
  plans_.insert(plans_.begin(),
                {training, batch_size, length, std::move(plan)});
  return plans_.front().plan.get();
}

absl::Status GraphExecutor::CheckSize(const Batch& batch, int64_t most) const {
  if (!absl::c_linear_search(Lengths(), batch.length)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of length ", batch.length, "; this executor has plans for ",
        absl::StrJoin(Lengths(), ", ")));
  }
  if (batch.size > 0 && batch.size <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a batch of ", batch.size, " samples; this executor takes 1 to ", most));
}

// The plan for this part of a batch, bound to its memory.
absl::StatusOr<StepPlan*> GraphExecutor::Ready(bool training,
                                               const Batch& batch, Part part) {
  SYNCLINE_ASSIGN_OR_RETURN(StepPlan * plan,
                            PlanFor(training, part.size, batch.length));
  // All of them before anything is computed.
  if (part.first == 0) {
    SYNCLINE_RETURN_IF_ERROR(
        plan->loss().CheckLabels(batch.size, batch.labels));
  }
  EnsureArena(plan->arena_bytes());
  SYNCLINE_RETURN_IF_ERROR(
      plan->Bind({.arena = reinterpret_cast<char*>(arena_.data()),
                  .batch = &batch,
                  .first_sample = part.first,
                  .parameters = values_.addresses(),
                  .gradients = gradients_.addresses(),
                  .tables = tables_,
                  .recorder = training ? recorder_ : nullptr,
                  .statistics = training ? statistics_ : nullptr,
                  .stream = stream_.get(),
                  .errors = errors_.as<DataError>()}));
  return plan;
}

absl::Status GraphExecutor::CheckData(const StepPlan& plan) {
  DataError error;
  stream_->CopyToHost(&error, errors_.data(), sizeof(error));
  SYNCLINE_RETURN_IF_ERROR(stream_->Synchronize());
  if (error.node == DataError::kNone) return absl::OkStatus();
  ForgetErrors();
  return plan.Explain(error);
}

absl::Status GraphExecutor::NotFinite(StepPlan& plan, double loss,
                                      uint64_t seed) {
  const std::string where = plan.FindNonFinite(seed);
  return absl::FailedPreconditionError(absl::StrCat(
      "the loss is ", loss, ": ",
      where.empty() ? "every node's output is finite, but the loss overflows"
                    : where));
}

absl::Status GraphExecutor::Located(StepPlan& plan, const absl::Status& failure,
                                    uint64_t seed) {
  const std::string where = plan.FindNonFinite(seed);
  if (where.empty()) return failure;
  return absl::FailedPreconditionError(
      absl::StrCat(failure.message(), ": ", where));
}

absl::StatusOr<Executor::StepResult> GraphExecutor::TrainStep(
    const Batch& batch, int64_t clock, uint32_t rank,
    absl::FunctionRef<void(int)> on_gradient) {
  SYNCLINE_CHECK(options_.trains);
  SYNCLINE_RETURN_IF_ERROR(CheckSize(batch, options_.batch_size));
  SetComputeThreads(options_.threads);
  const uint64_t seed =
      SeedFor(SeedFor(options_.seed, static_cast<uint64_t>(clock)), rank);
  const int64_t parts = std::min(options_.micro_batches, batch.size);
  StepResult result;
  for (int64_t k = 0; k < parts; ++k) {
    const int64_t first = batch.size * k / parts;
    const Part part{first, batch.size * (k + 1) / parts - first};
    const bool last = k + 1 == parts;
    const auto ready = [&](int i) {
      if (last) on_gradient(i);
    };
    SYNCLINE_ASSIGN_OR_RETURN(
        const double loss,
        TrainPart(batch, part, clock, k == 0 ? seed : SeedFor(seed, k), ready));
    result.loss_sum += loss;
  }
  return result;
}

double GraphExecutor::RunLoss(const StepPlan& plan, const Batch& batch,
                              Part part) {
  const StepRecorder::Interval interval(recorder_, StepProfile::LOSS);
  return plan.loss().Run(plan.scores(),
                         batch.labels.data() + part.first * batch.label_width,
                         plan.loss_gradient());
}

absl::StatusOr<double> GraphExecutor::TrainPart(
    const Batch& batch, Part part, int64_t clock, uint64_t seed,
    absl::FunctionRef<void(int)> ready) {
  SYNCLINE_ASSIGN_OR_RETURN(StepPlan * plan,
                            Ready(/*training=*/true, batch, part));
  const auto at_clock = [clock](const absl::Status& failure) {
    return Annotate(failure, absl::StrCat("step at clock ", clock));
  };
  const absl::Status forward = plan->Forward(seed);
  SYNCLINE_RETURN_IF_ERROR(CheckData(*plan));
  if (absl::IsFailedPrecondition(forward)) {
    return at_clock(Located(*plan, forward, seed));
  }
  SYNCLINE_RETURN_IF_ERROR(forward);
  const double loss = RunLoss(*plan, batch, part);
  if (!std::isfinite(loss)) return at_clock(NotFinite(*plan, loss, seed));
  const bool accumulate = part.first > 0;
  SYNCLINE_RETURN_IF_ERROR(plan->Backward(seed, accumulate, ready));
  return loss;
}

absl::StatusOr<Executor::EvalResult> GraphExecutor::Evaluate(
    const Batch& batch) {
  SYNCLINE_RETURN_IF_ERROR(CheckSize(batch, options_.eval_batch_size));
  SetComputeThreads(options_.threads);
  SYNCLINE_ASSIGN_OR_RETURN(StepPlan * plan,
                            Ready(/*training=*/false, batch, {0, batch.size}));
  const absl::Status forward = plan->Forward(/*seed=*/0);
  SYNCLINE_RETURN_IF_ERROR(CheckData(*plan));
  SYNCLINE_RETURN_IF_ERROR(forward);
  const Loss& loss = plan->loss();
  const double sum =
      loss.Run(plan->scores(), batch.labels.data(), /*gradient=*/nullptr);
  EvalResult result;
  result.loss_sum = sum;
  result.positions = loss.positions();
  result.width = loss.width();
  result.scores = {
      plan->scores(),
      static_cast<size_t>(loss.rows() * loss.positions() * loss.width())};
  return result;
}

absl::Status GraphExecutor::WhyNotFinite(const EvalResult& result) {
  SYNCLINE_CHECK(!plans_.empty());
  return Annotate(NotFinite(*plans_.front().plan, result.loss_sum, /*seed=*/0),
                  "evaluation");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(
    std::shared_ptr<const Model> model, const TrainingGraph& training,
    const Options& options) {
  auto executor =
      std::make_unique<GraphExecutor>(std::move(model), training, options);
  SYNCLINE_ASSIGN_OR_RETURN(const ExecutorPlan plan, executor->PlanBatches());
  SYNCLINE_RETURN_IF_ERROR(executor->Allocate(plan));
  return executor;
}

absl::StatusOr<ExecutorPlan> Executor::Plan(std::shared_ptr<const Model> model,
                                            const TrainingGraph& training,
                                            const Options& options) {
  return GraphExecutor(std::move(model), training, options).PlanBatches();
}

}  // namespace syncline::worker
