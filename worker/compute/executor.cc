#include "worker/compute/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/system/log.h"
#include "common/system/memory_claim.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/data_error.h"
#include "kernels/threads.h"
#include "worker/compute/backward_graph.h"
#include "worker/compute/gradient_scale.h"
#include "worker/compute/parameter_memory.h"
#include "worker/compute/pass_timer.h"
#include "worker/compute/plan_report.h"
#include "worker/compute/step_graphs.h"
#include "worker/compute/step_plan.h"
#include "worker/compute/step_record.h"

namespace syncline::worker {
namespace {

// Of a length: full, short last and evaluation batches, with room for an odd
// size or two.
constexpr size_t kPlansPerLength = 8;

// Gradients that leave a device together where a step is kept. By estimate a
// bus takes 20 us for them, and a cut of the graph 5.
constexpr int64_t kSegmentBytes = int64_t{1} << 20;

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
    if (options_.precision == DType::kFloat32) return;
    std::vector<ValueId> data = training_.feeds;
    for (const auto& table : training_.tables) data.push_back(table.value);
    for (const BackwardGraph* flow : {&with_gradients_, &forward_only_}) {
      overlays_.push_back(OverlayDTypes({.graph = &model_->graph(),
                                         .flow = flow,
                                         .data = data,
                                         .loss_output = training_.loss_output,
                                         .type = options_.precision}));
    }
  }

  // Plans the largest batches, and says what they take.
  absl::StatusOr<ExecutorPlan> PlanBatches();
  // Takes the plan's memory. Errors: ResourceExhausted: there is not as much.
  absl::Status Allocate(const ExecutorPlan& plan);

  absl::Span<float> parameter(int i) override {
    return values_.host(static_cast<size_t>(i));
  }
  absl::Span<float> gradient(int i) const override {
    if (!options_.trains) return {};
    const auto index = static_cast<size_t>(i);
    if (!gradient_memory_[index].is_transient) return gradients_.host(index);
    if (bound_ == nullptr) return {};
    return {bound_->gradient(i), static_cast<size_t>(counts_[index])};
  }
  std::shared_ptr<SharedRegion> gradient_region() const override {
    return gradients_.region();
  }
  absl::StatusOr<StepResult> TrainStep(
      const Batch& batch, int64_t clock,
      absl::FunctionRef<void(int)> on_gradient) override;
  absl::StatusOr<EvalResult> Evaluate(const Batch& batch) override;
  absl::Status WhyNotFinite(const EvalResult& result) override;
  void UseTables(absl::Span<RowBatch* const> tables) override {
    tables_.assign(tables.begin(), tables.end());
  }
  void UseLossScale(float factor) override {
    SYNCLINE_CHECK(scale_.has_value());
    scale_->Use(*stream_, factor);
  }
  OnDevice on_device() override {
    if (device_.is_host() || !options_.trains || counts_.empty()) return {};
    return {.stream = stream_.get(),
            .values = values_.on_device()[0],
            .gradients = gradients_.on_device()[0]};
  }
  void KeepOnDevice(bool keeps) override { keeps_on_device_ = keeps; }
  void TakeValuesOnDevice(bool takes) override {
    takes_values_on_device_ = takes;
  }
  void UseGradientListener(GradientListener* listener) override {
    listener_ = listener;
  }
  absl::Span<const std::vector<int>> gather_units() const override {
    return gather_units_;
  }
  void UseGatherer(ParameterGatherer* gatherer) override {
    SYNCLINE_CHECK(gathers());
    gatherer_ = gatherer;
  }
  void ReleaseParameters() override {
    if (gathers()) values_.Release();
  }
  void UseRecorder(StepRecorder* recorder) override { recorder_ = recorder; }
  void UseStatistics(StatisticsExchange* statistics) override {
    statistics_ = statistics;
  }
  absl::Status MakeResident(const GoOnCheck& go_on) override;
  int64_t arena_bytes() const override { return training_arena_bytes_; }
  int64_t memory_bytes() const override {
    return (gathers() ? static_cast<int64_t>(pool_.bytes())
                      : ParameterMemory::BytesFor(counts_)) +
           ParameterMemory::BytesFor(GradientCounts()) +
           static_cast<int64_t>(arena_.bytes());
  }

 private:
  struct CachedPlan {
    bool training;
    int64_t batch_size;
    int64_t length;
    std::unique_ptr<StepPlan> plan;
    std::unique_ptr<KeptSteps> kept;  // goes first
  };

