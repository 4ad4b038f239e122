#ifndef SYNCLINE_KERNELS_ELEMENTWISE_STRIDED_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_STRIDED_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/elementwise/fixed_list.h"
#include "kernels/elementwise/host_device.h"

namespace syncline {

// Walks a dense row-major result along with K arrays that lie under it in
// strides: a stride of 0 repeats, a negative one goes backwards. Slices, tiles,
// transposes and broadcasts are all of this form. Immutable.
template <size_t K>
class Strided {
 public:
  using Offsets = std::array<int64_t, K>;  // one for each array, in elements

  // strides[k][d] is what array k moves by when dimension d of the result does;
  // begin[k] is where it starts. Dimensions that run on into each other in all
  // arrays become one.
  Strided(const std::vector<int64_t>& dims,
          const std::array<std::vector<int64_t>, K>& strides,
          const Offsets& begin = {})
      : begin_(begin) {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] == 0) count_ = 0;
      if (dims[d] == 1) continue;
      Loop loop;
      loop.n = dims[d];
      for (size_t k = 0; k < K; ++k) loop.strides[k] = strides[k][d];
      if (!loops_.empty() && RunsOn(loops_.back(), loop)) {
        loop.n *= loops_.back().n;
        loops_.back() = loop;
      } else {
        loops_.push_back(loop);
      }
      count_ *= dims[d];
    }
    if (loops_.empty()) loops_.push_back({1, {}});
  }

  SYNCLINE_HOST_DEVICE int64_t count() const {
    return count_;
  }  // elements of the result
  // As few loops as there can be, outermost first; at least one.
  struct Loop {
    int64_t n = 1;
    Offsets strides{};
  };
  // A tensor has at most 8 dimensions; a tile of it twice as many.
  static constexpr size_t kLoopsMax = 17;
  const FixedList<Loop, kLoopsMax>& loops() const { return loops_; }
  const Offsets& begin() const { return begin_; }
  // Of the innermost loop.
  int64_t inner() const { return loops_.back().n; }
  const Offsets& inner_strides() const { return loops_.back().strides; }

  // Where element i of the result is in each array. Index is unsigned and holds
  // count().
  template <typename Index>
  SYNCLINE_HOST_DEVICE Offsets At(int64_t i) const {
    Offsets at = begin_;
    Index left = static_cast<Index>(i);
    for (size_t d = loops_.size(); d-- > 0;) {
      const Loop& loop = loops_[d];
      const Index next = left / static_cast<Index>(loop.n);
      const int64_t round = left - next * static_cast<Index>(loop.n);
      for (size_t k = 0; k < K; ++k) at[k] += round * loop.strides[k];
      left = next;
    }
    return at;
  }

  // Calls row(y, at) for each innermost loop, in order of the result: element i
  // of it is result[y + i], and array_k[at[k] + i * inner_strides()[k]].
  template <typename Row>
  void ForEachRow(Row row) const {
    ForEachRowIn(0, outermost(), row);
  }
  // Length of the loop around all others; 1 if there is but one loop.
  int64_t outermost() const { return loops_.size() > 1 ? loops_[0].n : 1; }
  // Only what [begin, end) of that loop comes to.
  template <typename Row>
  void ForEachRowIn(int64_t begin, int64_t end, Row row) const {
    const size_t outer = loops_.size() - 1;
    const int64_t step = count_ == 0 ? 0 : count_ / outermost();
    std::array<int64_t, kLoopsMax> index{};
    index[0] = begin;
    Offsets at = begin_;
    for (size_t k = 0; k < K; ++k) at[k] += begin * loops_[0].strides[k];
    for (int64_t y = begin * step; y < end * step; y += inner()) {
      row(y, at);
      for (size_t d = outer; d-- > 0;) {
        const Loop& loop = loops_[d];
        const bool wraps = ++index[d] == loop.n;
        for (size_t k = 0; k < K; ++k) {
          at[k] += wraps ? -(loop.n - 1) * loop.strides[k] : loop.strides[k];
        }
        if (!wraps) break;
        index[d] = 0;
      }
    }
  }

 private:
  // One step of `outer` is what a whole round of `inner` comes to.
  static bool RunsOn(const Loop& outer, const Loop& inner) {
    for (size_t k = 0; k < K; ++k) {
      if (outer.strides[k] != inner.n * inner.strides[k]) return false;
    }
    return true;
  }

  Offsets begin_;
  FixedList<Loop, kLoopsMax> loops_;
  int64_t count_ = 1;
};

// Strides of a dense row-major array of shape `dims`.
std::vector<int64_t> DenseStrides(const std::vector<int64_t>& dims);
// Strides of an array of shape `dims` under a result of shape `out` that it is
// broadcast to. REQUIRES: it can be.
std::vector<int64_t> BroadcastStrides(const std::vector<int64_t>& dims,
                                      const std::vector<int64_t>& out);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_STRIDED_H_
