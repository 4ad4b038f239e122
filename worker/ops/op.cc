#include "worker/ops/op.h"

#include "absl/strings/str_cat.h"

namespace syncline::worker {
namespace {

const TensorType& At(const std::vector<TensorType>& types, size_t i) {
  static const TensorType& absent = *new TensorType();
  return i < types.size() ? types[i] : absent;
}

}  // namespace

const TensorType& OpSpec::input(size_t i) const { return At(inputs, i); }
const TensorType& OpSpec::output(size_t i) const { return At(outputs, i); }

absl::Status OpSpec::RequireFloat32() const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].present && inputs[i].dtype != DType::kFloat32) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", i, " is ", DTypeName(inputs[i].dtype),
                       "; only float32 is computed"));
    }
  }
  return absl::OkStatus();
}

absl::Status OpSpec::NoKernel() const {
  return absl::InvalidArgumentError(
      absl::StrCat("the device ", device->name(), " has no kernel for it"));
}

absl::Status Op::Explain(const DataError& error) const {
  return absl::InternalError(absl::StrCat("kind ", error.kind, " of element ",
                                          error.position, ", ", error.value,
                                          ", is not explained"));
}

}  // namespace syncline::worker