  // Training steps do.
  bool gathers() const {
    return options_.trains && options_.gather_unit_bytes > 0;
  }
  // Errors: InvalidArgument: the options ask for what goes without it.
  absl::Status CheckGathers() const;
  // Keeps the units of the first training plan, which the exchange knows.
  // Errors: InvalidArgument: this one has others.
  absl::Status CheckUnits(const StepPlan& plan);
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
  int64_t LargestBatch() const {
    return std::max(options_.batch_size, options_.batch_max);
  }
  // Some batch may be run in several parts.
  bool HasParts() const {
    return options_.micro_batches > 1 || LargestBatch() > options_.batch_size;
  }
  // How many a training batch is run in.
  int64_t PartsOf(int64_t batch_size) const {
    if (batch_size <= options_.batch_size) {
      return std::min(options_.micro_batches, batch_size);
    }
    return (batch_size + LargestPart() - 1) / LargestPart();
  }
  int64_t PartsMax() const {
    return std::max(PartsOf(LargestBatch()), options_.micro_batches);
  }
  // Not lent: what parts of a batch add up to, what BatchNormalization says of
  // its input, and the zeros of parameters that do not lead to the loss.
  void PlanGradients() {
    if (!options_.trains) return;
    std::vector<bool> written(model_->graph().values.size(), false);
    for (size_t p = 0; p < with_gradients_.nodes.size(); ++p) {
      const Node& node = model_->graph().nodes[with_gradients_.nodes[p]];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (with_gradients_.wants_gradient[p][i])
          written[node.inputs[i]] = true;
      }
    }
    gradient_counts_ = counts_;
    for (size_t i = 0; i < counts_.size(); ++i) {
      const bool is_lent = !HasParts() && written[parameters_[i]] &&
                           !training_.parameters[i].momentum.has_value();
      const bool is_transient = is_lent && options_.transient_gradients;
      gradient_memory_.push_back({.bytes = ParameterMemory::BytesOf(counts_[i]),
                                  .is_lent = is_lent,
                                  .is_transient = is_transient});
      if (is_transient) gradient_counts_[i] = 0;
    }
    const std::vector<int64_t> offsets =
        ParameterMemory::OffsetsFor(gradient_counts_);
    for (size_t i = 0; i < counts_.size(); ++i) {
      gradient_memory_[i].offset = offsets[i];
    }
  }
  // Errors: ResourceExhausted: the host or the device has less.
  absl::Status CheckRoom(const ExecutorPlan& plan);
  absl::Span<const int64_t> GradientCounts() const {
    if (!options_.trains) return {};
    return gradient_counts_;
  }
  void FillParameters();
  // The plan is then the first of plans_.
  absl::StatusOr<StepPlan*> PlanFor(bool training, int64_t batch_size,
                                    int64_t length);
  absl::Status EnsureArena(int64_t bytes);
  // That of row_gradients_ which the plan needs. It stays as it is within a
  // step, whose parts' plans need the same.
  absl::Status EnsureRowGradients(const StepPlan& plan);
  absl::Status CheckSize(const Batch& batch, int64_t most) const;
  // Shorter and longer ones; 0 alone: there is one, the model's.
  absl::Span<const int64_t> Lengths() const;
  absl::Status PlanLength(int64_t length, ExecutorPlan* plan);
  // Describes the whole job by the plan of the longest batches.
  void Describe(const StepPlan& step, ExecutorPlan* plan) const;
  // Samples [first, first + size) of a batch.
  struct Part {
    int64_t index = 0;
    int64_t first = 0;
    int64_t size = 0;
    bool is_last = false;  // gradients are final after it
  };
  absl::StatusOr<StepPlan*> Ready(bool training, const Batch& batch, Part part,
                                  uint64_t seed);
  // Uploads wait for the work that reads what they write: parts of a batch
  // follow each other without a wait of the host. Behind AfterUploads the
  // stream waits for them.
  void BeforeUploads();
  void AfterUploads();
  // Waits until no work of a step is left, after an error.
  void Settle();
  // Puts the loss into the stream, and a copy of the record after it.
  void RunLoss(StepPlan& plan, bool for_backward);
  // Returns the part's summed loss.
  absl::StatusOr<double> TrainPart(const Batch& batch, Part part, int64_t clock,
                                   uint64_t seed,
                                   absl::FunctionRef<void(int)> ready);
  // A part of a step on its way.
  struct OpenPart {
    StepPlan* plan = nullptr;
    bool accumulates = false;  // to gradients of earlier parts
    bool is_last = false;
    absl::FunctionRef<void(int)> ready;
    bool has_loss = false;            // it is queued
    std::optional<double> loss = {};  // once it is known to be good
    // Of the loss, and of what Report has waited for.
    absl::Status status = absl::OkStatus();
  };
  // Puts all work of the part into the stream. Calls on_loss() behind the loss
  // and the copy of the record, and on_final(i) behind gradient `i`. Errors:
  // the plan's; those of the two.
  absl::Status Queue(const OpenPart& part,
                     absl::FunctionRef<absl::Status()> on_loss,
                     absl::FunctionRef<absl::Status(int)> on_final);
  absl::Status RunAtOnce(OpenPart* part);
  // The segments to run in place of it; empty: none are kept.
  absl::Span<const StepSegment> KeptFor(const OpenPart& part);
  absl::StatusOr<std::vector<StepSegment>> Keep(const OpenPart& part);
  absl::Status RunKept(OpenPart* part, absl::Span<const StepSegment> segments);
  // Somebody is to have the gradients of this part before it ends.
  bool SendsOff(const OpenPart& part) const {
    return part.is_last && (!keeps_on_device_ || listener_ != nullptr);
  }
  // Says, once of each, that a step was kept, or why not.
  void SayOnce(const absl::Status& why_not);
  // The loss that is in the record. Errors: InvalidArgument, naming the node:
  // data that cannot be computed with; the device's.
  absl::StatusOr<double> ReadLoss(const StepPlan& plan);
  // Fills in the loss. Errors: those of ReadLoss; FailedPrecondition: it is not
  // finite.
  absl::Status CheckLoss(OpenPart* part);
  // Gradients that are final behind what is queued: puts their copies to the
  // host into the stream of these, and lets the listener know.
  void SendOff(const OpenPart& part, absl::Span<const int> gradients);
  // After a step: what its last part's gradients were found to be. Empty: all
  // finite, or there is no scale.
  std::string OverflowText();
  // Reports gradients that have reached the host, in order; with `all` it waits
  // for the rest of them. None is reported before the loss is known to be good:
  // the computation goes on meanwhile, what leaves the worker waits.
  absl::Status Report(OpenPart* part, bool all);
  // `failure` of a node, with the value that is not finite if there is one.
  absl::Status Located(StepPlan& plan, const absl::Status& failure);
  // The loss is not finite: says why.
  absl::Status NotFinite(StepPlan& plan, double loss);

  const std::shared_ptr<const Model> model_;
  const TrainingGraph training_;
  const Options options_;
  Device& device_;
  std::vector<ValueId> parameters_;
  std::vector<int64_t> counts_;                  // by parameter
  std::vector<int64_t> gradient_counts_;         // likewise; 0: transient
  std::vector<GradientMemory> gradient_memory_;  // likewise
  BackwardGraph with_gradients_;
  BackwardGraph forward_only_;
  // Of the two, if the precision is not float32.
  std::vector<DTypeOverlay> overlays_;
  ParameterMemory values_;
  ParameterMemory gradients_;
  std::vector<std::vector<int>> gather_units_;  // of all parts of a step
  size_t units_of_part_ = 0;
  int64_t pool_bytes_ = 0;  // of these
  DeviceMemory pool_;
  ParameterGatherer* gatherer_ = nullptr;
  std::vector<RowBatch*> tables_;  // as UseTables said
  // Of a device that is not the host, by table: memory that the rows' gradients
  // of a batch add up in, and its address.
  std::vector<DeviceMemory> row_gradients_;
  std::vector<float*> row_gradients_at_;
  int64_t row_gradient_bytes_ = 0;  // of all plans' tables, the most
  std::vector<CachedPlan> plans_;   // latest use first
  DeviceMemory arena_;              // shared by the plans: one runs at a time
  StepPlan* bound_ = nullptr;       // the training plan that runs
  int64_t training_arena_bytes_ = 0;
  bool keeps_on_device_ = false;
  bool takes_values_on_device_ = false;
  GradientListener* listener_ = nullptr;
  StepRecorder* recorder_ = nullptr;
  PassTimer passes_;
  StatisticsExchange* statistics_ = nullptr;
  // From Allocate on:
  std::unique_ptr<Stream> stream_;
  // For copies to the device and to the host; null where it is the host.
  std::unique_ptr<Stream> upload_stream_;
  std::unique_ptr<Stream> download_stream_;
  Stream* uploads_ = nullptr;    // these, or stream_
  Stream* downloads_ = nullptr;  // likewise
  std::unique_ptr<Event> computed_;
  std::unique_ptr<Event> uploaded_;
  StepRecord record_;
  std::optional<GradientScale> scale_;  // options_.scales_loss
  // By the order in which gradients leave a part, alone or several together.
  std::vector<std::unique_ptr<Event>> final_;
  std::vector<std::unique_ptr<Event>> copied_;
  size_t sent_ = 0;  // of these
  // Gradients on their way to the host, in order, with their place in copied_.
  struct Copying {
    int parameter;
    size_t sent;
  };
  std::vector<Copying> copying_;
  size_t reported_ = 0;  // of these
  bool has_said_kept_ = false;
  bool has_said_refused_ = false;
  std::vector<float> scores_;  // Evaluate's, where the device is not the host
};

