#ifndef SYNCLINE_KERNELS_POOLING_H_
#define SYNCLINE_KERNELS_POOLING_H_

// Pooling over windows of planes, and its gradients. float32, dense row-major:
// x is [planes, in...], y is [planes, out...]; no overlap. Gradients overwrite
// dx, or add to it with `accumulate`. Thread-compatible.

#include <cstdint>
#include <vector>

#include "kernels/window.h"

namespace syncline {

// y = the largest element of each window, padding aside; the first of several.
// NaN is larger than anything. A window of nothing but padding gives -infinity.
//   indices  [planes, out...]  where in its plane each one is, -1 for nothing;
//                              null: not wanted
void MaxPool(int64_t planes, const Window& window, const float* x, float* y,
             int32_t* indices);
// dx gets each element of dy where its maximum was.
void MaxPoolGradient(int64_t planes, const Window& window,
                     const int32_t* indices, const float* dy, bool accumulate,
                     float* dx);

// The weight of an element of each window in its mean, [out...]: one over the
// number of elements inside the plane, or with `include_pad` over those of its
// padding too, as far as pad_begin and pad_end reach.
std::vector<float> AverageWeights(const Window& window, bool include_pad);
// y = the sum of each window's elements inside the plane, times its weight.
void AveragePool(int64_t planes, const Window& window, const float* weights,
                 const float* x, float* y);
void AveragePoolGradient(int64_t planes, const Window& window,
                         const float* weights, const float* dy, bool accumulate,
                         float* dx);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_POOLING_H_
