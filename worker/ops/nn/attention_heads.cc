#include "worker/ops/nn/attention_heads.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/elementwise/loop.h"

namespace syncline::worker {

Attention::Layout AttentionHeads::LayoutWith(bool rows_first) const {
  const int64_t sample = heads * rows * width;
  if (rows_first) return {sample, width, heads * width};
  return {sample, rows * width, width};
}

absl::StatusOr<AttentionHeads> AttentionHeadsOf(const Dims& dims, int64_t heads,
                                                bool rows_first) {
  AttentionHeads h;
  if (dims.size() == 4) {
    h = {dims[0], dims[1], dims[2], dims[3], {}};
    if (rows_first) std::swap(h.heads, h.rows);
    h.layout = h.LayoutWith(rows_first);
    return h;
  }
  if (dims.size() != 3 || heads <= 0 || dims[2] % heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(DimsToString(dims),
                     " is not [batch, heads, rows, width], nor [batch, "
                     "rows, heads * width] with ",
                     heads, " heads"));
  }
  h = {dims[0], heads, dims[1], dims[2] / heads, {}};
  h.layout = h.LayoutWith(/*rows_first=*/true);
  return h;
}

int64_t JoinedHeads::count() const {
  return head_count() * rows() * incoming_.width;
}

Attention::Layout JoinedHeads::layout() const {
  const int64_t head = rows() * incoming_.width;
  return {incoming_.heads * head, head, incoming_.width};
}

int64_t JoinedHeads::IncomingAt(int64_t head, int64_t row) const {
  return head / incoming_.heads * incoming_.layout.batch +
         head % incoming_.heads * incoming_.layout.head +
         row * incoming_.layout.row;
}

int64_t JoinedHeads::JoinedAt(int64_t head, int64_t row) const {
  return (head * rows() + row) * incoming_.width;
}

void JoinedHeads::Join(const float* past, const float* incoming,
                       float* joined) const {
  for (int64_t h = 0; h < head_count(); ++h) {
    std::copy_n(past + h * past_count(), past_count(), joined + JoinedAt(h, 0));
    for (int64_t row = 0; row < incoming_.rows; ++row) {
      std::copy_n(incoming + IncomingAt(h, row), incoming_.width,
                  joined + JoinedAt(h, past_ + row));
    }
  }
}

void JoinedHeads::AddPastGradient(const float* djoined, bool accumulate,
                                  float* dpast) const {
  for (int64_t h = 0; h < head_count() && dpast != nullptr; ++h) {
    const float* const d = djoined + JoinedAt(h, 0);
    Emit(past_count(), accumulate, dpast + h * past_count(),
         [=](int64_t i) { return d[i]; });
  }
}

void JoinedHeads::AddIncomingGradient(const float* djoined, bool accumulate,
                                      float* dincoming) const {
  for (int64_t h = 0; h < head_count() && dincoming != nullptr; ++h) {
    for (int64_t row = 0; row < incoming_.rows; ++row) {
      const float* const d = djoined + JoinedAt(h, past_ + row);
      Emit(incoming_.width, accumulate, dincoming + IncomingAt(h, row),
           [=](int64_t i) { return d[i]; });
    }
  }
}

}  // namespace syncline::worker