absl::Span<const int64_t> GraphExecutor::Lengths() const {
  static constexpr int64_t kOfTheModel[] = {0};
  if (options_.lengths.empty()) return kOfTheModel;
  return options_.lengths;
}

absl::StatusOr<ExecutorPlan> GraphExecutor::PlanBatches() {
  if (options_.trains && options_.transient_gradients && !device_.is_host()) {
    return absl::InvalidArgumentError(
        "gradients that are freed as soon as they are reduced (SHARDED from "
        "stage 2 on) are not built for GPUs; use sharding { stage: 1 } or "
        "resources { device: CPU }");
  }
  SYNCLINE_RETURN_IF_ERROR(CheckGathers());
  SYNCLINE_RETURN_IF_ERROR(
      CheckGiven(model_->graph(), training_, with_gradients_));
  if (options_.scales_loss) {
    SYNCLINE_RETURN_IF_ERROR(GradientScale::RequireKernel(device_));
  }
  SetComputeThreads(options_.threads);
  ExecutorPlan plan;
  if (!device_.is_host()) plan.device = "cuda";
  plan.parameters = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  plan.parameter_bytes = ParameterMemory::BytesFor(counts_);
  plan.gradient_bytes = ParameterMemory::BytesFor(GradientCounts());
  for (const int64_t length : Lengths()) {
    absl::Status planned = PlanLength(length, &plan);
    if (!planned.ok() && length > 0) {
      planned = Annotate(planned, absl::StrCat("length ", length));
    }
    SYNCLINE_RETURN_IF_ERROR(planned);
  }
  plan.staged_bytes += row_gradient_bytes_;
  if (gathers()) plan.parameter_bytes = pool_bytes_;
  return plan;
}

