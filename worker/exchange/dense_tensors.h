#ifndef SYNCLINE_WORKER_EXCHANGE_DENSE_TENSORS_H_
#define SYNCLINE_WORKER_EXCHANGE_DENSE_TENSORS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/system/shared_region.h"

namespace syncline::worker {

// Where a rank has the dense tensors that an exchange works on, each list by
// tensor, in the order of the job's parameters.
struct DenseTensors {
  std::vector<absl::Span<float>> values;
  std::vector<absl::Span<const float>> gradients;
  std::vector<std::string> names;  // for messages; empty: by index
  // True for a running mean, which is averaged and not trained: it is no part
  // of a gradient's norm, unless it is not finite. Empty: no tensor is one.
  std::vector<bool> running_means;
  // When a step first reads each tensor, as a position in that order: where
  // bytes have to wait, those that are needed first go first. Empty: in the
  // order of the tensors.
  std::vector<uint32_t> first_use;
  // Memory that other processes of this host can map, in which all gradients
  // lie; null: they lie in memory of this process alone.
  std::shared_ptr<SharedRegion> gradient_region;
  // Keeps the memory above alive. Whatever still reads it after a call was
  // cancelled shares this.
  std::shared_ptr<const void> owner;
  // In place of `gradients`, which is empty: where a gradient is, within
  // OnGradientReady of its tensor, and there alone. Null: it stays.
  std::function<absl::Span<const float>(uint32_t tensor)> gradient_of = nullptr;
  // Of steps that gather values for each use: the tensors of each unit, in
  // order. `values` are then for use between steps alone, and release_values
  // gives their memory back to the system. Empty: steps read `values`.
  std::vector<std::vector<int>> gather_units = {};
  std::function<void()> release_values = nullptr;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXCHANGE_DENSE_TENSORS_H_
