#ifndef SYNCLINE_KERNELS_OPTIMIZER_FINITE_H_
#define SYNCLINE_KERNELS_OPTIMIZER_FINITE_H_

#include <cstddef>

namespace syncline {

// A job's policy for gradients with NaN or infinity: NonFinitePolicy in
// proto/job_spec.proto.
enum class OnNonFinite { kFailJob, kSkipStep, kDropBlock };

// True if none of the values is NaN or infinite; also for no values. Looks at
// all of them, without branches: as fast as they are read.
bool AllFinite(const float* values, size_t count);

// Index of the first that is NaN or infinite; `count` if there is none.
size_t FirstNonFinite(const float* values, size_t count);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_OPTIMIZER_FINITE_H_