absl::Status GraphExecutor::CheckGathers() const {
  if (!gathers()) return absl::OkStatus();
  const auto refuse = [](absl::string_view what, absl::string_view use) {
    return absl::InvalidArgumentError(absl::StrCat(
        "values that are gathered for each use (SHARDED, stage 3) are not "
        "built for ",
        what, "; use sharding { stage: 2 } or ", use));
  };
  if (!device_.is_host()) return refuse("GPUs", "resources { device: CPU }");
  if (options_.precision != DType::kFloat32) {
    return refuse("16-bit precision", "precision: FLOAT32");
  }
  if (options_.recompute_segments > 1) {
    return refuse("activations that are computed again",
                  "training { recompute_segments: 1 }");
  }
  return absl::OkStatus();
}

absl::Status GraphExecutor::CheckUnits(const StepPlan& plan) {
  std::vector<std::vector<int>> units;
  for (const GatherUnit& unit : plan.gather_units().units) {
    units.push_back(unit.parameters);
  }
  if (gather_units_.empty()) {
    units_of_part_ = units.size();
    pool_bytes_ = plan.gather_units().pool_bytes;
    for (int64_t k = 0; k < PartsMax(); ++k)
      absl::c_copy(units, std::back_inserter(gather_units_));
    return absl::OkStatus();
  }
  if (absl::c_equal(units,
                    absl::MakeConstSpan(gather_units_).first(units_of_part_)))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      "batches of different sizes read parameters in different orders, which "
      "SHARDED, stage 3, does not do; use sharding { stage: 2 }");
}

