#ifndef SYNCLINE_WORKER_COMPUTE_STEP_PLAN_H_
#define SYNCLINE_WORKER_COMPUTE_STEP_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/job_plan.h"
#include "common/model/model.h"
#include "common/model/training_tables.h"
#include "worker/compute/backward_graph.h"
#include "worker/compute/dtype_overlay.h"
#include "worker/compute/gather_units.h"
#include "worker/compute/gradient_scale.h"
#include "worker/compute/loss.h"
#include "worker/compute/operator_fusion.h"
#include "worker/compute/parameter_gatherer.h"
#include "worker/compute/step_inputs.h"
#include "worker/compute/step_memory.h"
#include "worker/compute/step_recorder.h"
#include "worker/data/batch.h"
#include "worker/embedding/row_batch.h"
#include "worker/ops/flops.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// A model made ready for one batch size and length: an Op per node, a place for
// every byte. Running it allocates nothing. Thread-compatible.
//
//   Bind -> Forward -> RunLoss -> Backward -> CopyRowGradients
//
// A batch may be run in parts of the plan's size, one after the other: their
// gradients add up.
//
// Where the device keeps work as graphs, the three in the middle may be run
// once to be kept: what they queue depends on the plan, on binding(), and on
// their arguments alone.
class StepPlan {
 public:
  // Everything pointed to outlives the plan.
  struct Spec {
    Device* device = nullptr;
    const Model* model = nullptr;
    // The types of this plan; null: those of the model, in float32.
    const DTypeOverlay* overlay = nullptr;
    const BackwardGraph* flow = nullptr;  // the overlay's, if there is one
    absl::Span<const ValueId> feeds;
    absl::Span<const ValueId> parameters;
    absl::Span<const GradientMemory> gradients;  // by parameter
    absl::Span<const TrainingTable> tables;
    ValueId loss_output = kNoValue;
    LossSpec::Kind loss = LossSpec::KIND_UNSPECIFIED;
    bool ignores_labels = false;  // labels may be kIgnoredLabel
    int64_t batch_size = 0;       // of the batch, or of a part of it
    int64_t length = 0;           // of its samples; 0: the model's
    bool is_short = false;        // no part of a full batch is as small
    // Samples at most of the batch whose rows the tables hold.
    int64_t table_samples = 0;
    bool training = false;
    int recompute_segments = 1;  // rematerialization.h
    bool folds_statistics = false;
    // Not 0: parameters are gathered in units of about as much
    // (gather_units.h). REQUIRES: on the host, in float32, one segment.
    int64_t gather_unit_bytes = 0;
    // Operators that the device computes together are one step
    // (operator_fusion.h).
    bool fuses = true;
  };
  // Errors: InvalidArgument, naming the node: what cannot be executed;
  // ResourceExhausted: the device has no memory to find it out.
  static absl::StatusOr<std::unique_ptr<StepPlan>> Create(const Spec& spec);

  // Besides the gradients' memory, as far as that is lent.
  int64_t arena_bytes() const { return arena_bytes_; }
  // In memory of a device that is not the host: labels, feeds, constants, and
  // rows of tables, for the largest batch.
  int64_t staged_bytes() const;
  // Of Memory::row_gradients, by table; 0: the plan needs none.
  size_t row_gradient_bytes(size_t table) const;

  // Operations that a run computes, node by node.
  struct NodeCost {
    const Node* node = nullptr;
    OpFlops flops;
    bool runs_again = false;  // forward, in the backward pass
  };
  std::vector<NodeCost> Costs() const;
  // The tensors that forward puts into the arena: values, and workspaces by
  // node.
  std::vector<PlannedTensor> ArenaTensors() const;
  // The steps of a pass, forward and backward in the order in which they run,
  // that need a parameter's value: before `first` it may be on its way; after
  // `last` its gradient is final, too (Backward's `ready`).
  struct ParameterUse {
    int first = 0;
    int last = 0;
  };
  ParameterUse UseOf(int parameter) const {
    return {memory_.first_reads[parameter], memory_.ready_steps[parameter]};
  }
  const Loss& loss() const { return loss_; }
  // Of spec.gather_unit_bytes; else there is no unit.
  const GatherUnits& gather_units() const { return gather_units_; }

