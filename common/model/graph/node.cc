#include "common/model/graph/node.h"

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

}  // namespace syncline
