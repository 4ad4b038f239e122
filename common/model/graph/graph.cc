#include "common/model/graph/graph.h"

#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace syncline {
namespace {

// The attribute `name` of `node` as a T, or null if it is absent or of another
// type.
template <typename T>
const T* Find(const Node& node, absl::string_view name) {
  const auto it = node.attributes.find(std::string(name));
  return it == node.attributes.end() ? nullptr : std::get_if<T>(&it->second);
}

}  // namespace

size_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kBool:
    case DType::kUint8:
      return 1;
  }
  return 0;
}

absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kBool:
      return "bool";
    case DType::kUint8:
      return "uint8";
  }
  return "?";
}

int64_t ElementCount(absl::Span<const int64_t> dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         std::multiplies<int64_t>());
}

std::string DimsToString(absl::Span<const int64_t> dims) {
  const auto append = [](std::string* out, int64_t dim) {
    if (dim == kBatchDim) {
      absl::StrAppend(out, "N");
    } else if (dim == kDerivedDim) {
      absl::StrAppend(out, "?");
    } else {
      absl::StrAppend(out, dim);
    }
  };
  return absl::StrCat("[", absl::StrJoin(dims, ",", append), "]");
}

absl::Span<const float> ConstantTensor::floats() const {
  SYNCLINE_CHECK(dtype == DType::kFloat32);
  return {reinterpret_cast<const float*>(bytes.data()),
          bytes.size() / sizeof(float)};
}

absl::Span<const int64_t> ConstantTensor::ints() const {
  SYNCLINE_CHECK(dtype == DType::kInt64);
  return {reinterpret_cast<const int64_t*>(bytes.data()),
          bytes.size() / sizeof(int64_t)};
}

int64_t Node::Int(absl::string_view attribute, int64_t fallback) const {
  const auto* value = Find<int64_t>(*this, attribute);
  return value == nullptr ? fallback : *value;
}

float Node::Float(absl::string_view attribute, float fallback) const {
  const auto* value = Find<float>(*this, attribute);
  return value == nullptr ? fallback : *value;
}

std::string Node::String(absl::string_view attribute,
                         absl::string_view fallback) const {
  const auto* value = Find<std::string>(*this, attribute);
  return value == nullptr ? std::string(fallback) : *value;
}

std::vector<int64_t> Node::Ints(absl::string_view attribute) const {
  const auto* value = Find<std::vector<int64_t>>(*this, attribute);
  return value == nullptr ? std::vector<int64_t>() : *value;
}

bool Node::Has(absl::string_view attribute) const {
  return attributes.count(std::string(attribute)) > 0;
}

ValueId Graph::FindValue(absl::string_view value_name) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == value_name) return static_cast<ValueId>(i);
  }
  return kNoValue;
}

}  // namespace syncline