  // Memory for the runs that follow; arena, parameters, gradients and errors
  // are memory of the device. `arena` has arena_bytes() and is aligned, as
  // gradients are; the spans are by parameter and by table. Runs take the
  // plan's number of samples of `batch`, from `first_sample` on. Errors:
  // InvalidArgument: a feed of the wrong size, a table without its rows; the
  // device's.
  struct Memory {
    char* arena = nullptr;
    const Batch* batch = nullptr;
    int64_t first_sample = 0;
    absl::Span<float* const> parameters;
    // With gather_unit_bytes, in place of parameters: gather_units().pool_bytes
    // that are aligned, and who fills them.
    char* pool = nullptr;
    ParameterGatherer* gatherer = nullptr;
    int64_t first_unit = 0;  // the gatherer's number of the first one
    absl::Span<float* const> gradients;
    absl::Span<RowBatch* const> tables;
    // By table, row_gradient_bytes() each: what all parts of a batch add up in,
    // whichever their plans are. Where the device is the host, and in plans
    // that do not train, there is none.
    absl::Span<float* const> row_gradients = {};
    StepRecorder* recorder = nullptr;  // null: nothing is recorded
    // With folds_statistics; null: those of this batch alone.
    StatisticsExchange* statistics = nullptr;
    Stream* stream = nullptr;  // where the device runs it
    // Where it copies what the runs read from memory of the host; `stream` is
    // made to wait for it, and it for `stream`, by the caller.
    Stream* uploads = nullptr;
    uint64_t seed = 0;            // for what is random in this step
    DataError* errors = nullptr;  // in memory of the device, kNone
    // That gradients have on their way through backward; null: none.
    const GradientScale* scale = nullptr;
  };
  absl::Status Bind(const Memory& memory);

  // All addresses and choices of the latest Bind that work of this plan has for
  // arguments, where the device is not the host.
  absl::Span<const void* const> binding() const { return binding_; }

  // Of a parameter, since Bind: in Memory.gradients, or in the arena where it
  // is transient.
  float* gradient(int parameter) const { return gradients_[parameter]; }
  // Output of the loss's node, in memory of the device.
  const float* scores() const { return scores_; }
  // Puts the loss into the stream: the sum to `loss`, in memory of the device,
  // and its gradient to where Backward expects it, unless `for_backward` is
  // false or no parameter leads to the loss.
  void RunLoss(bool for_backward, double* loss);

  // Errors: a library's, naming the node.
  absl::Status Forward();
  // Calls ready(i) once per parameter, as soon as its gradient is final and it
  // is not read again in this run. `accumulate`: adds to the gradients of
  // parameters and rows that are there, of earlier parts; else overwrites them.
  // With Memory.scale all of them are scaled. In the last part of a batch the
  // rows' lose that here (arrays of the scale behind those of parameters); the
  // parameters' are the caller's, in `ready`. Errors: a library's, naming the
  // node; those of `ready`, with which it ends.
  absl::Status Backward(bool accumulate, bool is_last,
                        absl::FunctionRef<absl::Status(int)> ready);
  // Puts copies of the rows' gradients for the host into the stream, which
  // waits for Backward of the last part. On the host they are there.
  void CopyRowGradients(Stream& stream);

  // An operator that folds statistics over workers waits in the middle of its
  // work: it cannot be kept. While there is a function, Forward and Backward
  // call it in place of such an operator, and end with its error; RunApart then
  // does the operator's work. Null: none.
  struct Apart {
    size_t position = 0;
    bool is_backward = false;
    bool is_again = false;
    bool accumulate = false;
  };
  using OnApart = absl::FunctionRef<absl::Status(const Apart&)>;
  void UseApart(const OnApart* on_apart) { on_apart_ = on_apart; }
  absl::Status RunApart(const Apart& apart);

  // In words, what Forward's kernels have reported. Errors: InvalidArgument,
  // naming the node.
  absl::Status Explain(const DataError& error) const;

