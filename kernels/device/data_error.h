#ifndef SYNCLINE_KERNELS_DEVICE_DATA_ERROR_H_
#define SYNCLINE_KERNELS_DEVICE_DATA_ERROR_H_

#include <cstdint>

namespace syncline {

// Why a step's data cannot be computed with: an index, a label, a length or a
// position that is out of range. A kernel that meets one goes on with a value
// that does no harm; the step ends when the record is read, with the loss. So
// no kernel has to wait for the host.
//
// The record lies in memory of the device. The first node of a step that has
// something to report keeps it, with its lowest position.
struct DataError {
  static constexpr int32_t kNone = -1;

  int32_t node = kNone;  // that reported
  // The kind of error, as the node's operator numbers it (Op::Explain in
  // worker/ops/op.h says it in words).
  int32_t kind = 0;
  int64_t position = 0;  // of the element
  int64_t value = 0;     // that it has
  int32_t lock = 0;      // of threads that report at once
};

// Where the kernels of one node report. An argument of those that may; a null
// record takes nothing.
struct ErrorSlot {
  DataError* record = nullptr;
  int32_t node = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_DATA_ERROR_H_
