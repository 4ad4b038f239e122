#ifndef SYNCLINE_TESTS_TESTING_FAKES_FLOATS_H_
#define SYNCLINE_TESTS_TESTING_FAKES_FLOATS_H_

// Gradients and values in memory of this process. Each is safe for many readers
// at once.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "common/update/float_source.h"
#include "gtest/gtest.h"

namespace syncline {

// The floats of a vector. A read outside of it fails the test.
class VectorFloats : public FloatSource {
 public:
  explicit VectorFloats(std::vector<float> values)
      : values_(std::move(values)) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    ASSERT_LE(first + count, values_.size());
    std::copy_n(values_.begin() + first, count, out);
  }
  const std::vector<float>& get() const { return values_; }

 private:
  const std::vector<float> values_;
};

// As many ones as are asked for.
class OnesFloats : public FloatSource {
 public:
  void CopyTo(size_t, size_t count, float* out) const override {
    std::fill_n(out, count, 1.0f);
  }
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_FAKES_FLOATS_H_
