#ifndef SYNCLINE_KERNELS_GEMM_H_
#define SYNCLINE_KERNELS_GEMM_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/dtype.h"

namespace syncline {

// A float32 matrix product, compiled by oneDNN for one shape:
//
//   C = alpha * op(A) * op(B) [+ bias] [+ C]        op(X) is X or X transposed
//
// for each of `batch` dense row-major matrices; any size may be 0, and an empty
// sum is 0. Thread-compatible. Uses the
// threads of the calling thread (kernels/threads.h); the result may differ in
// the last bit between numbers of threads.
class Gemm {
 public:
  struct Shape {
    int64_t m = 0, n = 0, k = 0;  // op(A) is [m,k], op(B) is [k,n], C is [m,n]
    bool transpose_a = false;     // A is stored [k,m]
    bool transpose_b = false;     // B is stored [n,k]
    int64_t batch = 1;            // matrices, one after another
    // Elements from one stored row to the next, where matrices are parts of
    // wider ones; 0: dense. With batch 1 only.
    int64_t a_row = 0, b_row = 0, c_row = 0;
    float alpha = 1;
    bool has_bias = false;  // bias is [n], added to every row; alpha must be 1
    // Of A, B and C; a bias is float32. For devices (kernels/device/
    // matrix_product_kernels.h): oneDNN is asked for float32 alone.
    DType a_type = DType::kFloat32;
    DType b_type = DType::kFloat32;
    DType c_type = DType::kFloat32;
  };
  // Errors: InvalidArgument: a type is not float32; Internal: oneDNN refused.
  static absl::StatusOr<Gemm> Create(const Shape& shape);
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;
  ~Gemm();

  // C = ...; `bias` is null unless the shape has one. No alignment is assumed.
  // C overlaps nothing else. Errors: Internal: oneDNN failed.
  absl::Status Run(const float* a, const float* b, const float* bias, float* c);
  // C += ...; without bias.
  absl::Status Accumulate(const float* a, const float* b, float* c);

 private:
  struct Compiled;
  explicit Gemm(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_GEMM_H_
