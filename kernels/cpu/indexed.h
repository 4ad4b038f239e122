#ifndef SYNCLINE_KERNELS_CPU_INDEXED_H_
#define SYNCLINE_KERNELS_CPU_INDEXED_H_

#include <cstdint>

#include "kernels/device/indexed_kernels.h"

namespace syncline {

// IndexedKernels::add for kernels that are several passes: on memory that the
// calling thread may touch.
void AddRuns(const IndexedShape& s, const int64_t* begins, const float* from,
             float* to, void* scratch);
int64_t AddRunsScratchBytes(const IndexedShape& s);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CPU_INDEXED_H_