absl::Status GraphExecutor::PlanLength(int64_t length, ExecutorPlan* plan) {
  const StepPlan* described = nullptr;
  if (options_.eval_batch_size > 0) {
    SYNCLINE_ASSIGN_OR_RETURN(
        described,
        PlanFor(/*training=*/false, options_.eval_batch_size, length));
    plan->evaluation_arena_bytes =
        std::max(plan->evaluation_arena_bytes, described->arena_bytes());
    plan->staged_bytes += described->staged_bytes();
  }
  // Parts of both sizes, so that what one of them cannot do is refused before
  // anything trains. The largest is the last, whose plan stays the latest.
  const StepPlan* planned = nullptr;
  for (const int64_t part : {SmallestPart(), LargestPart()}) {
    if (!options_.trains) break;
    SYNCLINE_ASSIGN_OR_RETURN(described,
                              PlanFor(/*training=*/true, part, length));
    plan->training_arena_bytes =
        std::max(plan->training_arena_bytes, described->arena_bytes());
    // Each plan has memory of its own for what it stages.
    if (described != planned) plan->staged_bytes += described->staged_bytes();
    planned = described;
    int64_t rows = 0;
    for (size_t t = 0; t < training_.tables.size(); ++t) {
      rows += static_cast<int64_t>(described->row_gradient_bytes(t));
    }
    row_gradient_bytes_ = std::max(row_gradient_bytes_, rows);
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
  plan->tensors = TensorsBySize(step, training_.parameters);
  plan->operators =
      OperatorsByCost(step.Costs(), static_cast<double>(options_.batch_size) /
                                        static_cast<double>(LargestPart()));
}

absl::Status GraphExecutor::CheckRoom(const ExecutorPlan& plan) {
  // The model holds the values of its file until they are released; what is
  // touched only after that (MakeResident) finds their memory free.
  uint64_t released = 0;
  for (const TrainingGraph::Parameter& p : training_.parameters) {
    released += model_->graph().initializers[p.initializer].tensor.bytes.size();
  }
  const auto total = static_cast<uint64_t>(plan.host_bytes());
  const auto at_once = static_cast<uint64_t>(
      ParameterMemory::BytesFor(counts_) +
      (options_.shared_gradients ? plan.gradient_bytes : 0));
  SYNCLINE_RETURN_IF_ERROR(
      CheckMemoryFor(device_.is_host() ? "parameters, gradients and activations"
                                       : "parameters and gradients on the host",
                     std::max(at_once, total - std::min(total, released))));
  if (device_.is_host()) return absl::OkStatus();
  return CheckMemoryFor(
      absl::StrCat("parameters, gradients and activations on ", device_.name()),
      static_cast<uint64_t>(plan.device_bytes()),
      [this] { return device_.FreeBytes(); });
}

absl::Status GraphExecutor::Allocate(const ExecutorPlan& plan) {
  SYNCLINE_RETURN_IF_ERROR(CheckRoom(plan));
  SYNCLINE_ASSIGN_OR_RETURN(stream_, device_.MakeStream());
  uploads_ = downloads_ = stream_.get();
  if (!device_.is_host()) {
    SYNCLINE_ASSIGN_OR_RETURN(upload_stream_, device_.MakeStream());
    SYNCLINE_ASSIGN_OR_RETURN(download_stream_, device_.MakeStream());
    uploads_ = upload_stream_.get();
    downloads_ = download_stream_.get();
  }
  for (std::unique_ptr<Event>* event : {&computed_, &uploaded_}) {
    SYNCLINE_ASSIGN_OR_RETURN(*event, device_.MakeEvent());
  }
  SYNCLINE_RETURN_IF_ERROR(record_.Allocate(device_, *stream_));
  SYNCLINE_RETURN_IF_ERROR(passes_.Allocate(device_));
  if (options_.scales_loss) {
    SYNCLINE_RETURN_IF_ERROR(scale_.emplace().Allocate(device_, *stream_));
  }
  for (size_t i = 0; i < counts_.size(); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(final_.emplace_back(), device_.MakeEvent());
    SYNCLINE_ASSIGN_OR_RETURN(copied_.emplace_back(), device_.MakeEvent());
  }
  copying_.reserve(counts_.size());
  SYNCLINE_RETURN_IF_ERROR(
      values_.Allocate(device_, *stream_, counts_, /*shared=*/false));
  SYNCLINE_RETURN_IF_ERROR(gradients_.Allocate(
      device_, *stream_, GradientCounts(), options_.shared_gradients));
  FillParameters();
  if (gathers()) {
    SYNCLINE_ASSIGN_OR_RETURN(pool_, device_.Allocate(pool_bytes_));
  }
  SYNCLINE_RETURN_IF_ERROR(EnsureArena(plan.arena_bytes()));
  training_arena_bytes_ = plan.training_arena_bytes;
  return absl::OkStatus();
}

absl::Status GraphExecutor::MakeResident(const GoOnCheck& go_on) {
  if (gathers()) {
    SYNCLINE_RETURN_IF_ERROR(TouchMemory(
        "parameters in use", {pool_.as<char>(), pool_.bytes()}, go_on));
  } else {
    SYNCLINE_RETURN_IF_ERROR(values_.MakeResident("parameters", go_on));
  }
  SYNCLINE_RETURN_IF_ERROR(gradients_.MakeResident("gradients", go_on));
  if (!device_.is_host()) return absl::OkStatus();
  return TouchMemory("activations", {arena_.as<char>(), arena_.bytes()}, go_on);
}

absl::Status GraphExecutor::EnsureArena(int64_t bytes) {
  if (arena_.bytes() >= static_cast<size_t>(bytes)) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(stream_->Synchronize());  // A part may be under way.
  arena_ = DeviceMemory();                           // before there are two
  SYNCLINE_ASSIGN_OR_RETURN(arena_, device_.Allocate(bytes));
  return absl::OkStatus();
}

// Parameters without values in the file stay zero until they are written.
void GraphExecutor::FillParameters() {
  const Graph& graph = model_->graph();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& bytes =
        graph.initializers[training_.parameters[i].initializer].tensor.bytes;
    std::memcpy(values_.host(i).data(), bytes.data(), bytes.size());
  }
}

absl::Status GraphExecutor::EnsureRowGradients(const StepPlan& plan) {
  const size_t tables = training_.tables.size();
  row_gradients_.resize(tables);
  row_gradients_at_.resize(tables);
  for (size_t t = 0; t < tables; ++t) {
    const size_t bytes = plan.row_gradient_bytes(t);
    if (row_gradients_[t].bytes() >= bytes) continue;
    SYNCLINE_RETURN_IF_ERROR(stream_->Synchronize());
    row_gradients_[t] = DeviceMemory();  // before there are two
    SYNCLINE_ASSIGN_OR_RETURN(row_gradients_[t], device_.Allocate(bytes));
    row_gradients_at_[t] = row_gradients_[t].as<float>();
  }
  return absl::OkStatus();
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
  const DTypeOverlay* const overlay =
      overlays_.empty() ? nullptr : &overlays_[training ? 0 : 1];
  const BackwardGraph& flow = training ? with_gradients_ : forward_only_;
  device_.AllowTf32(options_.takes_tf32);
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<StepPlan> plan,
      StepPlan::Create(
          {.device = &device_,
           .model = model_.get(),
           .overlay = overlay,
           .flow = overlay != nullptr ? &overlay->flow : &flow,
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
               training ? LargestBatch() : options_.eval_batch_size,
           .training = training,
           .recompute_segments = training ? options_.recompute_segments : 1,
           .folds_statistics = training && options_.folds_statistics,
           .gather_unit_bytes =
               training && gathers() ? options_.gather_unit_bytes : 0,
           .fuses = options_.fuses}));
  if (training && gathers()) SYNCLINE_RETURN_IF_ERROR(CheckUnits(*plan));
  if (plans_.size() == kPlansPerLength * Lengths().size()) plans_.pop_back();
  plans_.insert(plans_.begin(), {training, batch_size, length, std::move(plan),
                                 std::make_unique<KeptSteps>()});
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
                                               const Batch& batch, Part part,
                                               uint64_t seed) {
  SYNCLINE_ASSIGN_OR_RETURN(StepPlan * plan,
                            PlanFor(training, part.size, batch.length));
  // All of them before anything is computed.
  if (part.first == 0) {
    SYNCLINE_RETURN_IF_ERROR(
        plan->loss().CheckLabels(batch.size, batch.labels));
  }
  SYNCLINE_RETURN_IF_ERROR(EnsureArena(plan->arena_bytes()));
  SYNCLINE_RETURN_IF_ERROR(EnsureRowGradients(*plan));
  BeforeUploads();
  SYNCLINE_RETURN_IF_ERROR(plan->Bind(
      {.arena = arena_.as<char>(),
       .batch = &batch,
       .first_sample = part.first,
       .parameters = values_.on_device(),
       .pool = pool_.as<char>(),
       .gatherer = gatherer_,
       .first_unit = part.index * static_cast<int64_t>(units_of_part_),
       .gradients = gradients_.on_device(),
       .tables = tables_,
       .row_gradients = row_gradients_at_,
       .recorder = training ? recorder_ : nullptr,
       .statistics = training ? statistics_ : nullptr,
       .stream = stream_.get(),
       .uploads = uploads_,
       .seed = seed,
       .errors = record_.error(),
       .scale = training && scale_.has_value() ? &*scale_ : nullptr}));
  const bool has_values = keeps_on_device_ || takes_values_on_device_;
  if (part.first == 0 && !(training && has_values)) {
    values_.CopyToDevice(*uploads_);
  }
  AfterUploads();
  bound_ = training ? plan : nullptr;
  return plan;
}

