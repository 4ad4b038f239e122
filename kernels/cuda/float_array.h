#ifndef SYNCLINE_KERNELS_CUDA_FLOAT_ARRAY_H_
#define SYNCLINE_KERNELS_CUDA_FLOAT_ARRAY_H_

// Arrays of floats (kernels/device/floats.h) as kernels index them: float32
// whatever is stored. The type is an argument of the launch, the same for all
// threads, so that a kernel is compiled once for all types of all its arrays.

#include <cstdint>

#include "common/base/dtype.h"
#include "kernels/cuda/elementwise/narrow_floats.h"
#include "kernels/cuda/language.h"
#include "kernels/device/floats.h"

namespace syncline::cuda {

SYNCLINE_DEVICE inline float WidenAs(DType type, uint16_t bits) {
  return type == DType::kBfloat16 ? Bfloat16::Widen(bits)
                                  : Float16::Widen(bits);
}
SYNCLINE_DEVICE inline uint16_t NarrowAs(DType type, float value) {
  return type == DType::kBfloat16 ? Bfloat16::Narrow(value)
                                  : Float16::Narrow(value);
}

class ConstFloatArray {
 public:
  explicit ConstFloatArray(ConstFloats floats)
      : bytes_(OnDevice(static_cast<const unsigned char*>(floats.data()))),
        type_(floats.type()) {}

  SYNCLINE_DEVICE float operator[](int64_t i) const {
    if (type_ == DType::kFloat32) return ViewAs<const float>(bytes_)[i];
    return WidenAs(type_, ViewAs<const uint16_t>(bytes_)[i]);
  }

 private:
  Global<const unsigned char> bytes_;
  DType type_;
};

class FloatArray {
 public:
  // One element: what it is read as and written from.
  class Element {
   public:
    SYNCLINE_DEVICE Element(const FloatArray& array, int64_t i)
        : array_(array), i_(i) {}

    // NOLINTNEXTLINE(google-explicit-constructor): as float&
    SYNCLINE_DEVICE operator float() const { return array_.Get(i_); }
    // NOLINTNEXTLINE(misc-unconventional-assign-operator): it is float&
    SYNCLINE_DEVICE float operator=(float value) const {
      array_.Set(i_, value);
      return value;
    }
    // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): as float&
    SYNCLINE_DEVICE float operator=(const Element& other) const {
      return *this = static_cast<float>(other);
    }
    SYNCLINE_DEVICE float operator+=(float value) const {
      return *this = array_.Get(i_) + value;
    }

   private:
    const FloatArray& array_;
    const int64_t i_;
  };

  explicit FloatArray(Floats floats)
      : bytes_(OnDevice(static_cast<unsigned char*>(floats.data()))),
        type_(floats.type()) {}

  SYNCLINE_DEVICE Element operator[](int64_t i) const { return {*this, i}; }

 private:
  SYNCLINE_DEVICE float Get(int64_t i) const {
    if (type_ == DType::kFloat32) return ViewAs<float>(bytes_)[i];
    return WidenAs(type_, ViewAs<uint16_t>(bytes_)[i]);
  }
  SYNCLINE_DEVICE void Set(int64_t i, float value) const {
    if (type_ == DType::kFloat32) {
      ViewAs<float>(bytes_)[i] = value;
    } else {
      ViewAs<uint16_t>(bytes_)[i] = NarrowAs(type_, value);
    }
  }

  Global<unsigned char> bytes_;
  DType type_;
};

inline ConstFloatArray OnDevice(const ConstFloats& floats) {
  return ConstFloatArray(floats);
}
inline FloatArray OnDevice(const Floats& floats) { return FloatArray(floats); }

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_FLOAT_ARRAY_H_
