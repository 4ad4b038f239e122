#ifndef SYNCLINE_KERNELS_ELEMENTWISE_FIXED_LIST_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_FIXED_LIST_H_

#include <cstddef>

#include "common/base/check.h"
#include "kernels/elementwise/host_device.h"

namespace syncline {

// A list of at most kCapacity elements, inside of itself: a descriptor that has
// such lists can be copied to a device byte by byte.
template <typename T, size_t kCapacity>
class FixedList {
 public:
  void push_back(const T& element) {
    SYNCLINE_CHECK(size_ < kCapacity);
    elements_[size_++] = element;
  }
  void push_front(const T& element) {
    SYNCLINE_CHECK(size_ < kCapacity);
    for (size_t i = size_++; i > 0; --i) elements_[i] = elements_[i - 1];
    elements_[0] = element;
  }

  SYNCLINE_HOST_DEVICE const T* data() const { return elements_; }
  SYNCLINE_HOST_DEVICE size_t size() const { return size_; }
  SYNCLINE_HOST_DEVICE bool empty() const { return size_ == 0; }
  SYNCLINE_HOST_DEVICE T& operator[](size_t i) { return elements_[i]; }
  SYNCLINE_HOST_DEVICE const T& operator[](size_t i) const {
    return elements_[i];
  }
  SYNCLINE_HOST_DEVICE T& back() { return elements_[size_ - 1]; }
  SYNCLINE_HOST_DEVICE const T& back() const { return elements_[size_ - 1]; }
  SYNCLINE_HOST_DEVICE const T* begin() const { return elements_; }
  SYNCLINE_HOST_DEVICE const T* end() const { return elements_ + size_; }

 private:
  T elements_[kCapacity] = {};
  size_t size_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_FIXED_LIST_H_