absl::StatusOr<double> GraphExecutor::ReadLoss(const StepPlan& plan) {
  SYNCLINE_ASSIGN_OR_RETURN(const StepRecord::Content record,
                            record_.Read(*stream_));
  if (record.error.node == DataError::kNone) return record.loss;
  return plan.Explain(record.error);
}

absl::Status GraphExecutor::CheckLoss(OpenPart* part) {
  SYNCLINE_ASSIGN_OR_RETURN(const double loss, ReadLoss(*part->plan));
  if (!std::isfinite(loss)) return NotFinite(*part->plan, loss);
  part->loss = loss;
  return absl::OkStatus();
}

void GraphExecutor::BeforeUploads() {
  if (upload_stream_ == nullptr) return;
  computed_->Record(*stream_);
  uploads_->Wait(*computed_);
}

void GraphExecutor::AfterUploads() {
  if (upload_stream_ == nullptr) return;
  uploaded_->Record(*uploads_);
  stream_->Wait(*uploaded_);
}

void GraphExecutor::Settle() {
  for (Stream* const stream : {uploads_, stream_.get(), downloads_}) {
    stream->Synchronize().IgnoreError();  // An error is the step's own.
  }
}

void GraphExecutor::SendOff(const OpenPart& part,
                            absl::Span<const int> gradients) {
  Event& final = *final_[sent_];
  final.Record(*stream_);
  if (listener_ != nullptr) {
    for (const int i : gradients) {
      listener_->OnGradientQueued(i, part.plan->gradient(i), final);
    }
  }
  if (download_stream_ != nullptr) downloads_->Wait(final);
  for (const int i : gradients) {
    if (!gradient_memory_[i].is_transient && !keeps_on_device_) {
      gradients_.CopyToHost(*downloads_, static_cast<size_t>(i));
    }
    copying_.push_back({i, sent_});
  }
  copied_[sent_++]->Record(*downloads_);
}

absl::Status GraphExecutor::Report(OpenPart* part, bool all) {
  for (; reported_ < copying_.size(); ++reported_) {
    const Copying& copying = copying_[reported_];
    Event& copied = *copied_[copying.sent];
    if (!all && !copied.IsDone()) break;
    SYNCLINE_RETURN_IF_ERROR(copied.Wait());
    if (!part->loss.has_value()) SYNCLINE_RETURN_IF_ERROR(CheckLoss(part));
    part->ready(copying.parameter);
  }
  return absl::OkStatus();
}

std::string GraphExecutor::OverflowText() {
  if (!scale_.has_value()) return "";
  const auto found = scale_->Read(*stream_);
  if (!found.has_value()) return "";
  const auto parameters = static_cast<int32_t>(parameters_.size());
  if (found->array < parameters) {
    return absl::StrCat("element ", found->position, " of '",
                        training_.parameters[found->array].name, "'");
  }
  const size_t table = found->array - parameters;
  const RowBatch& rows = *tables_[table];
  const int64_t row = found->position / rows.dim();  // 0: that of padding
  return absl::StrCat("the row of key ", row > 0 ? rows.keys()[row - 1] : 0,
                      " of table '", rows.name(), "'");
}

absl::Status GraphExecutor::NotFinite(StepPlan& plan, double loss) {
  if (!plan.gather_units().units.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the loss is ", loss,
        ": by SHARDED, stage 3, the values are not there to look for the node; "
        "sharding { stage: 2 } names it"));
  }
  const std::string where = plan.FindNonFinite();
  return absl::FailedPreconditionError(absl::StrCat(
      "the loss is ", loss, ": ",
      where.empty() ? "every node's output is finite, but the loss overflows"
                    : where));
}

