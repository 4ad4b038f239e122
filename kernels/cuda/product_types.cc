#include "kernels/cuda/product_types.h"

#include "absl/strings/str_cat.h"

namespace syncline {

absl::Status CheckCudaProductTypes(const MatrixProductShape& s) {
  const bool is_narrow = Is16Bit(s.c_type);
  if (s.a_type == s.b_type && (s.c_type == s.a_type || !is_narrow) &&
      !(is_narrow && s.has_bias)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a product of ", DTypeName(s.a_type), " and ",
                   DTypeName(s.b_type), " in ", DTypeName(s.c_type),
                   s.has_bias ? " with a bias" : "", " is not one of a GPU's"));
}

}  // namespace syncline
