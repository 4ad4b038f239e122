// How a plan brings what its runs read from memory of the host to the device,
// and gradients of rows back. On a device that is the host nothing is copied.

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "common/base/status_macros.h"
#include "worker/compute/step_plan.h"

namespace syncline::worker {
namespace {

// Numbers that a table's batch has in its rows, and in their gradients.
size_t CountOfRows(const RowBatch& table) {
  return (1 + table.keys().size()) * static_cast<size_t>(table.dim());
}

size_t BytesOfRows(const RowBatch& table) {
  return CountOfRows(table) * sizeof(float);
}

}  // namespace

int64_t StepPlan::staged_bytes() const {
  if (spec_.device->is_host()) return 0;
  int64_t bytes = sizeof(StepNumbers) +
                  loss_.rows() * loss_.label_width() * int64_t{sizeof(float)};
  for (const ValueId feed : spec_.feeds) {
    if (feed != kNoValue) bytes += static_cast<int64_t>(BytesOf(feed));
  }
  for (const ValueId table : table_values_) {
    const int64_t positions = shapes_[table][0] - 1;
    bytes += static_cast<int64_t>(BytesOf(table)) +
             positions * int64_t{sizeof(int32_t)};
  }
  absl::flat_hash_set<const void*> constants;
  for (const auto* places : {&memory_.values, &memory_.again_values}) {
    for (size_t v = 0; v < places->size(); ++v) {
      const Place& place = (*places)[v];
      if (place.kind != Place::Kind::kConstant) continue;
      if (!constants.insert(place.constant).second) continue;
      bytes += static_cast<int64_t>(BytesOf(static_cast<ValueId>(v)));
    }
  }
  return bytes;
}

size_t StepPlan::row_gradient_bytes(size_t table) const {
  const bool has_any = spec_.training && !spec_.device->is_host();
  return has_any ? BytesOf(table_values_[table]) : 0;
}

absl::Status StepPlan::StageConstants() {
  if (spec_.device->is_host() || !constant_at_.empty()) {
    return absl::OkStatus();
  }
  for (const auto* places : {&memory_.values, &memory_.again_values}) {
    for (size_t v = 0; v < places->size(); ++v) {
      const Place& place = (*places)[v];
      if (place.kind != Place::Kind::kConstant) continue;
      SYNCLINE_ASSIGN_OR_RETURN(
          constant_at_[place.constant],
          inputs_.Constant(place.constant, BytesOf(static_cast<ValueId>(v))));
    }
  }
  return absl::OkStatus();
}

// Slots of inputs_: the step's numbers, the labels, the feeds, and then of each
// table its rows and the positions of its lookups.
absl::Status StepPlan::StageInputs(const Memory& memory) {
  SYNCLINE_RETURN_IF_ERROR(StageConstants());
  const Batch& batch = *memory.batch;
  Stream& stream = *memory.uploads;
  const auto stage = [&](size_t slot, const auto& values, int64_t first,
                         int64_t count) -> absl::StatusOr<const void*> {
    const auto* const from = values.data() + first;
    return inputs_.Copy(stream, slot, from, count * sizeof(*from));
  };
  size_t slot = 0;
  numbers_ = {.seed = memory.seed,
              .first_sample = batch.first_in_step + memory.first_sample};
  SYNCLINE_ASSIGN_OR_RETURN(
      const void* const numbers,
      inputs_.Copy(stream, slot++, &numbers_, sizeof(numbers_)));
  step_numbers_ = static_cast<const StepNumbers*>(numbers);
  SYNCLINE_ASSIGN_OR_RETURN(
      const void* const labels,
      stage(slot++, batch.labels, memory.first_sample * batch.label_width,
            spec_.batch_size * batch.label_width));
  labels_ = static_cast<const float*>(labels);
  feeds_.assign(spec_.feeds.size(), nullptr);
  for (size_t f = 0; f < spec_.feeds.size(); ++f, ++slot) {
    const ValueId v = spec_.feeds[f];
    if (v == kNoValue) continue;
    const int64_t first = PerSample(v) * memory.first_sample;
    const int64_t count = ElementCount(shapes_[v]);
    SYNCLINE_ASSIGN_OR_RETURN(
        feeds_[f], graph().values[v].dtype == DType::kInt64
                       ? stage(slot, batch.int_feeds[f], first, count)
                       : stage(slot, batch.feeds[f], first, count));
  }
  staged_.resize(table_values_.size());
  for (size_t t = 0; t < staged_.size(); ++t) {
    SYNCLINE_RETURN_IF_ERROR(StageTable(memory, t, &slot));
  }
  return absl::OkStatus();
}

absl::Status StepPlan::StageTable(const Memory& memory, size_t t,
                                  size_t* slot) {
  RowBatch& table = *memory.tables[t];
  const size_t bytes = BytesOfRows(table);
  // Batches have different numbers of rows, at the same address.
  const size_t capacity = std::max(bytes, BytesOf(table_values_[t]));
  Stream& stream = *memory.uploads;
  SYNCLINE_ASSIGN_OR_RETURN(
      const void* const rows,
      inputs_.Copy(stream, (*slot)++, table.rows(), bytes, capacity));
  staged_[t].rows = static_cast<const float*>(rows);
  if (spec_.device->is_host()) {
    staged_[t].gradients = table.row_gradients();
  } else {
    staged_[t].gradients = spec_.training ? memory.row_gradients[t] : nullptr;
  }
  staged_[t].positions.resize(spec_.tables[t].lookups.size());
  for (size_t l = 0; l < staged_[t].positions.size(); ++l) {
    const absl::Span<const int32_t> positions = table.positions(l);
    const Node& node = graph().nodes[spec_.tables[t].lookups[l].node];
    const auto most =
        static_cast<size_t>(PerSample(node.inputs[1]) * spec_.table_samples);
    SYNCLINE_ASSIGN_OR_RETURN(const void* const staged,
                              inputs_.Copy(stream, (*slot)++, positions.data(),
                                           positions.size() * sizeof(int32_t),
                                           most * sizeof(int32_t)));
    staged_[t].positions[l] = static_cast<const int32_t*>(staged);
  }
  return absl::OkStatus();
}

void StepPlan::NoteBinding(const Memory& memory) {
  binding_.assign({memory.arena, memory.stream, memory.errors, memory.scale,
                   memory.statistics, labels_, step_numbers_});
  binding_.insert(binding_.end(), feeds_.begin(), feeds_.end());
  binding_.insert(binding_.end(), memory.parameters.begin(),
                  memory.parameters.end());
  binding_.insert(binding_.end(), memory.gradients.begin(),
                  memory.gradients.end());
  for (size_t t = 0; t < staged_.size(); ++t) {
    binding_.push_back(staged_[t].rows);
    binding_.push_back(staged_[t].gradients);
    // A part reads the batch's positions from its first sample on.
    for (size_t l = 0; l < staged_[t].positions.size(); ++l) {
      const Node& node = graph().nodes[spec_.tables[t].lookups[l].node];
      binding_.push_back(staged_[t].positions[l] +
                         PerSample(node.inputs[1]) * memory.first_sample);
    }
  }
}

// On a device all of the memory, however many rows this batch has: what is
// queued is then the same for all batches.
void StepPlan::ClearRowGradients() {
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (spec_.device->is_host()) {
      tables_[t]->ClearGradients();
    } else {
      stream_->Clear(staged_[t].gradients, BytesOf(table_values_[t]));
    }
  }
}

void StepPlan::UnscaleRowGradients() {
  for (size_t t = 0; t < tables_.size(); ++t) {
    const int64_t count = spec_.device->is_host()
                              ? static_cast<int64_t>(CountOfRows(*tables_[t]))
                              : ElementCount(shapes_[table_values_[t]]);
    scale_->Unscale(*stream_, count, staged_[t].gradients,
                    static_cast<int32_t>(spec_.parameters.size() + t));
  }
}

void StepPlan::CopyRowGradients(Stream& stream) {
  if (spec_.device->is_host()) return;
  for (size_t t = 0; t < tables_.size(); ++t) {
    stream.CopyToHost(tables_[t]->row_gradients(), staged_[t].gradients,
                      BytesOfRows(*tables_[t]));
  }
}

}  // namespace syncline::worker
