#include "worker/compute/step_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/element_type.h"
#include "common/base/status_macros.h"
#include "common/model/graph/memory_plan.h"
#include "kernels/device/device.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/layer_norm_kernels.h"
#include "kernels/device/matrix_product_kernels.h"
#include "worker/compute/layout_assignment.h"
#include "worker/compute/parameter_memory.h"
#include "worker/ops/op_table.h"
#include "worker/ops/widened_op.h"

namespace syncline::worker {
namespace {

constexpr size_t kProblemsShown = 50;

int64_t FirstNonFinite(absl::Span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

// REQUIRES: float32 or a 16-bit type.
ElementType ElementTypeOf(DType dtype) {
  if (dtype == DType::kBfloat16) return ElementType::kBfloat16;
  return dtype == DType::kFloat16 ? ElementType::kFloat16
                                  : ElementType::kFloat32;
}

// Facts about the values of a step, by ValueId.
struct Values {
  const Graph& graph;
  absl::Span<const Dims> shapes;
  absl::Span<const int64_t> channel_blocks;  // past the end: 1
  absl::Span<const void* const> constants;   // past the end: null
  absl::Span<const ValueId> sources;

  TensorType TypeOf(ValueId v) const {
    if (v == kNoValue) return {};
    const auto i = static_cast<size_t>(v);
    const ValueId source = sources.empty() ? v : sources[v];
    return {.present = true,
            .dtype = graph.values[v].dtype,
            .gradient_dtype = graph.values[source].dtype,
            .dims = shapes[v],
            .channel_block = i < channel_blocks.size() ? channel_blocks[i] : 1,
            .constant = i < constants.size() ? constants[i] : nullptr};
  }
};

// The spec that a node's Op is made from.
OpSpec OpSpecOf(const StepPlan::Spec& plan, const Values& values,
                const Node& node, const std::vector<bool>& wants_gradient) {
  OpSpec spec;
  spec.node = &node;
  spec.device = plan.device;
  spec.wants_gradient = wants_gradient;
  spec.training = plan.training;
  spec.samples = plan.batch_size;
  spec.is_short = plan.is_short;
  spec.folds_statistics = plan.folds_statistics;
  for (const ValueId v : node.inputs) spec.inputs.push_back(values.TypeOf(v));
  for (const ValueId v : node.outputs) spec.outputs.push_back(values.TypeOf(v));
  return spec;
}

// The device computes some operators together.
bool Fuses(const Device& device) {
  const MatrixProductKernels* const products = device.kernels().matrix_product;
  const LayerNormKernels* const norms = device.kernels().layer_norm;
  return device.channel_block() == 1 &&
         ((products != nullptr && products->make_with_epilogue != nullptr) ||
          (norms != nullptr && norms->add_forward != nullptr));
}

// By input: Backward adds to the gradient when the gradients of parameters hold
// those of the batch's earlier parts.
StepMemory::Flags AccumulatesLater(const StepMemory::Backward& backward) {
  StepMemory::Flags flags = backward.accumulates;
  for (size_t i = 0; i < flags.size(); ++i) {
    flags[i] |= backward.input_gradients[i].kind == Place::Kind::kGradient;
  }
  return flags;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepPlan>> StepPlan::Create(const Spec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(Model::Inference known,
                            spec.model->Infer(spec.batch_size, spec.length));
  SYNCLINE_ASSIGN_OR_RETURN(
      Loss loss, Loss::Create(spec.loss, known.dims[spec.loss_output],
                              spec.batch_size, spec.ignores_labels));
  SYNCLINE_RETURN_IF_ERROR(loss.RequireKernel(*spec.device));
  std::unique_ptr<StepPlan> plan(new StepPlan(spec, loss));
  plan->shapes_ = std::move(known.dims);
  plan->folded_ = std::move(known.constants);
  plan->PlaceTables();
  plan->PlaceCopies();
  if (spec.fuses && Fuses(*spec.device)) {
    SYNCLINE_RETURN_IF_ERROR(plan->Fuse());
  }
  SYNCLINE_RETURN_IF_ERROR(plan->MakeOps());
  plan->PlaceMemory();
  if (!spec.device->is_host()) plan->NameMarks();
  return plan;
}

void StepPlan::PlaceTables() {
  lookups_.resize(graph().nodes.size());
  for (size_t t = 0; t < spec_.tables.size(); ++t) {
    const TrainingTable& table = spec_.tables[t];
    int64_t rows = 1;
    for (size_t l = 0; l < table.lookups.size(); ++l) {
      const int node = table.lookups[l].node;
      lookups_[node] = {static_cast<int>(t), l};
      rows += PerSample(graph().nodes[node].inputs[1]) * spec_.table_samples;
    }
    shapes_[table.value] = {rows, int64_t{table.dim}};
    table_values_.push_back(table.value);
  }
}

// Copies that round a value have its shape.
void StepPlan::PlaceCopies() {
  for (size_t v = shapes_.size(); v < sources().size(); ++v) {
    const Dims dims = shapes_[sources()[v]];
    shapes_.push_back(dims);
  }
}

std::vector<const void*> StepPlan::Constants() const {
  std::vector<const void*> constants(graph().values.size(), nullptr);
  for (const Initializer& initializer : spec_.model->graph().initializers) {
    constants[initializer.value] = initializer.tensor.bytes.data();
  }
  for (size_t v = 0; v < folded_.size(); ++v) {
    if (folded_[v] != nullptr) constants[v] = folded_[v]->bytes.data();
  }
  for (ValueId v : spec_.parameters) constants[v] = nullptr;
  for (ValueId v : table_values_) constants[v] = nullptr;
  return constants;
}

// A node is asked about by making its Op, which asks the device's library. That
// there is no memory to ask with is no answer: a plan that is fused in one
// process and not in another would have other last bits.
absl::Status StepPlan::Fuse() {
  const std::vector<const void*> constants = Constants();
  absl::Status no_answer;
  const auto can_compute = [&](const FusedGraph& so_far, const Node& node,
                               const std::vector<bool>& wants) {
    const Values values = {
        so_far.graph, so_far.shapes, {}, constants, so_far.sources};
    const absl::Status made =
        CreateTypedOp(OpSpecOf(spec_, values, node, wants)).status();
    if (absl::IsResourceExhausted(made)) no_answer.Update(made);
    return made.ok();
  };
  FusedGraph fused = FuseOperators({.graph = &whole_graph(),
                                    .flow = spec_.flow,
                                    .sources = sources(),
                                    .shapes = shapes_,
                                    .loss_output = spec_.loss_output},
                                   can_compute);
  SYNCLINE_RETURN_IF_ERROR(no_answer);
  shapes_ = fused.shapes;
  fused_ = std::move(fused);
  return absl::OkStatus();
}

OpFlops StepPlan::FlopsAt(int position) const {
  const Values values = {whole_graph(), shapes_, {}, {}, {}};
  OpFlops sum;
  const std::vector<int> itself = {position};
  for (const int p : fused_.has_value() ? fused_->parts[position] : itself) {
    const OpFlops flops = FlopsOf(
        OpSpecOf(spec_, values, whole_graph().nodes[spec_.flow->nodes[p]],
                 spec_.flow->wants_gradient[p]));
    sum.forward += flops.forward;
    sum.backward += flops.backward;
  }
  return sum;
}

absl::Status StepPlan::MakeOps() {
  const std::vector<const void*> constants = Constants();
  const std::vector<int64_t> blocks =
      AssignLayouts(graph(), flow(), shapes_, spec_.loss_output,
                    spec_.device->channel_block());
  const Values values = {graph(), shapes_, blocks, constants, sources()};
  const std::vector<int>& nodes = flow().nodes;
  std::vector<std::string> problems;
  for (size_t p = 0; p < nodes.size(); ++p) {
    OpSpec spec = OpSpecOf(spec_, values, graph().nodes[nodes[p]],
                           flow().wants_gradient[p]);
    // The node gets positions among the batch's rows in place of ids.
    if (lookups_[nodes[p]].table >= 0) spec.inputs[1].dtype = DType::kInt32;
    absl::StatusOr<std::unique_ptr<Op>> op = CreateTypedOp(spec);
    if (!op.ok()) {
      if (!absl::IsInvalidArgument(op.status())) return op.status();
      problems.emplace_back(op.status().message());
      continue;
    }
    ops_.push_back(*std::move(op));
    if (problems.empty()) flops_.push_back(FlopsAt(static_cast<int>(p)));
  }
  if (problems.empty()) return absl::OkStatus();
  if (problems.size() > kProblemsShown) {
    const size_t more = problems.size() - kProblemsShown;
    problems.resize(kProblemsShown);
    problems.push_back(absl::StrCat("and ", more, " more problems"));
  }
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

void StepPlan::PlaceMemory() {
  memory_ = PlanStepMemory({.graph = &graph(),
                            .model = &spec_.model->graph(),
                            .flow = &flow(),
                            .sources = sources(),
                            .shapes = shapes_,
                            .ops = ops_,
                            .feeds = spec_.feeds,
                            .parameters = spec_.parameters,
                            .gradients = spec_.gradients,
                            .tables = table_values_,
                            .folded = folded_,
                            .loss_output = spec_.loss_output,
                            .recompute_segments = spec_.recompute_segments});
  PlaceBuffers();
  if (gathers()) CutUnits();

  ready_order_.resize(spec_.parameters.size());
  std::iota(ready_order_.begin(), ready_order_.end(), 0);
  std::stable_sort(ready_order_.begin(), ready_order_.end(), [&](int a, int b) {
    return memory_.ready_steps[a] < memory_.ready_steps[b];
  });

  values_.resize(graph().values.size());
  calls_.resize(ops_.size());
  for (size_t p = 0; p < calls_.size(); ++p) {
    Call& call = calls_[p];
    call.node_index = flow().nodes[p];
    call.node = &graph().nodes[call.node_index];
    call.runs_forward = memory_.runs_forward[p];
    call.runs_backward = memory_.backward[p].runs;
    call.accumulates = memory_.backward[p].accumulates;
    call.accumulates_later = AccumulatesLater(memory_.backward[p]);
    call.table = lookups_[call.node_index].table;
    call.lookup = lookups_[call.node_index].lookup;
    for (Arguments* arguments : {&call.forward, &call.again}) {
      arguments->inputs.resize(call.node->inputs.size());
      arguments->outputs.resize(call.node->outputs.size());
    }
    call.output_gradients.resize(call.node->outputs.size());
    call.input_gradients.resize(memory_.backward[p].input_gradients.size());
  }
}

void StepPlan::CutUnits() {
  std::vector<int64_t> bytes;
  for (const ValueId v : spec_.parameters) {
    bytes.push_back(ParameterMemory::BytesOf(ElementCount(shapes_[v])));
  }
  gather_units_ =
      CutGatherUnits(memory_.parameter_reads, bytes, spec_.gather_unit_bytes);
  backward_steps_.assign(ops_.size(), -1);
  int number = static_cast<int>(ops_.size());  // the loss's
  for (const StepMemory::Step& step : memory_.after_loss) {
    ++number;
    if (!step.again) backward_steps_[step.position] = number;
  }
}

// The gradients' memory and the arena are two; what lies between them here
// keeps a buffer from being in both.
void StepPlan::PlaceBuffers() {
  std::vector<BufferLifetime> buffers = memory_.buffers;
  int64_t gradients_end = 0;
  for (const GradientMemory& gradient : spec_.gradients) {
    if (gradient.is_transient) continue;
    gradients_end = std::max(gradients_end, gradient.offset + gradient.bytes);
  }
  if (gradients_end > 0) {
    buffers.push_back({.size_bytes = kPlanAlignmentBytes,
                       .first_use = 0,
                       .last_use = std::numeric_limits<int32_t>::max(),
                       .offset = gradients_end});
    arena_begin_ = gradients_end + kPlanAlignmentBytes;
  }
  MemoryPlan plan = PlanMemory(buffers);
  offsets_ = std::move(plan.offsets);
  arena_bytes_ = plan.arena_bytes - arena_begin_;
}

void* StepPlan::BufferAddress(int buffer, const Memory& memory) const {
  const int64_t offset = offsets_[buffer];
  return offset >= arena_begin_
             ? memory.arena + (offset - arena_begin_)
             : reinterpret_cast<char*>(memory.gradients[0]) + offset;
}

float* StepPlan::GradientAddress(int parameter, const Memory& memory) const {
  const int buffer = memory_.gradient_buffers[parameter];
  return buffer < 0 ? memory.gradients[parameter]
                    : static_cast<float*>(BufferAddress(buffer, memory));
}

std::vector<StepPlan::NodeCost> StepPlan::Costs() const {
  std::vector<NodeCost> costs;
  for (size_t p = 0; p < calls_.size(); ++p) {
    costs.push_back({.node = calls_[p].node, .flops = flops_[p]});
  }
  for (const StepMemory::Step& step : memory_.after_loss) {
    if (step.again) costs[step.position].runs_again = true;
  }
  return costs;
}

std::vector<PlannedTensor> StepPlan::ArenaTensors() const {
  std::vector<PlannedTensor> tensors;
  // A value that is written in place of another one has that one's memory.
  std::vector<bool> listed(offsets_.size(), false);
  for (size_t p = 0; p < calls_.size(); ++p) {
    for (ValueId v : calls_[p].node->outputs) {
      if (v == kNoValue) continue;
      const Place& place = memory_.values[v];
      if (place.kind != Place::Kind::kArena || listed[place.index]) continue;
      listed[place.index] = true;
      const Value& value = graph().values[v];
      const int64_t bytes = ElementCount(shapes_[v]) *
                            static_cast<int64_t>(DTypeBytes(value.dtype));
      tensors.push_back({value.name, "activation", shapes_[v], bytes});
    }
    const int64_t workspace = ops_[p]->traits().workspace_bytes;
    if (workspace > 0) {
      tensors.push_back({calls_[p].node->name, "workspace", {}, workspace});
    }
  }
  return tensors;
}

absl::Status StepPlan::CheckFeeds(const Memory& memory) const {
  const auto size_of = [](const auto& feeds, size_t i) {
    return i < feeds.size() ? static_cast<int64_t>(feeds[i].size()) : 0;
  };
  const Batch& batch = *memory.batch;
  for (size_t i = 0; i < spec_.feeds.size(); ++i) {
    const ValueId v = spec_.feeds[i];
    if (v == kNoValue) continue;
    const int64_t want = PerSample(v) * batch.size;
    const int64_t got = graph().values[v].dtype == DType::kInt64
                            ? size_of(batch.int_feeds, i)
                            : size_of(batch.feeds, i);
    if (got != want) {
      return absl::InvalidArgumentError(absl::StrCat(
          "graph input \"", graph().values[v].name, "\" takes ", want,
          " numbers for ", batch.size, " samples, but is fed ", got));
    }
  }
  return absl::OkStatus();
}

absl::Status StepPlan::CheckTables(const Memory& memory) const {
  for (size_t t = 0; t < spec_.tables.size(); ++t) {
    const TrainingTable& table = spec_.tables[t];
    bool fits = t < memory.tables.size() && memory.tables[t] != nullptr &&
                memory.tables[t]->dim() == int64_t{table.dim};
    for (size_t l = 0; fits && l < table.lookups.size(); ++l) {
      const Node& node = graph().nodes[table.lookups[l].node];
      fits = static_cast<int64_t>(memory.tables[t]->positions(l).size()) ==
             PerSample(node.inputs[1]) * memory.batch->size;
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table \"", table.name, "\": its rows are not those of a batch of ",
          memory.batch->size, " samples"));
    }
  }
  return absl::OkStatus();
}

// Only kernels write, and never to their inputs. const is cast away for feeds
// and constants: the memory plan gives their places to no other value.
void* StepPlan::Address(const Place& place, const Memory& memory,
                        int step) const {
  switch (place.kind) {
    case Place::Kind::kNone:
      return nullptr;
    case Place::Kind::kArena:
      return BufferAddress(place.index, memory);
    case Place::Kind::kFeed:
      return const_cast<void*>(feeds_[place.index]);
    case Place::Kind::kParameter: {
      if (!gathers()) return memory.parameters[place.index];
      const int64_t offset = gather_units_.OffsetAt(step, place.index);
      return offset < 0 ? nullptr : memory.pool + offset;
    }
    case Place::Kind::kGradient:
      return GradientAddress(place.index, memory);
    case Place::Kind::kRows:
      return const_cast<float*>(staged_[place.index].rows);
    case Place::Kind::kRowGradients:
      return staged_[place.index].gradients;
    case Place::Kind::kConstant:
      return const_cast<void*>(spec_.device->is_host()
                                   ? place.constant
                                   : constant_at_.at(place.constant));
  }
  return nullptr;
}

// `operator 17 of 42, MatMul "/h.0/attn/MatMul", backward`.
void StepPlan::NameMarks() {
  auto marks = std::make_shared<Stream::Marks>();
  *marks = {"the loss"};
  for (size_t p = 0; p < calls_.size(); ++p) {
    const Node& node = *calls_[p].node;
    for (const char* const work : {"forward", "forward again", "backward"}) {
      marks->push_back(absl::StrCat("operator ", p + 1, " of ", calls_.size(),
                                    ", ", node.op_type, " \"", node.name,
                                    "\", ", work));
    }
  }
  marks_ = std::move(marks);
}

void StepPlan::Mark(size_t position, Work work) {
  if (marks_ == nullptr) return;
  stream_->Mark(
      static_cast<uint32_t>(1 + 3 * position + static_cast<size_t>(work)));
}

absl::Status StepPlan::Bind(const Memory& memory) {
  SYNCLINE_RETURN_IF_ERROR(CheckFeeds(memory));
  SYNCLINE_RETURN_IF_ERROR(CheckTables(memory));
  if (marks_ != nullptr) memory.stream->UseMarks(marks_);
  SYNCLINE_RETURN_IF_ERROR(StageInputs(memory));
  tables_ = memory.tables.first(table_values_.size());
  first_sample_ = memory.first_sample;
  batch_samples_ = memory.batch->size;
  recorder_ = memory.recorder;
  statistics_ = memory.statistics;
  stream_ = memory.stream;
  errors_ = memory.errors;
  scale_ = memory.scale;
  // For the loss, and for FindNonFinite.
  const int loss_step = static_cast<int>(calls_.size());
  for (size_t v = 0; v < values_.size(); ++v) {
    values_[v] = Address(memory_.values[v], memory, loss_step);
  }
  BindUnits(memory);
  gradients_.clear();
  for (size_t i = 0; i < memory.gradients.size(); ++i) {
    gradients_.push_back(GradientAddress(static_cast<int>(i), memory));
  }
  for (size_t p = 0; p < calls_.size(); ++p) BindCall(memory, p);
  scores_ = static_cast<const float*>(values_[spec_.loss_output]);
  loss_gradient_ =
      static_cast<float*>(Address(memory_.loss_gradient, memory, loss_step));
  if (!spec_.device->is_host()) NoteBinding(memory);
  return absl::OkStatus();
}

void StepPlan::BindUnits(const Memory& memory) {
  gatherer_ = memory.gatherer;
  first_unit_ = static_cast<int>(memory.first_unit);
  unit_values_.resize(gather_units_.units.size());
  for (size_t u = 0; u < unit_values_.size(); ++u) {
    unit_values_[u].clear();
    for (const int64_t offset : gather_units_.units[u].offsets) {
      unit_values_[u].push_back(reinterpret_cast<float*>(memory.pool + offset));
    }
  }
}

absl::Status StepPlan::EnterStep(int step) {
  const std::vector<GatherUnit>& units = gather_units_.units;
  if (units_entered_ == units.size() ||
      units[units_entered_].first_step != step) {
    return absl::OkStatus();
  }
  const auto begin = [this](size_t unit) {
    gatherer_->Begin(UnitNumber(unit), unit_values_[unit]);
  };
  if (units_entered_ == 0) begin(0);
  SYNCLINE_RETURN_IF_ERROR(gatherer_->Await(UnitNumber(units_entered_)));
  // The next one comes while this one is computed with.
  if (++units_entered_ < units.size()) begin(units_entered_);
  return absl::OkStatus();
}

void StepPlan::LeaveStep(int step) {
  if (units_entered_ == 0) return;
  const size_t unit = units_entered_ - 1;
  if (gather_units_.units[unit].last_step == step) {
    gatherer_->Release(UnitNumber(unit));
  }
}

void StepPlan::BindArguments(const Memory& memory, const Call& call,
                             absl::Span<const Place> values, int step,
                             Arguments* arguments) {
  const auto address = [&](ValueId v) {
    return v == kNoValue ? nullptr : Address(values[v], memory, step);
  };
  for (size_t i = 0; i < arguments->inputs.size(); ++i) {
    arguments->inputs[i] = address(call.node->inputs[i]);
  }
  if (call.table >= 0) {
    arguments->inputs[1] =
        staged_[call.table].positions[call.lookup] +
        PerSample(call.node->inputs[1]) * memory.first_sample;
  }
  for (size_t i = 0; i < arguments->outputs.size(); ++i) {
    arguments->outputs[i] = address(call.node->outputs[i]);
  }
}

void StepPlan::BindCall(const Memory& memory, size_t position) {
  Call& call = calls_[position];
  const StepMemory::Backward& backward = memory_.backward[position];
  // Of what is not gathered the step does not matter; with what is, no node
  // runs forward again.
  const int step = static_cast<int>(position);
  const int backward_step = gathers() ? backward_steps_[position] : step;
  const auto address = [&](const Place& place) {
    return Address(place, memory, backward_step);
  };
  BindArguments(memory, call, memory_.values, step, &call.forward);
  BindArguments(memory, call, memory_.again_values, backward_step, &call.again);
  call.forward.workspace = address(memory_.workspaces[position]);
  call.forward.forward_scratch = address(memory_.forward_scratch[position]);
  call.again.workspace = address(memory_.again_workspaces[position]);
  call.again.forward_scratch = address(memory_.again_scratch[position]);
  call.backward_scratch = address(backward.scratch);
  for (size_t i = 0; i < backward.output_gradients.size(); ++i) {
    call.output_gradients[i] =
        static_cast<const float*>(address(backward.output_gradients[i]));
  }
  for (size_t i = 0; i < call.input_gradients.size(); ++i) {
    call.input_gradients[i] =
        static_cast<float*>(address(backward.input_gradients[i]));
  }
}

Op::Tensors StepPlan::TensorsOf(size_t position, const Arguments& arguments,
                                void* scratch) const {
  return {.inputs = arguments.inputs,
          .outputs = arguments.outputs,
          .workspace = arguments.workspace,
          .scratch = scratch,
          .stream = stream_,
          .errors = {errors_, static_cast<int32_t>(position)},
          .numbers = step_numbers_,
          .node = static_cast<uint64_t>(calls_[position].node_index),
          .statistics = statistics_};
}

absl::Status StepPlan::AnnotateNode(const absl::Status& status,
                                    const Node& node) const {
  if (status.ok()) return status;
  std::string where = Describe(node);
  if (spec_.batch_size < batch_samples_) {
    absl::StrAppend(&where, ", in the part of samples ", first_sample_, " to ",
                    first_sample_ + spec_.batch_size - 1, " of the batch");
  }
  return Annotate(status, where);
}

absl::Status StepPlan::RunForward(size_t position, Pass pass) {
  const Call& call = calls_[position];
  if (!call.runs_forward) return absl::OkStatus();
  const bool recomputed = pass == Pass::kRecomputed;
  if (IsApart(position)) {
    return (*on_apart_)({.position = position, .is_again = recomputed});
  }
  const Arguments& arguments = recomputed ? call.again : call.forward;
  const StepRecorder::Interval interval(
      recorder_, recomputed ? StepProfile::RECOMPUTED : StepProfile::FORWARD,
      call.node);
  Op::Tensors tensors =
      TensorsOf(position, arguments, arguments.forward_scratch);
  tensors.again = pass != Pass::kForward;
  Mark(position, recomputed ? Work::kRecomputed : Work::kForward);
  return AnnotateNode(ops_[position]->Forward(tensors), *call.node);
}

absl::Status StepPlan::RunBackward(size_t position, bool accumulate) {
  const Call& call = calls_[position];
  if (!call.runs_backward) return absl::OkStatus();
  if (IsApart(position)) {
    return (*on_apart_)(
        {.position = position, .is_backward = true, .accumulate = accumulate});
  }
  const StepRecorder::Interval interval(recorder_, StepProfile::BACKWARD,
                                        call.node);
  Mark(position, Work::kBackward);
  absl::Status status = ops_[position]->Backward(
      TensorsOf(position, call.again, call.backward_scratch),
      {.outputs = call.output_gradients,
       .inputs = call.input_gradients,
       .accumulates = accumulate ? call.accumulates_later : call.accumulates});
  return AnnotateNode(status, *call.node);
}

void StepPlan::RunLoss(bool for_backward, double* loss) {
  if (marks_ != nullptr) stream_->Mark(kLossMark);
  float* const gradient = for_backward ? loss_gradient_ : nullptr;
  loss_.Run(*stream_, scores_, labels_, gradient, loss);
  if (scale_ == nullptr || gradient == nullptr) return;
  scale_->Scale(*stream_, loss_.rows() * loss_.positions() * loss_.width(),
                gradient);
}

absl::Status StepPlan::Explain(const DataError& error) const {
  const auto position = static_cast<size_t>(error.node);
  return AnnotateNode(ops_[position]->Explain(error), *calls_[position].node);
}

absl::Status StepPlan::RunApart(const Apart& apart) {
  if (apart.is_backward) return RunBackward(apart.position, apart.accumulate);
  return RunForward(apart.position,
                    apart.is_again ? Pass::kRecomputed : Pass::kForward);
}

absl::Status StepPlan::Forward() {
  units_entered_ = 0;
  for (size_t p = 0; p < calls_.size(); ++p) {
    const int step = static_cast<int>(p);
    SYNCLINE_RETURN_IF_ERROR(EnterStep(step));
    SYNCLINE_RETURN_IF_ERROR(RunForward(p, Pass::kForward));
    LeaveStep(step);
  }
  return EnterStep(static_cast<int>(calls_.size()));
}

absl::Status StepPlan::Backward(bool accumulate, bool is_last,
                                absl::FunctionRef<absl::Status(int)> ready) {
  auto next = ready_order_.begin();
  const auto report = [&](int step) -> absl::Status {
    for (; next != ready_order_.end() && memory_.ready_steps[*next] <= step;
         ++next) {
      SYNCLINE_RETURN_IF_ERROR(ready(*next));
    }
    return absl::OkStatus();
  };
  if (!accumulate) ClearRowGradients();
  int number = static_cast<int>(calls_.size());  // the loss's
  LeaveStep(number);
  SYNCLINE_RETURN_IF_ERROR(report(number));
  for (const StepMemory::Step& step : memory_.after_loss) {
    const auto p = static_cast<size_t>(step.position);
    SYNCLINE_RETURN_IF_ERROR(EnterStep(++number));
    SYNCLINE_RETURN_IF_ERROR(step.again ? RunForward(p, Pass::kRecomputed)
                                        : RunBackward(p, accumulate));
    LeaveStep(number);
    SYNCLINE_RETURN_IF_ERROR(report(number));
  }
  if (is_last && scale_ != nullptr) UnscaleRowGradients();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> StepPlan::ReadNumbers(
    ValueId value, const void* data) const {
  std::string bytes(BytesOf(value), '\0');
  stream_->CopyToHost(bytes.data(), data, bytes.size());
  SYNCLINE_RETURN_IF_ERROR(stream_->Synchronize());
  std::vector<float> numbers(ElementCount(shapes_[value]));
  Widen(ElementTypeOf(graph().values[value].dtype), bytes.data(),
        numbers.data(), numbers.size());
  return numbers;
}

std::string StepPlan::DescribeIfNotFinite(ValueId value,
                                          const void* data) const {
  const Value& v = graph().values[value];
  const bool is_float = v.dtype == DType::kFloat32 || Is16Bit(v.dtype);
  if (!is_float || data == nullptr) return "";
  const int64_t count = ElementCount(shapes_[value]);
  const bool is_here = spec_.device->is_host() && v.dtype == DType::kFloat32;
  std::vector<float> copy;
  if (!is_here) {
    auto read = ReadNumbers(value, data);
    if (!read.ok()) return "";
    copy = *std::move(read);
    data = copy.data();
  }
  const absl::Span<const float> numbers(static_cast<const float*>(data), count);
  const int64_t at = FirstNonFinite(numbers);
  if (at < 0) return "";
  std::string where = absl::StrCat("\"", v.name, "\" is ", numbers[at]);
  const bool by_sample =
      !v.dims.empty() && v.dims[0] == kBatchDim && spec_.batch_size > 0;
  if (by_sample) {
    absl::StrAppend(&where, " for sample ",
                    first_sample_ + at / (count / spec_.batch_size),
                    " in the batch");
  }
  return where;
}

std::string StepPlan::DescribeRowNotFinite() const {
  for (const RowBatch* table : tables_) {
    const int64_t row = table->FindNonFinite();
    if (row < 0) continue;
    return absl::StrCat("table \"", table->name(), "\" holds NaN or infinity ",
                        "in the row of key ", table->keys()[row]);
  }
  return "";
}

std::string StepPlan::FindNonFinite() {
  if (gathers()) return "";
  const auto given = [&](absl::Span<const ValueId> values,
                         absl::string_view what) -> std::string {
    for (ValueId v : values) {
      if (v == kNoValue) continue;
      const std::string found = DescribeIfNotFinite(v, values_[v]);
      if (!found.empty()) return absl::StrCat(what, " ", found);
    }
    return "";
  };
  std::string found = given(spec_.feeds, "graph input");
  if (found.empty()) found = given(spec_.parameters, "parameter");
  if (found.empty()) found = DescribeRowNotFinite();
  for (size_t p = 0; p < calls_.size() && found.empty(); ++p) {
    const Call& call = calls_[p];
    if (!RunForward(p, Pass::kSearch).ok()) break;
    const std::vector<void*>& outputs = call.forward.outputs;
    for (size_t i = 0; i < outputs.size() && found.empty(); ++i) {
      if (call.node->outputs[i] == kNoValue) continue;
      found = DescribeIfNotFinite(call.node->outputs[i], outputs[i]);
      if (!found.empty()) {
        found = absl::StrCat(Describe(*call.node), " output ", found);
      }
    }
  }
  return found;
}

}  // namespace syncline::worker
