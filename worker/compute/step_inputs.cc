#include "worker/compute/step_inputs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/graph/graph.h"

namespace syncline::worker {

absl::StatusOr<const void*> StepInputs::Constant(const void* host,
                                                 size_t bytes) {
  if (device_->is_host()) return host;
  const auto it = constants_.find(host);
  if (it != constants_.end()) return it->second.data();
  SYNCLINE_ASSIGN_OR_RETURN(DeviceMemory copy, Upload(*device_, host, bytes));
  const void* const data = copy.data();
  constants_.emplace(host, std::move(copy));
  return data;
}

absl::StatusOr<const void*> StepInputs::Copy(Stream& stream, size_t slot,
                                             const void* host, size_t bytes,
                                             size_t capacity) {
  if (device_->is_host()) return host;
  if (slot >= slots_.size()) slots_.resize(slot + 1);
  DeviceMemory& memory = slots_[slot];
  const size_t room = std::max(bytes, capacity);
  if (memory.data() == nullptr || memory.bytes() < room) {
    SYNCLINE_ASSIGN_OR_RETURN(memory, device_->Allocate(room));
  }
  stream.CopyToDevice(memory.data(), host, bytes);
  return memory.data();
}

absl::Status CheckGiven(const Graph& graph, const TrainingGraph& training,
                        const BackwardGraph& flow) {
  std::vector<bool> given(graph.values.size(), false);
  for (ValueId v : training.feeds) {
    if (v == kNoValue) continue;
    given[v] = true;
    const DType dtype = graph.values[v].dtype;
    if (dtype != DType::kFloat32 && dtype != DType::kInt64) {
      return absl::InvalidArgumentError(absl::StrCat(
          "graph input \"", graph.values[v].name, "\" is ", DTypeName(dtype),
          "; only float32 and int64 inputs are fed"));
    }
  }
  for (const auto& p : training.parameters) given[p.value] = true;
  for (const Initializer& i : graph.initializers) {
    if (i.origin != Initializer::Origin::kDeclared) given[i.value] = true;
  }
  for (const auto& table : training.tables) given[table.value] = true;
  for (int n : flow.nodes) {
    for (ValueId v : graph.nodes[n].inputs) {
      if (v == kNoValue || graph.values[v].producer >= 0 || given[v]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", graph.values[v].name, "\" has no value: nothing feeds it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace syncline::worker