  // Runs Forward once more, and says which is the first input, parameter or
  // node output that holds NaN or infinity; empty if none does, or if
  // parameters are gathered, which are not there a second time.
  std::string FindNonFinite();

 private:
  // Why a node's Forward runs.
  enum class Pass { kForward, kSearch, kRecomputed };
  // Where the values of a node are when it runs.
  struct Arguments {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    void* workspace = nullptr;
    void* forward_scratch = nullptr;
  };
  // A node with its memory. Spans of the Op's arguments point into these.
  struct Call {
    const Node* node = nullptr;
    int node_index = 0;
    bool runs_forward = false;
    bool runs_backward = false;
    // By input: Backward adds to the gradient that is there. In parts of a
    // batch after the first that holds for the gradients of parameters, too.
    StepMemory::Flags accumulates;
    StepMemory::Flags accumulates_later;
    int table = -1;  // it is this lookup of this table, else -1
    size_t lookup = 0;
    Arguments forward;
    Arguments again;  // after the loss
    void* backward_scratch = nullptr;
    std::vector<const float*> output_gradients;
    std::vector<float*> input_gradients;
  };

  StepPlan(const Spec& spec, Loss loss)
      : spec_(spec), loss_(loss), inputs_(spec.device) {}
  // Gives tables the shape that the batch's rows have, and finds the lookups.
  void PlaceTables();
  void PlaceCopies();
  // Makes one node of those that the device computes together. Errors:
  // ResourceExhausted: the device has no memory to find out what its library
  // does.
  absl::Status Fuse();
  absl::Status MakeOps();
  // By ValueId: what is known on the host before training, else null.
  std::vector<const void*> Constants() const;
  // Of the node at a position in flow().nodes: of all that it stands for.
  OpFlops FlopsAt(int position) const;
  void PlaceMemory();
  void PlaceBuffers();
  absl::Status CheckFeeds(const Memory& memory) const;
  absl::Status CheckTables(const Memory& memory) const;
  void BindCall(const Memory& memory, size_t position);
  // `step`: that reads or writes it.
  void* Address(const Place& place, const Memory& memory, int step) const;
  void* BufferAddress(int buffer, const Memory& memory) const;
  float* GradientAddress(int parameter, const Memory& memory) const;
  // Numbers that one sample takes of a value with as many per sample.
  int64_t PerSample(ValueId value) const {
    return ElementCount(shapes_[value]) / spec_.batch_size;
  }
  // Brings what the runs read from memory of the host to the device.
  absl::Status StageInputs(const Memory& memory);
  absl::Status StageTable(const Memory& memory, size_t table, size_t* slot);
  void NoteBinding(const Memory& memory);
  absl::Status StageConstants();
  size_t BytesOf(ValueId value) const {
    return static_cast<size_t>(ElementCount(shapes_[value])) *
           DTypeBytes(graph().values[value].dtype);
  }
  void ClearRowGradients();
  void UnscaleRowGradients();
  void BindArguments(const Memory& memory, const Call& call,
                     absl::Span<const Place> values, int step,
                     Arguments* arguments);
  bool gathers() const { return spec_.gather_unit_bytes > 0; }
  void CutUnits();
  void BindUnits(const Memory& memory);
  // By which the gatherer knows it.
  int UnitNumber(size_t unit) const {
    return first_unit_ + static_cast<int>(unit);
  }
  // Before and after the operators of a step run: the unit that begins, or
  // ends, there. Errors: the gatherer's.
  absl::Status EnterStep(int step);
  void LeaveStep(int step);
  void NameMarks();
  // The work of an operator in a step.
  enum class Work { kForward, kRecomputed, kBackward };
  // Number in marks_ of the loss; operators have the later ones.
  static constexpr uint32_t kLossMark = 0;
  // Queues the mark of an operator's work before that work, where the device is
  // not the host.
  void Mark(size_t position, Work work);
  absl::Status RunForward(size_t position, Pass pass);
  absl::Status RunBackward(size_t position, bool accumulate);
  // It is called in place of the operator.
  bool IsApart(size_t position) const {
    return on_apart_ != nullptr && ops_[position]->traits().folds_statistics;
  }
  Op::Tensors TensorsOf(size_t position, const Arguments& arguments,
                        void* scratch) const;
  // Names the node, and the part where numbers of samples are counted in it.
  absl::Status AnnotateNode(const absl::Status& status, const Node& node) const;
  // Numbers of a value, in float32. Errors: the device's.
  absl::StatusOr<std::vector<float>> ReadNumbers(ValueId value,
                                                 const void* data) const;
  std::string DescribeIfNotFinite(ValueId value, const void* data) const;
  std::string DescribeRowNotFinite() const;

