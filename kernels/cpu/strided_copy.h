#ifndef SYNCLINE_KERNELS_CPU_STRIDED_COPY_H_
#define SYNCLINE_KERNELS_CPU_STRIDED_COPY_H_

#include <cstddef>

#include "kernels/elementwise/strided.h"

namespace syncline {

// StridedCopyKernels::copy for kernels that are several passes: on memory that
// the calling thread may touch.
void CopyStrided(const Strided<1>& walk, size_t element_bytes, const void* x,
                 void* y);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CPU_STRIDED_COPY_H_
