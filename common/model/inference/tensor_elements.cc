#include "common/model/inference/tensor_elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace syncline {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

template <typename T, typename To>
void Append(const std::string& bytes, std::vector<To>* out) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    out->push_back(static_cast<To>(value));
  }
}

// As worker/ops/cast.cc: the nearest there is; NaN becomes 0.
int64_t ToInteger(double value) {
  constexpr double kAbove = 9223372036854775808.0;
  if (std::isnan(value)) return 0;
  if (value >= kAbove) return std::numeric_limits<int64_t>::max();
  if (value <= -kAbove) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

template <typename T>
void Put(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

TensorElements ReadElements(const ConstantTensor& tensor) {
  TensorElements n;
  n.is_float = IsFloat(tensor.dtype);
  n.dims = tensor.dims;
  switch (tensor.dtype) {
    case DType::kFloat32:
      Append<float>(tensor.bytes, &n.floats);
      break;
    case DType::kFloat64:
      Append<double>(tensor.bytes, &n.floats);
      break;
    case DType::kInt32:
      Append<int32_t>(tensor.bytes, &n.ints);
      break;
    case DType::kInt64:
      Append<int64_t>(tensor.bytes, &n.ints);
      break;
    case DType::kBool:
    case DType::kUint8:
      Append<uint8_t>(tensor.bytes, &n.ints);
      break;
    case DType::kBfloat16:
    case DType::kFloat16:
      break;  // no model has them
  }
  return n;
}

void AppendElement(DType dtype, const TensorElements& n, int64_t i,
                   std::string* bytes) {
  const auto integer = [&] {
    return n.is_float ? ToInteger(n.floats[i]) : n.ints[i];
  };
  switch (dtype) {
    case DType::kFloat32:
      return Put(static_cast<float>(n.AsFloat(i)), bytes);
    case DType::kFloat64:
      return Put(n.AsFloat(i), bytes);
    case DType::kInt32: {
      const int64_t low = std::numeric_limits<int32_t>::min();
      const int64_t high = std::numeric_limits<int32_t>::max();
      const int64_t v = integer();
      return Put(
          static_cast<int32_t>(n.is_float ? std::clamp(v, low, high) : v),
          bytes);
    }
    case DType::kInt64:
      return Put(integer(), bytes);
    case DType::kUint8: {
      const int64_t v = integer();
      return Put(
          static_cast<uint8_t>(n.is_float ? std::clamp<int64_t>(v, 0, 255) : v),
          bytes);
    }
    case DType::kBool:
      return Put(static_cast<uint8_t>(n.AsFloat(i) != 0), bytes);
    case DType::kBfloat16:
    case DType::kFloat16:
      return;  // no model has them
  }
}

Dims RowMajorStrides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return strides;
}

int64_t BroadcastAt(const Dims& index, const Dims& dims) {
  if (index.size() < dims.size()) return -1;
  int64_t at = 0;
  const size_t skipped = index.size() - dims.size();
  for (size_t d = 0; d < dims.size(); ++d) {
    at = at * dims[d] + (dims[d] == 1 ? 0 : index[skipped + d]);
  }
  return at;
}

}  // namespace syncline
