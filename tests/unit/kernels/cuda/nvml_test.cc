// Goal: the driver's word on a GPU is read, and what it cannot say is an error
// in its words. Method: a library of this test in the place of the driver's.

#include "kernels/cuda/nvml.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

TEST(NvmlTest, ReadsAGpuByItsAddress) {
  const auto nvml = Nvml::Open(SYNCLINE_FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const auto usage = (*nvml)->UsageOf("0000:3b:00.0");
  ASSERT_TRUE(usage.ok()) << usage.status();
  EXPECT_DOUBLE_EQ(usage->utilization, 0.75);
  EXPECT_EQ(usage->used_bytes, 600u);
  EXPECT_EQ(usage->memory_bytes, 1000u);
  const auto other = (*nvml)->UsageOf("0000:00:00.0");
  EXPECT_TRUE(absl::IsInternal(other.status()));
  EXPECT_EQ(other.status().message(),
            "NVML: no GPU at 0000:00:00.0: Not Found");
}

TEST(NvmlTest, AMissingLibraryIsNamed) {
  const auto missing = Nvml::Open("libno-such-library.so.1");
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("libno-such-library.so.1"));
}

TEST(NvmlTest, ALibraryOfAnotherKindIsRefusedByTheFunctionItLacks) {
  const auto other = Nvml::Open("libm.so.6");
  EXPECT_TRUE(absl::IsFailedPrecondition(other.status()));
  EXPECT_THAT(std::string(other.status().message()),
              HasSubstr("libm.so.6 has no nvmlInit_v2"));
}

}  // namespace
}  // namespace syncline
