#ifndef SYNCLINE_KERNELS_CPU_ON_FLOAT32_H_
#define SYNCLINE_KERNELS_CPU_ON_FLOAT32_H_

#include "kernels/device/floats.h"

namespace syncline {

// Becomes any pointer to a function that kKernel can be called like: one whose
// arrays have a type (kernels/device/floats.h), where kKernel takes those of
// float32.
template <auto kKernel>
struct OnFloat32Kernel {
  template <typename... Arguments>
  using Pointer = void (*)(Arguments...);

  template <typename... Arguments>
  // NOLINTNEXTLINE(google-explicit-constructor): as functions convert
  constexpr operator Pointer<Arguments...>() const {
    return [](Arguments... arguments) { kKernel(arguments...); };
  }
};

template <auto kKernel>
inline constexpr OnFloat32Kernel<kKernel> OnFloat32{};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CPU_ON_FLOAT32_H_
