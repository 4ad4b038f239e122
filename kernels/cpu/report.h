#ifndef SYNCLINE_KERNELS_CPU_REPORT_H_
#define SYNCLINE_KERNELS_CPU_REPORT_H_

#include <cstdint>

#include "kernels/device/data_error.h"

namespace syncline {

// Records what is wrong, unless an earlier node, or the same one at a lower
// position, has reported. Thread-safe.
void Report(const ErrorSlot& errors, int32_t kind, int64_t position,
            int64_t value);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CPU_REPORT_H_
