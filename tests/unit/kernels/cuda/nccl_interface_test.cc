// Goal: the library is what its declarations here say. Method: where NCCL is on
// this machine it is loaded, and says its version and its errors, for which it
// needs no GPU. nccl_interface.cc compares declarations where its header is.

#include "kernels/cuda/nccl_interface.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/nccl.h"

namespace syncline::cuda {
namespace {

TEST(NcclInterfaceTest, TheLibraryIsTaken) {
  const auto nccl = Nccl::Load();
  if (!nccl.ok()) GTEST_SKIP() << nccl.status();
  EXPECT_THAT((*nccl)->name(), ::testing::StartsWith("NCCL 2."));
  const absl::Status invalid =
      (*nccl)->StatusOf(kNcclInvalidArgument, "reduce");
  EXPECT_THAT(std::string(invalid.message()),
              ::testing::HasSubstr("invalid argument"));
}

}  // namespace
}  // namespace syncline::cuda
