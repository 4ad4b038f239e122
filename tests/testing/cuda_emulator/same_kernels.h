#ifndef SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_SAME_KERNELS_H_
#define SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_SAME_KERNELS_H_

// Runs kernels on this machine and on an emulated device, to compare them.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/device/data_error.h"
#include "kernels/device/kernel_table.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline::testing {

// The memory of one run.
class KernelRun {
 public:
  explicit KernelRun(Device* device)
      : device_(*device),
        stream_(*device->MakeStream()),
        record_(Put(std::vector<DataError>(1))) {}

  const KernelTable& kernels() { return device_.kernels(); }
  Stream& stream() { return *stream_; }
  ErrorSlot errors() { return {.record = record_, .node = 3}; }

  template <typename T>
  T* Put(const std::vector<T>& values) {
    memory_.push_back(*Upload(device_, absl::Span<const T>(values)));
    return memory_.back().template as<T>();
  }
  // An array of the result; what kernels leave as it is has these bytes.
  void* Result(size_t bytes) {
    results_.push_back({Put(std::vector<char>(bytes, 0x2a)), bytes});
    return results_.back().data;
  }
  // The bytes of all results, and what was reported.
  std::string Read() {
    std::string all;
    for (const Part& result : results_) {
      std::string bytes(result.bytes, 0);
      stream_->CopyToHost(bytes.data(), result.data, bytes.size());
      all += bytes;
    }
    DataError error;
    stream_->CopyToHost(&error, record_, sizeof(error));
    EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
    return absl::StrCat(all, " node ", error.node, " kind ", error.kind,
                        " position ", error.position, " value ", error.value);
  }

 private:
  struct Part {
    void* data;
    size_t bytes;
  };

  Device& device_;
  std::vector<DeviceMemory> memory_;
  const std::unique_ptr<Stream> stream_;
  std::vector<Part> results_;
  DataError* const record_;
};

// The results have the same bits, in three orders of threads.
inline void ExpectSameKernels(const std::function<void(KernelRun&)>& run) {
  KernelRun here(&ThisMachine());
  run(here);
  const std::string want = here.Read();
  for (const uint64_t seed : {1, 2, 3}) {
    EmulatedDevice device(seed);
    KernelRun there(&device);
    run(there);
    const std::string got = there.Read();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(static_cast<int>(got[i]), static_cast<int>(want[i]))
          << "byte " << i << " of " << want.size();
    }
  }
}

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_SAME_KERNELS_H_