absl::Status GraphExecutor::Located(StepPlan& plan,
                                    const absl::Status& failure) {
  const std::string where = plan.FindNonFinite();
  if (where.empty()) return failure;
  return absl::FailedPreconditionError(
      absl::StrCat(failure.message(), ": ", where));
}

absl::StatusOr<Executor::StepResult> GraphExecutor::TrainStep(
    const Batch& batch, int64_t clock,
    absl::FunctionRef<void(int)> on_gradient) {
  SYNCLINE_CHECK(options_.trains && (!gathers() || gatherer_ != nullptr));
  SYNCLINE_RETURN_IF_ERROR(CheckSize(batch, LargestBatch()));
  SetComputeThreads(options_.threads);
  const uint64_t seed = SeedFor(options_.seed, static_cast<uint64_t>(clock));
  const int64_t parts = PartsOf(batch.size);
  passes_.BeginStep();
  StepResult result;
  for (int64_t k = 0; k < parts; ++k) {
    const int64_t first = batch.size * k / parts;
    const Part part{k, first, batch.size * (k + 1) / parts - first,
                    /*is_last=*/k + 1 == parts};
    const auto ready = [&](int i) {
      if (part.is_last) on_gradient(i);
    };
    const absl::StatusOr<double> loss =
        TrainPart(batch, part, clock, seed, ready);
    if (!loss.ok()) {
      Settle();
      if (scale_.has_value()) scale_->Forget(*stream_);
    }
    SYNCLINE_RETURN_IF_ERROR(loss.status());
    result.loss_sum += *loss;
  }
  result.overflow = OverflowText();
  return result;
}

void GraphExecutor::RunLoss(StepPlan& plan, bool for_backward) {
  const StepRecorder::Interval interval(for_backward ? recorder_ : nullptr,
                                        StepProfile::LOSS);
  plan.RunLoss(for_backward, record_.loss());
  record_.Queue(*stream_);
}

absl::Status GraphExecutor::Queue(
    const OpenPart& part, absl::FunctionRef<absl::Status()> on_loss,
    absl::FunctionRef<absl::Status(int)> on_final) {
  SYNCLINE_RETURN_IF_ERROR(part.plan->Forward());
  RunLoss(*part.plan, /*for_backward=*/true);
  SYNCLINE_RETURN_IF_ERROR(on_loss());
  const auto ready = [&](int i) {
    const bool is_gradient = !training_.parameters[i].momentum.has_value();
    if (scale_.has_value() && part.is_last && is_gradient) {
      scale_->Unscale(*stream_, counts_[i], part.plan->gradient(i), i);
    }
    return on_final(i);
  };
  SYNCLINE_RETURN_IF_ERROR(
      part.plan->Backward(part.accumulates, part.is_last, ready));
  if (scale_.has_value()) scale_->Copy(*stream_);
  return absl::OkStatus();
}

absl::Status GraphExecutor::RunAtOnce(OpenPart* part) {
  const auto on_loss = [&] {
    part->has_loss = true;
    record_.Note(*stream_);
    passes_.EndForward(*stream_);
    // A device that is done already has not begun with backward.
    if (record_.IsCopied()) part->status = CheckLoss(part);
    return part->status;
  };
  const auto on_final = [&](int i) {
    if (!part->is_last) return absl::OkStatus();
    SendOff(*part, {i});
    part->status = Report(part, /*all=*/gradient_memory_[i].is_transient);
    return part->status;
  };
  return Queue(*part, on_loss, on_final);
}

absl::StatusOr<std::vector<StepSegment>> GraphExecutor::Keep(
    const OpenPart& part) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  SegmentRecorder recorder(stream_.get(),
                           SendsOff(part) ? kSegmentBytes : kNever);
  SYNCLINE_RETURN_IF_ERROR(recorder.Begin());
  const auto add_apart = [&](const StepPlan::Apart& apart) {
    return recorder.AddApart(apart);
  };
  const StepPlan::OnApart on_apart = add_apart;
  part.plan->UseApart(&on_apart);
  const absl::Status queued = Queue(
      part,
      [&] {
        recorder.AddLoss();
        return absl::OkStatus();
      },
      [&](int i) {
        return recorder.AddGradient(i, ParameterMemory::BytesOf(counts_[i]));
      });
  part.plan->UseApart(nullptr);
  SYNCLINE_RETURN_IF_ERROR(queued);
  return recorder.End();
}

void GraphExecutor::SayOnce(const absl::Status& why_not) {
  if (std::exchange(why_not.ok() ? has_said_kept_ : has_said_refused_, true)) {
    return;
  }
  if (why_not.ok()) {
    LogInfo("steady steps are graphs of the device")
        .Field("device", device_.name());
  } else {
    LogWarning("a step is no graph of the device: each call is queued alone")
        .Field("device", device_.name())
        .Field("why", why_not.message());
  }
}

