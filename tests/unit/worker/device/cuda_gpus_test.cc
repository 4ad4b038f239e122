// Goal: workers find CUDA's GPUs, or hear why there are none, and one claims
// what no other has. Method: whatever this machine has; a number that none has.

#include "worker/device/cuda_gpus.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

TEST(CudaGpusTest, OneThatIsNotThereIsNamed) {
  const GpuSource gpus =
      CudaGpus(CudaConvolutions::kCudnn, /*has_graphs=*/true);
  EXPECT_GE(gpus.count(), 0);
  const auto missing = gpus.open(1000);
  EXPECT_FALSE(missing.ok());
  EXPECT_THAT(std::string(missing.status().message()),
              ::testing::AnyOf(::testing::HasSubstr("cuda:1000"),
                               ::testing::HasSubstr("without CUDA")));
}

TEST(CudaGpusTest, AClaimIsForOne) {
  const GpuSource gpus =
      CudaGpus(CudaConvolutions::kCudnn, /*has_graphs=*/true);
  const std::string address = absl::StrCat("test-", getpid());
  const auto claim = gpus.claim(address);
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_TRUE(absl::IsAlreadyExists(gpus.claim(address).status()));
}

}  // namespace
}  // namespace syncline::worker
