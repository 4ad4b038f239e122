#include "worker/compute/step_memory.h"

#include <algorithm>
#include <limits>

#include "common/model/graph/graph.h"
#include "common/model/graph/operator_list.h"
#include "worker/compute/rematerialization.h"

namespace syncline::worker {
namespace {

using Kind = Place::Kind;

class Planner {
 public:
  explicit Planner(const StepMemorySpec& spec)
      : spec_(spec),
        graph_(*spec.graph),
        rematerialization_(PlanRematerialization(spec)),
        positions_(graph_.nodes.size(), -1),
        last_read_(graph_.values.size(), -1),
        last_read_again_(graph_.values.size(), -1) {
    for (int p = 0; p < positions(); ++p) positions_[spec.flow->nodes[p]] = p;
    memory_.values.resize(graph_.values.size());
    memory_.workspaces.resize(positions());
    memory_.forward_scratch.resize(positions());
    memory_.runs_forward.assign(positions(), true);
    memory_.backward.resize(positions());
    memory_.again_workspaces.resize(positions());
    memory_.again_scratch.resize(positions());
    memory_.ready_steps.assign(spec.parameters.size(), spec.loss_step());
    memory_.gradient_buffers.assign(spec.parameters.size(), -1);
    gradients_.resize(graph_.values.size());
    gradient_steps_.assign(spec.parameters.size(), -1);
  }

  StepMemory Plan() {
    OrderSteps();
    FindLastReads();
    PlaceGivenValues();
    for (int p = 0; p < positions(); ++p) PlaceForward(p);
    FindFirstReads();
    memory_.again_values = memory_.values;
    memory_.again_workspaces = memory_.workspaces;
    if (spec_.flow->loss_has_gradient) {
      memory_.loss_gradient = FirstGradient(spec_.loss_output, loss_step());
    }
    for (const StepMemory::Step& step : memory_.after_loss) {
      if (step.again) {
        PlaceAgain(step.position);
      } else if (spec_.flow->RunsBackward(step.position)) {
        PlaceBackward(step.position);
      }
    }
    ReserveGradients();
    ListParameterReads();
    return std::move(memory_);
  }

 private:
  int positions() const { return spec_.loss_step(); }
  int loss_step() const { return spec_.loss_step(); }
  const Node& node(int p) const { return graph_.nodes[spec_.flow->nodes[p]]; }
  const Op& op(int p) const { return *spec_.ops[p]; }

  int64_t Bytes(ValueId v) const {
    return ElementCount(spec_.shapes[v]) * DTypeBytes(graph_.values[v].dtype);
  }

  void OrderSteps() {
    backward_step_.resize(positions());
    again_step_.resize(positions(), -1);
    std::vector<StepMemory::Step>& steps = memory_.after_loss;
    const auto next = [&] {
      return loss_step() + 1 + static_cast<int>(steps.size());
    };
    int end = positions();
    for (size_t s = rematerialization_.segments.size(); s-- > 0;) {
      const int begin = rematerialization_.segments[s];
      for (int p = begin; p < end; ++p) {
        if (!rematerialization_.runs_again[p]) continue;
        again_step_[p] = next();
        steps.push_back({p, /*again=*/true});
      }
      for (int p = end - 1; p >= begin; --p) {
        backward_step_[p] = next();
        steps.push_back({p, /*again=*/false});
      }
      end = begin;
    }
  }

  void ReadAt(ValueId v, int step) {
    if (v != kNoValue) last_read_[v] = std::max(last_read_[v], step);
  }

  // After the loss.
  void ReadAgainAt(ValueId v, int step) {
    if (v == kNoValue) return;
    std::vector<int>& last =
        rematerialization_.kept[v] ? last_read_ : last_read_again_;
    last[v] = std::max(last[v], step);
  }

  void FindLastReads() {
    for (int p = 0; p < positions(); ++p) {
      for (ValueId v : node(p).inputs) ReadAt(v, p);
      if (rematerialization_.runs_again[p]) FindReadsAgain(p);
      if (spec_.flow->RunsBackward(p)) FindBackwardReads(p);
    }
    ReadAt(spec_.loss_output, loss_step());
  }

