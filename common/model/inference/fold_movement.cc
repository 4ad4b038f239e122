// Operators that copy elements of their inputs to other places.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/model/inference/node_folding.h"
#include "common/model/inference/tensor_elements.h"

namespace syncline {

void NodeFolding::Take(const TensorElements& input, int64_t at) {
  const int64_t size = ElementCount(input.dims);
  if (at < 0 || at >= size || input.is_float != out_.is_float) {
    fits_ = false;
  } else if (input.is_float) {
    out_.floats.push_back(input.floats[at]);
  } else {
    out_.ints.push_back(input.ints[at]);
  }
}

template <typename From>
void NodeFolding::Move(const TensorElements& input, From from) {
  out_.is_float = input.is_float;
  ForEachIndex(dims_,
               [&](int64_t, const Dims& index) { Take(input, from(index)); });
}

bool NodeFolding::MoveElements() {
  const std::string& type = op();
  if (type == "Reshape" || type == "Squeeze" || type == "Unsqueeze" ||
      type == "Flatten" || type == "Identity" || type == "Cast" ||
      type == "CastLike") {
    out_ = values_[0];
  } else if (type == "Expand") {
    Move(values_[0],
         [&](const Dims& at) { return BroadcastAt(at, values_[0].dims); });
  } else if (type == "Tile") {
    Move(values_[0], [&](Dims at) {
      for (size_t d = 0; d < at.size(); ++d) at[d] %= values_[0].dims[d];
      return BroadcastAt(at, values_[0].dims);
    });
  } else if (type == "Transpose") {
    Dims permutation = node_.Ints("perm");
    for (size_t d = dims_.size(); permutation.size() < dims_.size();) {
      permutation.push_back(static_cast<int64_t>(--d));
    }
    const Dims strides = RowMajorStrides(values_[0].dims);
    Move(values_[0], [&](const Dims& at) {
      int64_t from = 0;
      for (size_t d = 0; d < at.size(); ++d) {
        from += at[d] * strides[permutation[d]];
      }
      return from;
    });
  } else if (type == "Slice") {
    Slice();
  } else if (type == "Concat") {
    Concat();
  } else if (type == "Where") {
    Select();
  } else if (type == "Trilu") {
    KeepTriangle();
  } else {
    return false;
  }
  return true;
}

absl::StatusOr<bool> NodeFolding::Gather() {
  const TensorElements& data = values_[0];
  const TensorElements& indices = values_[1];
  const size_t rank = data.dims.size();
  int64_t axis = node_.Int("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(rank);
  const int64_t n = data.dims[axis];
  for (const int64_t i : indices.ints) {
    if (i >= -n && i < n) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("index ", i, " is outside a dimension of ", n));
  }
  const size_t index_rank = indices.dims.size();
  Move(data, [&](const Dims& at) {
    const auto begin = at.begin() + axis;
    const Dims index(begin, begin + index_rank);
    const int64_t i = indices.ints[BroadcastAt(index, indices.dims)];
    Dims from(at.begin(), begin);
    from.push_back(i < 0 ? i + n : i);
    from.insert(from.end(), begin + index_rank, at.end());
    // A dimension of 1 has only index 0: no broadcast happens.
    return BroadcastAt(from, data.dims);
  });
  return true;
}

// Its output's shape says how far each axis goes.
void NodeFolding::Slice() {
  const Dims& from = values_[0].dims;
  Dims first(from.size(), 0);
  Dims step(from.size(), 1);
  const std::vector<int64_t> starts = Ints(1);
  fits_ = (!Has(3) || Ints(3).size() == starts.size()) &&
          (!Has(4) || Ints(4).size() == starts.size());
  if (!fits_) return;
  for (size_t i = 0; i < starts.size(); ++i) {
    int64_t axis = Has(3) ? Ints(3)[i] : static_cast<int64_t>(i);
    if (axis < 0) axis += static_cast<int64_t>(from.size());
    fits_ = axis >= 0 && axis < static_cast<int64_t>(from.size());
    if (!fits_) return;
    const int64_t n = from[axis];
    step[axis] = Has(4) ? Ints(4)[i] : 1;
    const int64_t start = starts[i] < 0 ? starts[i] + n : starts[i];
    first[axis] = step[axis] > 0 ? std::clamp<int64_t>(start, 0, n)
                                 : std::clamp<int64_t>(start, 0, n - 1);
  }
  Move(values_[0], [&](Dims at) {
    for (size_t d = 0; d < at.size(); ++d) {
      at[d] = first[d] + (at[d] == 0 ? 0 : at[d] * step[d]);
      if (at[d] < 0 || at[d] >= from[d]) return int64_t{-1};
    }
    return BroadcastAt(at, from);
  });
}

void NodeFolding::Concat() {
  int64_t axis = node_.Int("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(dims_.size());
  out_.is_float = values_[0].is_float;
  ForEachIndex(dims_, [&](int64_t, Dims index) {
    size_t k = 0;
    while (index[axis] >= values_[k].dims[axis]) {
      index[axis] -= values_[k++].dims[axis];
    }
    Take(values_[k], BroadcastAt(index, values_[k].dims));
  });
}

void NodeFolding::Select() {
  out_.is_float = values_[1].is_float;
  ForEachIndex(dims_, [&](int64_t, const Dims& index) {
    const bool first =
        values_[0].ints[BroadcastAt(index, values_[0].dims)] != 0;
    const TensorElements& from = values_[first ? 1 : 2];
    Take(from, BroadcastAt(index, from.dims));
  });
}

void NodeFolding::KeepTriangle() {
  const bool upper = node_.Int("upper", 1) != 0;
  fits_ = !Has(1) || Ints(1).size() == 1;
  if (!fits_) return;
  const int64_t most = dims_.back() + dims_[dims_.size() - 2];
  const int64_t k = Has(1) ? std::clamp(Ints(1)[0], -most, most) : 0;
  out_ = values_[0];
  ForEachIndex(dims_, [&](int64_t i, const Dims& index) {
    const int64_t above = index.back() - index[index.size() - 2];
    if (upper ? above >= k : above <= k) return;
    if (out_.is_float) {
      out_.floats[i] = 0;
    } else {
      out_.ints[i] = 0;
    }
  });
}

}  // namespace syncline
