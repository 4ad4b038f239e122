// Runs the tests of this folder on the first GPU.
//
//   gpu_test [--gtest_...]   runs them
//   gpu_test --describe      prints what it is, and runs nothing
//
// Without a GPU it says why in one line and exits with kExitWithoutGpu.

#include <cstdio>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tests/gpu/gpu.h"

int main(int argc, char** argv) {
  const auto gpu = syncline::OpenCudaDevice(0);
  if (!gpu.ok()) {
    std::printf("gpu_test: no GPU: %s\n",
                std::string(gpu.status().message()).c_str());
    const bool is_absent =
        absl::IsNotFound(gpu.status()) || absl::IsUnimplemented(gpu.status());
    return is_absent ? syncline::kExitWithoutGpu : 1;
  }
  if (argc == 2 && std::strcmp(argv[1], "--describe") == 0) {
    const auto description = (*gpu)->description();
    std::printf("%s at %s, %lld MiB, convolutions: %s\n",
                description.model.c_str(), description.address.c_str(),
                static_cast<long long>(description.memory_bytes >> 20),
                description.convolutions.c_str());
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
