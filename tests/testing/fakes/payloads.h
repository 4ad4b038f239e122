#ifndef SYNCLINE_TESTS_TESTING_FAKES_PAYLOADS_H_
#define SYNCLINE_TESTS_TESTING_FAKES_PAYLOADS_H_

// Payloads of messages, without the messages: what a ps reads gradients, keys
// and rows from. Each is safe for many readers at once.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/shard/shard_layout.h"
#include "tests/testing/fakes/floats.h"

namespace syncline {

// Keys and floats one behind the other, as they arrive. Filled by one thread
// before anything reads. A read outside of it fails the test.
class PayloadBytes : public FloatSource, public ps::ByteSource {
 public:
  template <typename T>
  void Append(const std::vector<T>& values) {
    bytes_.append(reinterpret_cast<const char*>(values.data()),
                  values.size() * sizeof(T));
  }
  void AppendZeros(size_t bytes) { bytes_.append(bytes, '\0'); }
  size_t size() const { return bytes_.size(); }
  ps::PayloadPart part() const { return {this, bytes_.size()}; }
  void CopyTo(size_t first, size_t count, float* out) const override {
    CopyBytes(first * sizeof(float), count * sizeof(float), out);
  }
  void CopyBytes(size_t first, size_t count, void* out) const override {
    ASSERT_LE(first + count, bytes_.size());
    std::memcpy(out, bytes_.data() + first, count);
  }

 private:
  std::string bytes_;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_FAKES_PAYLOADS_H_