absl::Span<const StepSegment> GraphExecutor::KeptFor(const OpenPart& part) {
  if (!device_.has_graphs() || recorder_ != nullptr) return {};
  const int choices = (part.accumulates ? 1 : 0) | (part.is_last ? 2 : 0) |
                      (SendsOff(part) ? 4 : 0);
  KeptSteps::Step* const step =
      plans_.front().kept->Find(part.plan->binding(), choices);
  if (step == nullptr || step->is_refused) return {};
  if (step->segments.empty()) {
    absl::StatusOr<std::vector<StepSegment>> segments = Keep(part);
    SayOnce(segments.status());
    step->is_refused = !segments.ok();
    if (segments.ok()) step->segments = *std::move(segments);
  }
  return step->segments;
}

absl::Status GraphExecutor::RunKept(OpenPart* part,
                                    absl::Span<const StepSegment> segments) {
  for (const StepSegment& segment : segments) {
    if (segment.graph == nullptr) {
      SYNCLINE_RETURN_IF_ERROR(part->plan->RunApart(segment.apart));
      continue;
    }
    segment.graph->Launch(*stream_);
    if (segment.has_loss) {
      part->has_loss = true;
      record_.Note(*stream_);
    }
    if (part->is_last && !segment.gradients.empty()) {
      SendOff(*part, segment.gradients);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> GraphExecutor::TrainPart(
    const Batch& batch, Part part, int64_t clock, uint64_t seed,
    absl::FunctionRef<void(int)> ready) {
  SYNCLINE_ASSIGN_OR_RETURN(StepPlan * plan,
                            Ready(/*training=*/true, batch, part, seed));
  const auto at_clock = [clock](const absl::Status& failure) {
    return Annotate(failure, absl::StrCat("step at clock ", clock));
  };
  OpenPart open = {.plan = plan,
                   .accumulates = part.first > 0,
                   .is_last = part.is_last,
                   .ready = ready};
  copying_.clear();
  reported_ = 0;
  sent_ = 0;
  const absl::Span<const StepSegment> kept = KeptFor(open);
  passes_.Begin(*stream_);
  const absl::Status run =
      kept.empty() ? RunAtOnce(&open) : RunKept(&open, kept);
  passes_.End(*stream_);
  if (!run.ok() && !open.has_loss) {
    // Bad data may be the reason.
    record_.Copy(*stream_);
    SYNCLINE_RETURN_IF_ERROR(ReadLoss(*plan).status());
    if (!absl::IsFailedPrecondition(run)) return run;
    return at_clock(Located(*plan, run));
  }
  if (open.status.ok()) {
    SYNCLINE_RETURN_IF_ERROR(run);
    open.status = Report(&open, /*all=*/true);
    // Memory of the host that is not pinned is copied with a wait for all that
    // comes before.
    if (open.status.ok() && part.is_last && !tables_.empty() &&
        download_stream_ != nullptr) {
      computed_->Record(*stream_);
      downloads_->Wait(*computed_);
      plan->CopyRowGradients(*downloads_);
    }
  }
  if (open.status.ok() && !open.loss.has_value())
    open.status = CheckLoss(&open);
  if (absl::IsFailedPrecondition(open.status)) return at_clock(open.status);
  SYNCLINE_RETURN_IF_ERROR(open.status);
  // The next part is queued behind this one.
  if (!part.is_last) return *open.loss;
  SYNCLINE_RETURN_IF_ERROR(stream_->Synchronize());
  SYNCLINE_RETURN_IF_ERROR(downloads_->Synchronize());
  // Uploads are done by now: this lets their stream count its copies.
  SYNCLINE_RETURN_IF_ERROR(uploads_->Synchronize());
  passes_.EndStep();
  return *open.loss;
}

absl::StatusOr<Executor::EvalResult> GraphExecutor::Evaluate(
    const Batch& batch) {
  SYNCLINE_RETURN_IF_ERROR(CheckSize(batch, options_.eval_batch_size));
  SetComputeThreads(options_.threads);
  SYNCLINE_ASSIGN_OR_RETURN(
      StepPlan * plan,
      Ready(/*training=*/false, batch, {0, 0, batch.size}, /*seed=*/0));
  const absl::Status forward = plan->Forward();
  RunLoss(*plan, /*for_backward=*/false);
  record_.Note(*stream_);
  const absl::StatusOr<double> sum = ReadLoss(*plan);
  SYNCLINE_RETURN_IF_ERROR(sum.status());
  SYNCLINE_RETURN_IF_ERROR(forward);
  EvalResult result;
  result.loss_sum = *sum;
  const Loss& loss = plan->loss();
  result.positions = loss.positions();
  result.width = loss.width();
  const auto count =
      static_cast<size_t>(loss.rows() * loss.positions() * loss.width());
  const float* scores = plan->scores();
  if (!device_.is_host()) {
    scores_.resize(count);
    stream_->CopyToHost(scores_.data(), scores, count * sizeof(float));
    SYNCLINE_RETURN_IF_ERROR(stream_->Synchronize());
    scores = scores_.data();
  }
  result.scores = {scores, count};
  return result;
}

absl::Status GraphExecutor::WhyNotFinite(const EvalResult& result) {
  SYNCLINE_CHECK(!plans_.empty());
  return Annotate(NotFinite(*plans_.front().plan, result.loss_sum),
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
