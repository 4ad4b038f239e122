// Goal: NCCL is loaded, or it is said what is wrong with it and what to do;
// each of its errors has a code and says what was asked for. Method: libraries
// of this test in the place of NVIDIA's, and the double of tests.

#include "kernels/cuda/nccl.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_emulator/nccl_double.h"

namespace syncline::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::NcclDouble;

absl::Status StatusOfLoadingNccl(const std::string& file) {
  return Nccl::Load(file).status();
}

TEST(NcclTest, SaysItsVersion) {
  const auto nccl = Nccl::Load(SYNCLINE_FAKE_NCCL);
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  EXPECT_EQ((*nccl)->name(), "NCCL 2.28.9");
  EXPECT_EQ(NcclDouble::Make()->name(), "NCCL 2.28.9");
}

TEST(NcclTest, AMissingLibraryIsNamedWithWhatToDo) {
  const absl::Status status = StatusOfLoadingNccl("libno-such-library.so.2");
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("NCCL 2, CUDA's library of reductions among GPUs, is not "
                      "on this machine: libno-such-library.so.2"),
            HasSubstr("install NCCL 2.18 or later")));
}

TEST(NcclTest, AnotherVersionIsRefusedByItsNumber) {
  const absl::Status old = StatusOfLoadingNccl(SYNCLINE_FAKE_NCCL_OLD);
  EXPECT_TRUE(absl::IsFailedPrecondition(old)) << old;
  EXPECT_THAT(
      std::string(old.message()),
      HasSubstr("is NCCL 2.17.1, but this program knows 2.18 and later"));
  NcclFunctions next = NcclDouble::Functions();
  next.version = [](int* version) {
    *version = 30100;
    return kNcclSuccess;
  };
  const absl::Status later = Nccl::Create(next, "libnccl.so.3").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(later)) << later;
  EXPECT_THAT(std::string(later.message()),
              HasSubstr("libnccl.so.3 is NCCL 3.1.0"));
  next.version = [](int*) { return kNcclSystemError; };
  EXPECT_THAT(
      std::string(Nccl::Create(next, "libnccl.so.2").status().message()),
      HasSubstr("libnccl.so.2 does not say its version"));
}

TEST(NcclTest, ALibraryOfAnotherKindIsRefusedByTheFunctionItLacks) {
  const absl::Status other = StatusOfLoadingNccl("libm.so.6");
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(std::string(other.message()),
              HasSubstr("libm.so.6 has no ncclGetVersion"));
  EXPECT_THAT(
      std::string(StatusOfLoadingNccl(SYNCLINE_FAKE_NCCL_LACKING).message()),
      HasSubstr("has no ncclCommAbort"));
}

TEST(NcclTest, EachKindOfErrorHasItsCode) {
  const auto nccl = NcclDouble::Make();
  const auto code_of = [&](NcclResult result) {
    return nccl->StatusOf(result, "reduce").code();
  };
  EXPECT_EQ(code_of(kNcclSuccess), absl::StatusCode::kOk);
  EXPECT_EQ(code_of(kNcclRemoteError), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code_of(kNcclSystemError), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code_of(kNcclCudaError), absl::StatusCode::kInternal);
  EXPECT_EQ(code_of(kNcclInternalError), absl::StatusCode::kInternal);
  EXPECT_EQ(code_of(kNcclInvalidArgument), absl::StatusCode::kInternal);
  EXPECT_EQ(nccl->StatusOf(kNcclInvalidUsage, "reduce").message(),
            "NCCL 2.28.9: reduce: invalid usage");
}

TEST(NcclTest, ALibraryThatCannotBeginSaysWhy) {
  const auto nccl = Nccl::Load(SYNCLINE_FAKE_NCCL);
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  EXPECT_EQ((*nccl)->MakeId().status(),
            absl::UnavailableError("NCCL 2.28.9: make the id of a group: "
                                   "unhandled system error"));
}

}  // namespace
}  // namespace syncline::cuda