  // Running a node again writes those of its outputs that are kept once more,
  // with the same bits.
  void FindReadsAgain(int p) {
    for (ValueId v : node(p).inputs) ReadAgainAt(v, again_step_[p]);
    for (ValueId v : node(p).outputs) {
      if (v != kNoValue && rematerialization_.kept[v])
        ReadAt(v, again_step_[p]);
    }
  }

  void FindBackwardReads(int p) {
    const Op::Traits& traits = op(p).traits();
    for (size_t i = 0; i < node(p).inputs.size(); ++i) {
      if (HasPosition(traits.backward_inputs, i)) {
        ReadAgainAt(node(p).inputs[i], backward_step_[p]);
      }
    }
    for (size_t i = 0; i < node(p).outputs.size(); ++i) {
      if (HasPosition(traits.backward_outputs, i)) {
        ReadAgainAt(node(p).outputs[i], backward_step_[p]);
      }
    }
  }

  void PlaceGivenValues() {
    const Graph& model = spec_.model != nullptr ? *spec_.model : graph_;
    for (const Initializer& initializer : model.initializers) {
      memory_.values[initializer.value] = {Kind::kConstant, -1,
                                           initializer.tensor.bytes.data()};
    }
    for (size_t v = 0; v < spec_.folded.size(); ++v) {
      if (spec_.folded[v] == nullptr) continue;
      memory_.values[v] = {Kind::kConstant, -1, spec_.folded[v]->bytes.data()};
    }
    for (size_t i = 0; i < spec_.feeds.size(); ++i) {
      if (spec_.feeds[i] == kNoValue) continue;
      memory_.values[spec_.feeds[i]] = {Kind::kFeed, static_cast<int>(i)};
    }
    for (size_t i = 0; i < spec_.tables.size(); ++i) {
      memory_.values[spec_.tables[i]] = {Kind::kRows, static_cast<int>(i)};
    }
    for (size_t i = 0; i < spec_.parameters.size(); ++i) {
      const ValueId v = spec_.parameters[i];
      memory_.values[v] = {Kind::kParameter, static_cast<int>(i)};
      ParameterBusyUntil(static_cast<int>(i), last_read_[v]);
    }
  }

  // A view shares its input's memory and runs no kernel.
  void FindFirstReads() {
    memory_.first_reads.assign(spec_.parameters.size(), loss_step());
    for (int p = positions(); p-- > 0;) {
      if (!memory_.runs_forward[p]) continue;
      for (const ValueId v : node(p).inputs) {
        if (v == kNoValue || memory_.values[v].kind != Kind::kParameter)
          continue;
        memory_.first_reads[memory_.values[v].index] = p;
      }
    }
  }

  // Adds what `v` is, or is a view of, to the reads of a step.
  void AddRead(absl::Span<const Place> values, ValueId v, int step) {
    if (v == kNoValue || values[v].kind != Kind::kParameter) return;
    std::vector<int>& reads = memory_.parameter_reads[step];
    if (std::find(reads.begin(), reads.end(), values[v].index) == reads.end()) {
      reads.push_back(values[v].index);
    }
  }

  void ListParameterReads() {
    memory_.parameter_reads.resize(static_cast<size_t>(loss_step()) + 1 +
                                   memory_.after_loss.size());
    const auto add_inputs = [&](absl::Span<const Place> values, int p,
                                int step) {
      if (!memory_.runs_forward[p]) return;
      for (const ValueId v : node(p).inputs) AddRead(values, v, step);
    };
    for (int p = 0; p < positions(); ++p) add_inputs(memory_.values, p, p);
    AddRead(memory_.values, spec_.loss_output, loss_step());
    int number = loss_step();
    for (const StepMemory::Step& step : memory_.after_loss) {
      ++number;
      const int p = step.position;
      if (step.again) {
        add_inputs(memory_.again_values, p, number);
      } else if (memory_.backward[p].runs) {
        AddBackwardReads(p, number);
      }
    }
  }

  void AddBackwardReads(int p, int step) {
    const Op::Traits& traits = op(p).traits();
    for (size_t i = 0; i < node(p).inputs.size(); ++i) {
      if (!HasPosition(traits.backward_inputs, i)) continue;
      AddRead(memory_.again_values, node(p).inputs[i], step);
    }
    for (size_t i = 0; i < node(p).outputs.size(); ++i) {
      if (!HasPosition(traits.backward_outputs, i)) continue;
      AddRead(memory_.again_values, node(p).outputs[i], step);
    }
  }

