#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/strided.h"
#include "worker/ops/indexed.h"

namespace syncline {

// The last dimension of the indices is one place in the data's dimensions after
// the batch ones, which both have.
absl::StatusOr<std::unique_ptr<Op>> MakeGatherND(const OpSpec& spec) {
  const Dims& data = spec.input(0).dims;
  const Dims& indices = spec.input(1).dims;
  const int64_t batch = spec.node->Int("batch_dims", 0);
  const int64_t width = indices.empty() ? 0 : indices.back();
  bool fits = batch >= 0 && width > 0 &&
              batch < static_cast<int64_t>(indices.size()) &&
              batch + width <= static_cast<int64_t>(data.size());
  for (int64_t d = 0; fits && d < batch; ++d) fits = data[d] == indices[d];
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data ", DimsToString(data), ", indices ", DimsToString(indices),
        " and batch_dims ", batch, " do not fit"));
  }
  const absl::Span<const int64_t> all(data);
  const Dims strides = DenseStrides(data);
  const int64_t batches = ElementCount(all.first(batch));
  const int64_t runs = ElementCount(indices) / width;
  const int64_t per_batch = batches == 0 ? 0 : runs / batches;
  const int64_t batch_size = ElementCount(all.subspan(batch));
  return MakeIndexed(
      spec, {.runs = runs,
             .run_length = ElementCount(all.subspan(batch + width)),
             .begin = [=](const int64_t* index, int64_t i, int64_t* bad) {
               int64_t at = i / per_batch * batch_size;
               for (int64_t d = 0; d < width; ++d) {
                 *bad = i * width + d;
                 const int64_t n = data[batch + d];
                 const int64_t k =
                     index[*bad] < 0 ? index[*bad] + n : index[*bad];
                 if (k < 0 || k >= n) return int64_t{-1};
                 at += k * strides[batch + d];
               }
               return at;
             }});
}

}  // namespace syncline
