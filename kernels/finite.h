#ifndef SYNCLINE_KERNELS_FINITE_H_
#define SYNCLINE_KERNELS_FINITE_H_

#include <cstddef>

namespace syncline {

// What a job does about gradients with NaN or infinity: NonFinitePolicy in
// proto/job_spec.proto.
enum class OnNonFinite { kFailJob, kSkipStep, kDropBlock };

// Whether none of the values is NaN or infinite; of none: true. Looks at all of
// them, without branches: as fast as they are read.
bool AllFinite(const float* values, size_t count);

// Index of the first that is NaN or infinite; `count` if there is none.
size_t FirstNonFinite(const float* values, size_t count);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_FINITE_H_
