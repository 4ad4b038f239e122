#ifndef SYNCLINE_KERNELS_DEVICE_FLOATS_H_
#define SYNCLINE_KERNELS_DEVICE_FLOATS_H_

#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "common/base/dtype.h"

namespace syncline {

// An array of floating-point numbers in memory of a device, and their type:
// float32, bfloat16 or float16. Kernels that take such arrays read each element
// exactly, compute in float32, and round each result once, to the nearest and
// ties to even. Each array of a call has a type of its own.
//
// A `const float*` is one of float32, and one of float32 is a `const float*`:
// what computes in float32 alone takes and passes plain pointers. Only a device
// that computes an operator in 16 bits (device.h: computes_in) is given others.
// Null like a pointer.
class Floats {
 public:
  Floats() = default;
  // NOLINTBEGIN(google-explicit-constructor): as pointers convert
  Floats(std::nullptr_t) {}
  Floats(float* data) : data_(data) {}
  Floats(void* data, DType type) : data_(data), type_(type) {}

  // REQUIRES: float32, or null.
  operator float*() const {
    SYNCLINE_CHECK(data_ == nullptr || type_ == DType::kFloat32);
    return static_cast<float*>(data_);
  }
  operator void*() const { return data_; }
  // NOLINTEND(google-explicit-constructor)

  void* data() const { return data_; }
  DType type() const { return type_; }
  // Of so many elements.
  int64_t Bytes(int64_t count) const {
    return count * static_cast<int64_t>(DTypeBytes(type_));
  }
  Floats operator+(int64_t elements) const {
    return {static_cast<char*>(data_) + Bytes(elements), type_};
  }
  bool operator==(std::nullptr_t) const { return data_ == nullptr; }
  bool operator==(const Floats& other) const { return data_ == other.data_; }
  // nvcc does not derive them.
  bool operator!=(std::nullptr_t) const { return data_ != nullptr; }
  bool operator!=(const Floats& other) const { return data_ != other.data_; }

 private:
  void* data_ = nullptr;
  DType type_ = DType::kFloat32;
};

// The same, to be read.
class ConstFloats {
 public:
  ConstFloats() = default;
  // NOLINTBEGIN(google-explicit-constructor): as pointers convert
  ConstFloats(std::nullptr_t) {}
  ConstFloats(const float* data) : data_(data) {}
  ConstFloats(const void* data, DType type) : data_(data), type_(type) {}
  ConstFloats(const Floats& floats)
      : data_(floats.data()), type_(floats.type()) {}

  // REQUIRES: float32, or null.
  operator const float*() const {
    SYNCLINE_CHECK(data_ == nullptr || type_ == DType::kFloat32);
    return static_cast<const float*>(data_);
  }
  operator const void*() const { return data_; }
  // NOLINTEND(google-explicit-constructor)

  const void* data() const { return data_; }
  DType type() const { return type_; }
  int64_t Bytes(int64_t count) const {
    return count * static_cast<int64_t>(DTypeBytes(type_));
  }
  ConstFloats operator+(int64_t elements) const {
    return {static_cast<const char*>(data_) + Bytes(elements), type_};
  }
  bool operator==(std::nullptr_t) const { return data_ == nullptr; }
  bool operator==(const ConstFloats& other) const {
    return data_ == other.data_;
  }
  bool operator!=(std::nullptr_t) const { return data_ != nullptr; }
  bool operator!=(const ConstFloats& other) const {
    return data_ != other.data_;
  }

 private:
  const void* data_ = nullptr;
  DType type_ = DType::kFloat32;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_FLOATS_H_
