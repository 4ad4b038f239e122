#ifndef SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_CUDA_EMULATOR_H_
#define SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_CUDA_EMULATOR_H_

// The language of kernels (kernels/cuda/language.h), run on the host. Names are
// CUDA's. Include it through language.h alone.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <typeinfo>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_emulator/block_runner.h"
#include "tests/testing/cuda_emulator/emulated_memory.h"

#define SYNCLINE_DEVICE

namespace syncline {

class Stream;

namespace testing {

inline BlockRunner& RunningBlock() { return *BlockRunner::Current(); }

// The memory of an emulated device that `address` lies in, or null.
EmulatedMemory* FindEmulatedMemory(const void* address);

// One element of an emulated array: what it is read as and written from.
template <typename T>
class EmulatedElement {
 public:
  EmulatedElement(T* at, EmulatedMemory* memory) : at_(at), memory_(memory) {}
  EmulatedElement(const EmulatedElement&) = default;

  operator T() const {  // NOLINT(google-explicit-constructor): as T&
    BlockRunner& block = RunningBlock();
    const auto report = [&](const std::string& what) { block.Report(what); };
    if (memory_ == nullptr) {
      report("reads what is no memory of the device");
      return T{};
    }
    const bool is_there =
        memory_->Read(at_, sizeof(T), alignof(T), block.accessor(), report);
    return is_there ? *at_ : T{};
  }
  // NOLINTNEXTLINE(misc-unconventional-assign-operator): it is T& in CUDA
  T operator=(T value) const {
    BlockRunner& block = RunningBlock();
    const auto report = [&](const std::string& what) { block.Report(what); };
    if (memory_ == nullptr) {
      report("writes what is no memory of the device");
    } else if (memory_->Write(at_, sizeof(T), alignof(T), block.accessor(),
                              report)) {
      *at_ = value;
    }
    return value;
  }
  // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): assigns to the element
  T operator=(const EmulatedElement& other) const {
    return *this = static_cast<T>(other);
  }
  T operator+=(T value) const { return *this = static_cast<T>(*this) + value; }
  T operator*=(T value) const { return *this = static_cast<T>(*this) * value; }

 private:
  T* at_;
  EmulatedMemory* memory_;
};

// An array in emulated memory. T may be const.
template <typename T>
class EmulatedArray {
 public:
  EmulatedArray() = default;
  EmulatedArray(T* at, EmulatedMemory* memory) : at_(at), memory_(memory) {}
  template <typename U>
  requires std::is_same_v<T, const U>
  // NOLINTNEXTLINE(google-explicit-constructor): as U* becomes const U*
  EmulatedArray(const EmulatedArray<U>& other)
      : at_(other.at()), memory_(other.memory()) {}

  std::conditional_t<std::is_const_v<T>, std::remove_const_t<T>,
                     EmulatedElement<T>>
  operator[](int64_t i) const {
    if constexpr (std::is_const_v<T>) {
      using Value = std::remove_const_t<T>;
      return EmulatedElement<Value>(const_cast<Value*>(at_) + i, memory_);
    } else {
      return EmulatedElement<T>(at_ + i, memory_);
    }
  }
  EmulatedArray operator+(int64_t i) const { return {at_ + i, memory_}; }
  bool operator==(std::nullptr_t) const { return at_ == nullptr; }

  T* at() const { return at_; }
  EmulatedMemory* memory() const { return memory_; }

 private:
  T* at_ = nullptr;
  EmulatedMemory* memory_ = nullptr;
};

// Where a function was called: its default argument. clang 14 has no
// std::source_location.
struct CallSite {
  const char* file;
  int line;

  static CallSite Here(const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
    return {file, line};
  }
};

inline std::string LineOf(const CallSite& at) {
  return absl::StrCat(at.file, ":", at.line);
}

// T of 4 or 8 bytes.
template <typename T>
T CallInWarp(WarpCall::Kind kind, unsigned mask, T value, int argument,
             const CallSite& at) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  const uint64_t result =
      RunningBlock().CallInWarp({.kind = kind,
                                 .mask = mask,
                                 .value = std::bit_cast<Bits>(value),
                                 .argument = argument},
                                LineOf(at));
  return std::bit_cast<T>(static_cast<Bits>(result));
}

}  // namespace testing

