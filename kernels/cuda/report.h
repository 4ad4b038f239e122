#ifndef SYNCLINE_KERNELS_CUDA_REPORT_H_
#define SYNCLINE_KERNELS_CUDA_REPORT_H_

#include "kernels/cuda/language.h"
#include "kernels/device/data_error.h"

namespace syncline::cuda {

// An ErrorSlot as a kernel has it.
struct Reporter {
  Global<DataError> record;
  Global<int32_t> lock;
  int32_t node;

  // The first node that reports keeps the record, with its lowest position. A
  // thread that comes too late for it only reads: all elements may be wrong.
  SYNCLINE_DEVICE void Report(int32_t kind, int64_t position,
                              int64_t value) const {
    if (record == nullptr) return;
    // Once a record has a node it keeps it, and its position only falls. Node
    // and kind are the first word: who sees the node sees a position of its.
    AsOnlyThread(
        record, lock,
        [=, node = node](const DataError& kept) {
          return kept.node == DataError::kNone ||
                 (kept.node == node && kept.position > position);
        },
        [=, node = node](DataError& kept) {
          kept.node = node;
          kept.kind = kind;
          kept.position = position;
          kept.value = value;
        });
  }
};

inline Reporter OnDevice(const ErrorSlot& slot) {
  if (slot.record == nullptr) return {};
  return {OnDevice(slot.record), OnDevice(&slot.record->lock), slot.node};
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_REPORT_H_
