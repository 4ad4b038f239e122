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

  // The first node that reports keeps the record, with its lowest position.
  SYNCLINE_DEVICE void Report(int32_t kind, int64_t position,
                              int64_t value) const {
    if (record == nullptr) return;
    AsOnlyThread(record, lock, [=, node = node](DataError& kept) {
      const bool is_free = kept.node == DataError::kNone;
      if (!is_free && (kept.node != node || kept.position <= position)) return;
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
