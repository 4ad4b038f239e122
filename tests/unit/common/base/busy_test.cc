// Goal: want of room that comes back is told apart from a full disk. Method:
// examples.

#include "common/base/busy.h"

#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(BusyTest, IsResourceExhaustedWithAMark) {
  const absl::Status busy = BusyError("512 bytes are in flight");
  EXPECT_EQ(busy.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(busy.message(), "512 bytes are in flight");
  EXPECT_TRUE(IsBusy(busy));
  EXPECT_FALSE(IsBusy(absl::ResourceExhaustedError("disk full")));
  EXPECT_FALSE(IsBusy(absl::OkStatus()));
}

}  // namespace
}  // namespace syncline
