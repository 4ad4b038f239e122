#ifndef SYNCLINE_KERNELS_REFERENCE_REFERENCE_MOVEMENT_H_
#define SYNCLINE_KERNELS_REFERENCE_REFERENCE_MOVEMENT_H_

// The specification of operations that move and add elements, as
// kernels/reference/reference.h has that of the rest.

#include <cstdint>
#include <vector>

#include "kernels/reference/reference.h"

namespace syncline::reference {

// Element `out` of the result has `weight` times element `in` of input `input`
// added to it. A list of these is the operation, and read the other way round
// its gradient.
struct Term {
  int64_t out = 0;
  size_t input = 0;
  int64_t in = 0;
  double weight = 1;
};

template <typename T>
Array<T> Linear(const std::vector<Term>& terms, const Dims& out,
                const std::vector<Array<T>>& in) {
  Array<T> y(out);
  for (const Term& t : terms) {
    y.values[t.out] += T(t.weight) * in[t.input].values[t.in];
  }
  return y;
}

template <typename T>
std::vector<Array<T>> LinearGradient(const std::vector<Term>& terms,
                                     const std::vector<Array<T>>& in,
                                     const Array<T>& dy) {
  std::vector<Array<T>> dx;
  for (const Array<T>& x : in) dx.emplace_back(x.dims);
  for (const Term& t : terms) {
    dx[t.input].values[t.in] += T(t.weight) * dy.values[t.out];
  }
  return dx;
}

// `dims` with `with` in place of dimension `axis`.
inline Dims Replaced(const Dims& dims, size_t axis, const Dims& with) {
  Dims out(dims.begin(), dims.begin() + axis);
  out.insert(out.end(), with.begin(), with.end());
  out.insert(out.end(), dims.begin() + axis + 1, dims.end());
  return out;
}

// ONNX Gather; negative indices count from the end.
inline std::vector<Term> GatherTerms(const Dims& data, size_t axis,
                                     const Dims& index_dims,
                                     const std::vector<int64_t>& indices) {
  const Dims out = Replaced(data, axis, index_dims);
  std::vector<Term> terms;
  for (int64_t o = 0; o < Product(out); ++o) {
    const Dims at = IndexOf(o, out);
    const auto begin = at.begin() + axis;
    const auto end = begin + index_dims.size();
    int64_t k = indices[FlatOf(Dims(begin, end), index_dims)];
    if (k < 0) k += data[axis];
    Dims from(at.begin(), begin);
    from.push_back(k);
    from.insert(from.end(), end, at.end());
    terms.push_back({o, 0, FlatOf(from, data)});
  }
  return terms;
}

// Sums times `weight`; `kept` are the dims with 1 for those summed over.
inline std::vector<Term> ReduceTerms(const Dims& data, const Dims& kept,
                                     double weight) {
  std::vector<Term> terms;
  for (int64_t i = 0; i < Product(data); ++i) {
    terms.push_back({BroadcastOffset(i, data, kept), 0, i, weight});
  }
  return terms;
}

inline std::vector<Term> ConcatTerms(const std::vector<Dims>& in, size_t axis,
                                     const Dims& out) {
  std::vector<Term> terms;
  int64_t begin = 0;
  for (size_t n = 0; n < in.size(); ++n) {
    for (int64_t i = 0; i < Product(in[n]); ++i) {
      Dims at = IndexOf(i, in[n]);
      at[axis] += begin;
      terms.push_back({FlatOf(at, out), n, i});
    }
    begin += in[n][axis];
  }
  return terms;
}

// Dimension d of the result is dimension permutation[d] of the data.
inline std::vector<Term> TransposeTerms(const Dims& data,
                                        const std::vector<int64_t>& permutation,
                                        const Dims& out) {
  std::vector<Term> terms;
  for (int64_t o = 0; o < Product(out); ++o) {
    const Dims at = IndexOf(o, out);
    Dims from(data.size());
    for (size_t d = 0; d < at.size(); ++d) from[permutation[d]] = at[d];
    terms.push_back({o, 0, FlatOf(from, data)});
  }
  return terms;
}

// ONNX ScatterND with reduction "add": input 0 is the data, input 1 here are
// the updates. `width` indices make a tuple.
inline std::vector<Term> ScatterAddTerms(const Dims& data, size_t width,
                                         const std::vector<int64_t>& indices) {
  const Dims indexed(data.begin(), data.begin() + width);
  const int64_t inner = Product(Dims(data.begin() + width, data.end()));
  std::vector<Term> terms;
  for (int64_t i = 0; i < Product(data); ++i) terms.push_back({i, 0, i});
  for (size_t tuple = 0; tuple * width < indices.size(); ++tuple) {
    Dims at(indices.begin() + tuple * width,
            indices.begin() + (tuple + 1) * width);
    for (size_t d = 0; d < width; ++d) at[d] += at[d] < 0 ? data[d] : 0;
    for (int64_t k = 0; k < inner; ++k) {
      const int64_t update = static_cast<int64_t>(tuple) * inner + k;
      terms.push_back({FlatOf(at, indexed) * inner + k, 1, update});
    }
  }
  return terms;
}

}  // namespace syncline::reference

#endif  // SYNCLINE_KERNELS_REFERENCE_REFERENCE_MOVEMENT_H_