  void ParameterBusyUntil(int parameter, int step) {
    int& ready = memory_.ready_steps[parameter];
    ready = std::max(ready, step);
  }

  Place NewBuffer(int64_t bytes, int first, int last) {
    memory_.buffers.push_back({bytes, first, std::max(first, last)});
    return {Kind::kArena, static_cast<int>(memory_.buffers.size()) - 1};
  }

  // `place` is also read, under another name, until step `last`.
  void KeepUntil(const Place& place, int last) {
    if (place.kind == Kind::kArena) {
      int32_t& until = memory_.buffers[place.index].last_use;
      until = std::max(until, last);
    } else if (place.kind == Kind::kParameter) {
      ParameterBusyUntil(place.index, last);
    }
  }

  // An arena buffer of this size that nothing reads after `step`.
  bool IsFreeAfter(const Place& place, int64_t bytes, int step) const {
    return place.kind == Kind::kArena &&
           memory_.buffers[place.index].last_use <= step &&
           memory_.buffers[place.index].size_bytes == bytes;
  }

  // One of the two times that nodes run forward.
  struct Pass {
    std::vector<Place>* values;         // by ValueId
    const std::vector<int>* last_read;  // likewise
  };

  void PlaceForward(int p) {
    const Pass pass = {&memory_.values, &last_read_};
    const std::vector<ValueId>& outputs = node(p).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] != kNoValue) PlaceOutput(p, i, p, pass);
    }
    const bool kept =
        spec_.flow->RunsBackward(p) && !rematerialization_.runs_again[p];
    memory_.workspaces[p] = PlaceWorkspace(p, p, kept ? backward_step_[p] : p);
    memory_.forward_scratch[p] = PlaceScratch(p, p);
  }

  void PlaceAgain(int p) {
    const int step = again_step_[p];
    const Pass pass = {&memory_.again_values, &last_read_again_};
    const std::vector<ValueId>& outputs = node(p).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == kNoValue || rematerialization_.kept[outputs[i]])
        continue;
      (*pass.values)[outputs[i]] = Place();
      PlaceOutput(p, i, step, pass);
    }
    const bool read = spec_.flow->RunsBackward(p);
    memory_.again_workspaces[p] =
        PlaceWorkspace(p, step, read ? backward_step_[p] : step);
    memory_.again_scratch[p] = PlaceScratch(p, step);
  }

  Place PlaceWorkspace(int p, int first, int last) {
    const int64_t bytes = op(p).traits().workspace_bytes;
    return bytes > 0 ? NewBuffer(bytes, first, last) : Place();
  }

  Place PlaceScratch(int p, int step) {
    const int64_t bytes = op(p).traits().forward_scratch_bytes;
    return bytes > 0 ? NewBuffer(bytes, step, step) : Place();
  }

  void PlaceOutput(int p, size_t output, int step, const Pass& pass) {
    const ValueId y = node(p).outputs[output];
    Place& place = (*pass.values)[y];
    const int last_read = (*pass.last_read)[y];
    if (output == 0) {
      place = PlaceFirstOutput(p, step, last_read, *pass.values);
    } else if (last_read >= 0) {
      place = NewBuffer(Bytes(y), step, last_read);
    }
  }

  Place PlaceFirstOutput(int p, int step, int last_read,
                         absl::Span<const Place> values) {
    const Op::Traits& traits = op(p).traits();
    const ValueId y = node(p).outputs[0];
    if (traits.is_view) {
      const Place shared = values[node(p).inputs[0]];
      memory_.runs_forward[p] = false;
      KeepUntil(shared, last_read);
      return shared;
    }
    if (traits.in_place_input >= 0) {
      const Place input = values[node(p).inputs[traits.in_place_input]];
      if (IsFreeAfter(input, Bytes(y), step)) {
        KeepUntil(input, last_read);
        return input;
      }
    }
    return NewBuffer(Bytes(y), step, last_read);
  }

  // The value that the gradient of `v` belongs to.
  ValueId SourceOf(ValueId v) const {
    return spec_.sources.empty() ? v : spec_.sources[v];
  }

  // Memory for the gradient of `v`, a source, which is first written in `step`
  // and read by its producer's backward step.
  Place FirstGradient(ValueId v, int step) {
    const Place& value = memory_.values[v];
    if (graph_.values[v].producer < 0 && value.kind == Kind::kParameter) {
      gradients_[v] = {Kind::kGradient, value.index};
      gradient_steps_[value.index] = step;
    } else if (value.kind == Kind::kRows) {
      gradients_[v] = {Kind::kRowGradients, value.index};
    } else {
      gradients_[v] = NewBuffer(Bytes(v), step, ProducerBackwardStep(v));
    }
    return gradients_[v];
  }

  void ReserveGradients() {
    for (size_t i = 0; i < spec_.gradients.size(); ++i) {
      const GradientMemory& gradient = spec_.gradients[i];
      if (gradient.is_lent && gradient_steps_[i] < 0) continue;
      if (gradient.is_transient) {
        memory_.gradient_buffers[i] =
            NewBuffer(gradient.bytes, gradient_steps_[i],
                      memory_.ready_steps[i])
                .index;
        continue;
      }
      memory_.buffers.push_back(
          {.size_bytes = gradient.bytes,
           .first_use = gradient.is_lent ? gradient_steps_[i] : 0,
           .last_use = std::numeric_limits<int32_t>::max(),
           .offset = gradient.offset});
    }
  }

  int ProducerBackwardStep(ValueId v) const {
    return backward_step_[positions_[graph_.values[v].producer]];
  }

  void PlaceBackward(int p) {
    const std::vector<ValueId>& inputs = node(p).inputs;
    const std::vector<bool>& wants = spec_.flow->wants_gradient[p];
    StepMemory::Backward& backward = memory_.backward[p];
    backward.runs = true;
    for (ValueId y : node(p).outputs) {
      backward.output_gradients.push_back(y == kNoValue ? Place()
                                                        : gradients_[y]);
    }
    backward.input_gradients.resize(inputs.size());
    backward.accumulates.assign(inputs.size(), false);
    const int64_t scratch = op(p).traits().backward_scratch_bytes;
    if (scratch > 0) {
      const int step = backward_step_[p];
      backward.scratch = NewBuffer(scratch, step, step);
    }
    // From the last input to the first, as Backward writes them.
    for (size_t i = inputs.size(); i-- > 0;) {
      if (!wants[i]) continue;
      const ValueId v = SourceOf(inputs[i]);
      const bool again = gradients_[v].kind != Kind::kNone;
      if (again) {
        backward.accumulates[i] = true;
      } else if (i != 0 || !TakeOverGradient(p)) {
        FirstGradient(v, backward_step_[p]);
      }
      backward.input_gradients[i] = gradients_[v];
      if (gradients_[v].kind == Kind::kRowGradients) {
        backward.accumulates[i] = true;
      }
      if (gradients_[v].kind == Kind::kGradient) {
        ParameterBusyUntil(gradients_[v].index, backward_step_[p]);
      }
    }
    if (op(p).traits().is_view &&
        backward.input_gradients[0] == backward.output_gradients[0]) {
      backward.runs = false;
    }
  }

  // Lets the gradient of input 0 lie over that of output 0, if it may.
  bool TakeOverGradient(int p) {
    if (!op(p).traits().gradient_in_place) return false;
    const ValueId x = SourceOf(node(p).inputs[0]);
    const Place& dy = gradients_[node(p).outputs[0]];
    const int step = backward_step_[p];
    if (graph_.values[x].producer < 0 || !IsFreeAfter(dy, Bytes(x), step)) {
      return false;
    }
    gradients_[x] = dy;
    KeepUntil(dy, ProducerBackwardStep(x));
    return true;
  }

  const StepMemorySpec& spec_;
  const Graph& graph_;
  const Rematerialization rematerialization_;
  std::vector<int> positions_;        // by node index
  std::vector<int> backward_step_;    // by position
  std::vector<int> again_step_;       // by position; -1: it runs once
  std::vector<int> last_read_;        // by ValueId; -1: never
  std::vector<int> last_read_again_;  // likewise, of a second copy
  std::vector<Place> gradients_;      // by ValueId
  std::vector<int> gradient_steps_;   // by parameter: its first write; -1: none
  StepMemory memory_;
};

}  // namespace

StepMemory PlanStepMemory(const StepMemorySpec& spec) {
  return Planner(spec).Plan();
}

}  // namespace syncline::worker
