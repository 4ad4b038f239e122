#ifndef SYNCLINE_KERNELS_OPTIMIZER_ROW_INITIALIZER_H_
#define SYNCLINE_KERNELS_OPTIMIZER_ROW_INITIALIZER_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace syncline {

// The initial values of a row of an embedding table. They are a function of
// (seed, table name, key) alone, so neither the order in which keys are seen
// nor the place where they live matters, and code that knows these three can
// tell an absent row's values. Immutable, hence thread-safe.
//
// Element j is made from counter j by two rounds of a 32-bit mixer keyed with
// the key's hash; 23 of its bits become an odd multiple of 2^-23 in (-1, 1),
// and the normal distribution is the inverse of its function, in float32.
// Integer operations and single roundings only: the bits are the same on every
// machine, and loops over them vectorise.
class RowInitializer {
 public:
  enum class Scheme { kZeros, kConstant, kUniform, kNormal };

  // kConstant: `amplitude` is the value. kUniform: values in
  // (-amplitude, amplitude). kNormal: mean 0, standard deviation `amplitude`.
  RowInitializer(Scheme scheme, float amplitude, uint64_t seed,
                 absl::string_view table);

  // Amplitudes of Xavier's schemes with `dim` for both fans; `gain` is 1 unless
  // the job says otherwise. Source: Glorot and Bengio, AISTATS 2010.
  static float XavierUniform(float gain, size_t dim);
  static float XavierNormal(float gain, size_t dim);

  // Writes the first `dim` values of the key's row.
  void Fill(int64_t key, float* row, size_t dim) const;

 private:
  Scheme scheme_;
  float amplitude_;
  uint64_t stream_;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_OPTIMIZER_ROW_INITIALIZER_H_
