// Goal: cuDNN is loaded, or it is said what is wrong with it and what to do;
// each of its errors has a code and says what was asked for. Method: libraries
// of this test in the place of NVIDIA's, and the double of tests.

#include "kernels/cuda/cudnn.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_emulator/cudnn_double.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline::cuda {
namespace {

using ::testing::AllOf;
using testing::CudnnDouble;
using ::testing::HasSubstr;

absl::Status StatusOfLoading(const std::string& file) {
  return Cudnn::Load(file).status();
}

TEST(CudnnTest, SaysItsVersion) {
  const auto cudnn = Cudnn::Load(SYNCLINE_FAKE_CUDNN);
  ASSERT_TRUE(cudnn.ok()) << cudnn.status();
  EXPECT_EQ((*cudnn)->name(), "cuDNN 9.19.2");
  EXPECT_EQ(testing::MakeCudnnDouble()->name(), "cuDNN 9.19.0");
}

TEST(CudnnTest, AMissingLibraryIsNamedWithWhatToDo) {
  const absl::Status status = StatusOfLoading("libno-such-library.so.9");
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("cuDNN 9, CUDA's library of convolutions, is not "
                      "on this machine: libno-such-library.so.9"),
            HasSubstr("install cuDNN 9"), HasSubstr("--convolutions=own")));
}

TEST(CudnnTest, AnotherVersionIsRefusedByItsNumber) {
  const absl::Status old = StatusOfLoading(SYNCLINE_FAKE_CUDNN_8);
  EXPECT_TRUE(absl::IsFailedPrecondition(old)) << old;
  EXPECT_THAT(std::string(old.message()),
              HasSubstr("is cuDNN 8.9.7, but this program is built for 9"));
  CudnnFunctions next = testing::CudnnDoubleFunctions();
  next.version = [] { return size_t{100200}; };
  const absl::Status later = Cudnn::Create(next, "libcudnn.so.9").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(later)) << later;
  EXPECT_THAT(std::string(later.message()),
              HasSubstr("libcudnn.so.9 is cuDNN 10.2.0"));
}

TEST(CudnnTest, ALibraryOfAnotherKindIsRefusedByTheFunctionItLacks) {
  const absl::Status other = StatusOfLoading("libm.so.6");
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(std::string(other.message()),
              HasSubstr("libm.so.6 has no cudnnGetVersion"));
  const absl::Status part = StatusOfLoading(SYNCLINE_FAKE_CUDNN_LACKING);
  EXPECT_TRUE(absl::IsFailedPrecondition(part)) << part;
  EXPECT_THAT(std::string(part.message()),
              HasSubstr("has no cudnnConvolutionForward"));
}

TEST(CudnnTest, ALibraryThatCannotBeginSaysWhy) {
  const auto cudnn = Cudnn::Load(SYNCLINE_FAKE_CUDNN);
  ASSERT_TRUE(cudnn.ok()) << cudnn.status();
  testing::EmulatedDevice device;
  const absl::Status status =
      (*cudnn)->With(device, "try", [](CudnnHandle) { return kCudnnSuccess; });
  EXPECT_EQ(status, absl::FailedPreconditionError(
                        "cuDNN 9.19.2: begin: CUDNN_STATUS_FAKE: no"));
}

TEST(CudnnTest, EachKindOfErrorHasItsCode) {
  const auto cudnn = testing::MakeCudnnDouble();
  const auto code_of = [&](CudnnStatus status) {
    return cudnn->StatusOf(status, "choose").code();
  };
  using absl::StatusCode;
  EXPECT_EQ(code_of(kCudnnSuccess), StatusCode::kOk);
  for (const int detail : {1, 2, 5, 8}) {
    EXPECT_EQ(code_of(1000 + detail), StatusCode::kFailedPrecondition);
  }
  for (const int detail : {0, 2, 3, 6, 8}) {
    EXPECT_EQ(code_of(kCudnnBadParameter + detail), StatusCode::kInternal);
  }
  for (const int detail : {0, 2, 4, 10, 14}) {
    EXPECT_EQ(code_of(kCudnnNotSupported + detail), StatusCode::kUnimplemented);
  }
  for (const int detail : {5, 6, 7, 8, 9}) {
    EXPECT_EQ(code_of(kCudnnNotSupported + detail),
              StatusCode::kFailedPrecondition);
  }
  for (const int detail : {0, 1, 2, 5, 6}) {
    EXPECT_EQ(code_of(kCudnnInternalError + detail), StatusCode::kInternal);
  }
  EXPECT_EQ(code_of(kCudnnHostAllocationFailed),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(code_of(kCudnnDeviceAllocationFailed),
            StatusCode::kResourceExhausted);
  for (const int detail : {0, 1, 2, 3}) {
    EXPECT_EQ(code_of(kCudnnExecutionFailed + detail), StatusCode::kInternal);
  }
  EXPECT_EQ(cudnn->StatusOf(2000, "choose").message(),
            "cuDNN 9.19.0: choose: CUDNN_STATUS_2000");
}

TEST(CudnnTest, ItsStateIsMadeOnceAndDestroyedWithIt) {
  auto cudnn = testing::MakeCudnnDouble();
  EXPECT_EQ(CudnnDouble().handles, 0);
  testing::EmulatedDevice device;
  CudnnHandle first = nullptr;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(cudnn->With(device, "try",
                          [&](CudnnHandle handle) {
                            if (first == nullptr) first = handle;
                            EXPECT_EQ(handle, first);
                            return kCudnnSuccess;
                          }),
              absl::OkStatus());
  }
  EXPECT_EQ(CudnnDouble().handles, 1);
  cudnn = nullptr;
  EXPECT_EQ(CudnnDouble().handles, 0);
}

// A library that could not begin is tried again: a driver may be replaced.
TEST(CudnnTest, TriesToBeginAgain) {
  const auto cudnn = testing::MakeCudnnDouble();
  testing::EmulatedDevice device;
  const auto call = [](CudnnHandle) { return kCudnnSuccess; };
  CudnnDouble().fails_at = "create";
  for (const CudnnStatus status : {kCudnnNotInitialized, kCudnnNotSupported}) {
    CudnnDouble().fails_with = status;
    EXPECT_TRUE(absl::IsFailedPrecondition(cudnn->With(device, "try", call)));
  }
  CudnnDouble().fails_at = "";
  EXPECT_EQ(cudnn->With(device, "try", call), absl::OkStatus());
}

}  // namespace
}  // namespace syncline::cuda
