#include "worker/ops/op.h"

#include "absl/strings/str_cat.h"
#include "common/model/graph/operator_list.h"

namespace syncline::worker {
namespace {

const TensorType& At(const std::vector<TensorType>& types, size_t i) {
  static const TensorType& absent = *new TensorType();
  return i < types.size() ? types[i] : absent;
}

}  // namespace

const TensorType& OpSpec::input(size_t i) const { return At(inputs, i); }
const TensorType& OpSpec::output(size_t i) const { return At(outputs, i); }

bool OpSpec::Computes(DType type) const {
  return type == DType::kFloat32 ||
         (Is16Bit(type) && device->computes_in(node->op_type, type));
}

absl::Status OpSpec::RequireFloat32() const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].present && !Computes(inputs[i].dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", i, " is ", DTypeName(inputs[i].dtype),
                       "; only float32 is computed"));
    }
  }
  return absl::OkStatus();
}

absl::Status OpSpec::RequireOneType(uint32_t moved_inputs) const {
  const DType type = output(0).dtype;
  const auto differs = [type](const TensorType& other) {
    return other.present && other.dtype != type &&
           (Is16Bit(other.dtype) || Is16Bit(type));
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (HasPosition(moved_inputs, i) && differs(inputs[i])) {
      return absl::UnimplementedError("elements of two types are moved");
    }
  }
  if (std::any_of(outputs.begin(), outputs.end(), differs)) {
    return absl::UnimplementedError("elements are moved to two types");
  }
  return absl::OkStatus();
}

absl::Status OpSpec::RequireOthersFloat32() const {
  for (const auto* types : {&inputs, &outputs}) {
    for (size_t i = 1; i < types->size(); ++i) {
      const TensorType& type = (*types)[i];
      if (Is16Bit(type.dtype) || Is16Bit(type.gradient_dtype)) {
        return absl::UnimplementedError("numbers of channels have 16 bits");
      }
    }
  }
  return absl::OkStatus();
}

bool OpSpec::HasNarrowTypes() const {
  for (const auto* types : {&inputs, &outputs}) {
    for (const TensorType& type : *types) {
      if (Is16Bit(type.dtype) || Is16Bit(type.gradient_dtype)) return true;
    }
  }
  return false;
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
