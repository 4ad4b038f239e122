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

absl::Status CheckCudaEpilogue(const MatrixProductShape& s,
                               const ProductEpilogue& epilogue) {
  using Function = ProductEpilogue::Function;
  if (s.a_type != s.b_type || s.a_type != s.c_type) {
    return absl::UnimplementedError("an epilogue of matrices of two types");
  }
  if (s.batch != 1 || s.a_row != 0 || s.b_row != 0 || s.c_row != 0 ||
      s.has_bias) {
    return absl::UnimplementedError("an epilogue of parts of matrices");
  }
  if (s.m == 0 || s.n == 0 || s.k == 0) {
    return absl::UnimplementedError("an epilogue of an empty product");
  }
  const bool has_function = epilogue.function != Function::kNone;
  if ((epilogue.is_gradient && (!has_function || epilogue.has_bias)) ||
      (epilogue.keeps && (!has_function || epilogue.is_gradient))) {
    return absl::UnimplementedError("an epilogue of another form");
  }
  constexpr int64_t kKeptColumns = 8;
  if (epilogue.function == Function::kGeluTanh &&
      (epilogue.keeps || epilogue.is_gradient) && s.n % kKeptColumns != 0) {
    return absl::UnimplementedError(
        absl::StrCat("GELU keeps rows of whole ", kKeptColumns,
                     " elements, and these have ", s.n));
  }
  return absl::OkStatus();
}

std::string ProductKeyOf(const MatrixProductShape& s,
                         absl::string_view epilogue, bool takes_tf32,
                         int64_t alignment) {
  std::string key = absl::StrCat(
      s.batch, " x ", s.m, " ", s.n, " ", s.k, s.transpose_a ? " t" : " n",
      s.transpose_b ? "t " : "n ", DTypeName(s.a_type), " ",
      DTypeName(s.b_type), " ", DTypeName(s.c_type), " ", epilogue,
      takes_tf32 && s.a_type == DType::kFloat32 ? " tf32" : "", " aligned ",
      alignment);
  if (s.a_row != 0 || s.b_row != 0 || s.c_row != 0) {
    absl::StrAppend(&key, " rows ", s.a_row, " ", s.b_row, " ", s.c_row);
  }
  return key;
}

}  // namespace syncline