namespace cuda {

template <typename T>
using Global = testing::EmulatedArray<T>;
template <typename T>
using Shared = testing::EmulatedArray<T>;

template <typename T>
Global<T> OnDevice(T* array) {
  return {array, testing::FindEmulatedMemory(array)};
}

template <typename To, typename From>
Global<To> ViewAs(const testing::EmulatedArray<From>& array) {
  return {reinterpret_cast<To*>(array.at()), array.memory()};
}

class SharedMemory {
 public:
  template <typename T>
  Shared<T> Take(int count) {
    testing::EmulatedMemory* const shared =
        testing::RunningBlock().block().shared;
    const size_t begin = (taken_ + alignof(T) - 1) / alignof(T) * alignof(T);
    taken_ = begin + count * sizeof(T);
    if (taken_ > shared->bytes()) {
      testing::RunningBlock().Report(absl::StrCat(
          "takes ", taken_, " bytes of shared memory, but its launch has ",
          shared->bytes()));
    }
    return {reinterpret_cast<T*>(shared->data() + begin), shared};
  }

 private:
  size_t taken_ = 0;
};

// Threads of the emulator run one at a time: there is nothing to lock, but a
// count of what would be. What is changed this way races with nothing.
template <typename T, typename Wants, typename F>
void AsOnlyThread(Global<T> element, Global<int32_t> lock, Wants wants, F f) {
  if (element.memory() == nullptr || lock.memory() != element.memory()) {
    testing::RunningBlock().Report("changes what is no memory of the device");
    return;
  }
  if (!wants(static_cast<const T&>(*element.at()))) return;
  testing::RunningBlock().CountLock();
  f(*element.at());
}

// kernels/cuda/launch.h: PartialSums.
Global<double> PartialSums(Stream& stream);
// A launch on an emulated device's stream, done on return.
void RunEmulated(Stream& stream, int64_t blocks, int threads,
                 size_t shared_bytes, const std::type_info& kernel_type,
                 const std::function<void()>& kernel);

}  // namespace cuda
}  // namespace syncline

// CUDA's names.

struct EmulatedIndex {
  unsigned x;
};
#define threadIdx (EmulatedIndex{syncline::testing::RunningBlock().thread()})
#define blockIdx \
  (EmulatedIndex{syncline::testing::RunningBlock().block().index})
#define blockDim                        \
  (EmulatedIndex{static_cast<unsigned>( \
      syncline::testing::RunningBlock().block().threads)})
#define gridDim \
  (EmulatedIndex{syncline::testing::RunningBlock().block().blocks})

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's
inline void __syncthreads(const syncline::testing::CallSite& at =
                              syncline::testing::CallSite::Here()) {
  syncline::testing::RunningBlock().AwaitBarrier(syncline::testing::LineOf(at));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes,
                  const syncline::testing::CallSite& at =
                      syncline::testing::CallSite::Here()) {
  return syncline::testing::CallInWarp(
      syncline::testing::WarpCall::Kind::kShuffleXor, mask, value, lanes, at);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, int lanes,
                   const syncline::testing::CallSite& at =
                       syncline::testing::CallSite::Here()) {
  return syncline::testing::CallInWarp(
      syncline::testing::WarpCall::Kind::kShuffleDown, mask, value, lanes, at);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane,
              const syncline::testing::CallSite& at =
                  syncline::testing::CallSite::Here()) {
  return syncline::testing::CallInWarp(
      syncline::testing::WarpCall::Kind::kShuffle, mask, value, lane, at);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const syncline::testing::CallSite& at =
                                  syncline::testing::CallSite::Here()) {
  return static_cast<unsigned>(syncline::testing::CallInWarp<uint32_t>(
      syncline::testing::WarpCall::Kind::kBallot, mask, predicate != 0, 0, at));
}
// NOLINTEND(bugprone-reserved-identifier)

#endif  // SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_CUDA_EMULATOR_H_
