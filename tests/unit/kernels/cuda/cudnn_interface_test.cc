// Goal: descriptors of convolutions are what cuDNN takes. Method: where the
// library is on this machine it describes some, for which it needs no GPU.
// cudnn_interface.cc compares declarations where its headers are.

#include "kernels/cuda/cudnn_interface.h"

#include "gtest/gtest.h"
#include "kernels/cuda/cudnn.h"

namespace syncline::cuda {
namespace {

TEST(CudnnInterfaceTest, TheLibraryTakesOurDescriptors) {
  const auto cudnn = Cudnn::Load();
  if (!cudnn.ok()) GTEST_SKIP() << cudnn.status();
  const CudnnFunctions& f = (*cudnn)->functions();
  const auto check = [&](CudnnStatus status) {
    EXPECT_EQ((*cudnn)->StatusOf(status, "describe"), absl::OkStatus());
  };
  CudnnDescriptor tensor = nullptr;
  CudnnDescriptor filter = nullptr;
  CudnnDescriptor convolution = nullptr;
  check(f.create_tensor(&tensor));
  check(f.create_filter(&filter));
  check(f.create_convolution(&convolution));
  const int dims[] = {2, 4, 5, 6, 7};
  const int strides[] = {840, 210, 42, 7, 1};
  const int weights[] = {6, 2, 3, 2, 1};
  const int ones[] = {1, 1, 1};
  for (const int count : {4, 5}) {
    check(
        f.set_tensor(tensor, kCudnnFloat, count, dims, strides + (5 - count)));
    check(f.set_filter(filter, kCudnnFloat, kCudnnRowMajor, count, weights));
    check(f.set_convolution(convolution, count - 2, ones, ones, ones,
                            kCudnnCrossCorrelation, kCudnnFloat));
  }
  check(f.set_groups(convolution, 2));
  check(f.set_math(convolution, kCudnnFmaMath));
  check(f.set_math(convolution, kCudnnAnyMath));
  const int empty[] = {0, 4, 5, 6, 7};
  EXPECT_TRUE(absl::IsInternal((*cudnn)->StatusOf(
      f.set_tensor(tensor, kCudnnFloat, 5, empty, strides), "describe")));
  check(f.destroy_tensor(tensor));
  check(f.destroy_filter(filter));
  check(f.destroy_convolution(convolution));
}

}  // namespace
}  // namespace syncline::cuda
