#include "kernels/elementwise/strided.h"

#include "common/base/check.h"

namespace syncline {

std::vector<int64_t> DenseStrides(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return strides;
}

std::vector<int64_t> BroadcastStrides(const std::vector<int64_t>& dims,
                                      const std::vector<int64_t>& out) {
  SYNCLINE_CHECK(dims.size() <= out.size());
  const std::vector<int64_t> dense = DenseStrides(dims);
  const size_t skipped = out.size() - dims.size();
  std::vector<int64_t> strides(out.size(), 0);
  for (size_t d = 0; d < dims.size(); ++d) {
    SYNCLINE_CHECK(dims[d] == 1 || dims[d] == out[skipped + d]);
    if (dims[d] != 1) strides[skipped + d] = dense[d];
  }
  return strides;
}

}  // namespace syncline
