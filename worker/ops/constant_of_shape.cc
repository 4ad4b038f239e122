#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeConstantOfShape(const OpSpec& spec) {
  const auto value = spec.node->attributes.find("value");
  std::string element(sizeof(float), '\0');  // 0 of float32
  if (value != spec.node->attributes.end()) {
    element = std::get<ConstantTensor>(value->second).bytes;
  }
  if (element.size() != DTypeBytes(spec.output(0).dtype)) {
    return absl::InvalidArgumentError("value must be one element");
  }
  return MakeOpWithoutGradient(
      [count = spec.output(0).count(), element](const Op::Tensors& t) {
        char* y = static_cast<char*>(t.outputs[0]);
        for (int64_t i = 0; i < count; ++i, y += element.size()) {
          std::memcpy(y, element.data(), element.size());
        }
        return absl::OkStatus();
      });
}

}  // namespace syncline::worker
