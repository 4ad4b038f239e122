#ifndef SYNCLINE_KERNELS_CUDA_SPREAD_H_
#define SYNCLINE_KERNELS_CUDA_SPREAD_H_

#include "kernels/device/floats.h"
#include "kernels/elementwise/broadcast_shape.h"

namespace syncline {

class Stream;

namespace cuda {

// MatrixProductKernels::spread and spread_gradient.
void Spread(Stream& stream, const Broadcast& s, float scale, ConstFloats c,
            Floats y);
void SpreadGradient(Stream& stream, const Broadcast& s, float scale,
                    ConstFloats dy, bool accumulate, Floats dc);

}  // namespace cuda
}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CUDA_SPREAD_H_