  // Before operators were fused, and after.
  const Graph& whole_graph() const {
    return spec_.overlay != nullptr ? spec_.overlay->graph
                                    : spec_.model->graph();
  }
  const Graph& graph() const {
    return fused_.has_value() ? fused_->graph : whole_graph();
  }
  const BackwardGraph& flow() const {
    return fused_.has_value() ? fused_->flow : *spec_.flow;
  }
  // By ValueId; empty: each is its own.
  absl::Span<const ValueId> sources() const {
    if (fused_.has_value()) return fused_->sources;
    if (spec_.overlay == nullptr) return {};
    return spec_.overlay->sources;
  }

  const Spec spec_;
  const Loss loss_;
  // By Graph::nodes index: the table and lookup of a node that is one.
  struct LookupOf {
    int table = -1;
    size_t lookup = 0;
  };

  std::optional<FusedGraph> fused_;  // null: nothing is
  std::vector<Dims> shapes_;         // by ValueId
  // By ValueId: what is known before training, else null.
  std::vector<std::shared_ptr<const ConstantTensor>> folded_;
  std::vector<LookupOf> lookups_;
  std::vector<ValueId> table_values_;     // by table
  std::vector<std::unique_ptr<Op>> ops_;  // by position in flow().nodes
  std::vector<OpFlops> flops_;            // likewise
  std::vector<Call> calls_;               // likewise
  StepMemory memory_;
  GatherUnits gather_units_;
  std::vector<int> backward_steps_;  // by position, with gather_unit_bytes
  // By arena buffer: in the gradients' memory, or from arena_begin_ on in the
  // arena.
  std::vector<int64_t> offsets_;
  int64_t arena_begin_ = 0;
  int64_t arena_bytes_ = 0;
  std::vector<int> ready_order_;                // parameters by ready step
  std::shared_ptr<const Stream::Marks> marks_;  // null: on the host
  StepInputs inputs_;
  // From a constant's address on the host to that on another device; from the
  // first Bind on.
  absl::flat_hash_map<const void*, const void*> constant_at_;
  // Since Bind, for kernels:
  struct TableAddresses {
    const float* rows = nullptr;
    float* gradients = nullptr;
    std::vector<const int32_t*> positions;  // by lookup, of the whole batch
  };
  std::vector<const void*> feeds_;      // by feed, of the first sample
  std::vector<TableAddresses> staged_;  // by table
  const float* labels_ = nullptr;       // of the first sample
  std::vector<const void*> values_;     // by ValueId
  std::vector<float*> gradients_;       // by parameter
  absl::Span<RowBatch* const> tables_;
  int64_t first_sample_ = 0;
  StepNumbers numbers_;                        // as they are copied from
  const StepNumbers* step_numbers_ = nullptr;  // in memory of the device
  int64_t batch_samples_ = 0;  // of the batch that this is a part of
  std::vector<const void*> binding_;
  const OnApart* on_apart_ = nullptr;
  StepRecorder* recorder_ = nullptr;
  StatisticsExchange* statistics_ = nullptr;
  Stream* stream_ = nullptr;
  DataError* errors_ = nullptr;
  const GradientScale* scale_ = nullptr;
  ParameterGatherer* gatherer_ = nullptr;
  int first_unit_ = 0;
  std::vector<std::vector<float*>> unit_values_;  // by unit, as its parameters
  size_t units_entered_ = 0;                      // of this run
  const float* scores_ = nullptr;
  float* loss_gradient_ = nullptr;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_STEP_PLAN_H_
