// Goal: of two schedulers with one state the newer one has it, and the older
// one finds out. Method: claims of one folder, and files that others left.

#include "scheduler/service/state_owner.h"

#include <fstream>
#include <string>

#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/temp_dir.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(StateOwnerTest, AnOlderSchedulerFindsOutThatItWasReplaced) {
  const TempDir dir;
  const auto older = StateOwner::Claim(dir.path(), 7);
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_TRUE((*older)->Check().ok());
  const auto newer = StateOwner::Claim(dir.path(), 8);
  ASSERT_TRUE(newer.ok()) << newer.status();
  absl::Status found;
  EXPECT_TRUE(Eventually(absl::Seconds(20), [&] {
    found = (*older)->Check();
    return !found.ok();
  }));
  EXPECT_EQ(found.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(found.message(), AllOf(HasSubstr("newer scheduler"),
                                     HasSubstr(": 8 "), HasSubstr("epoch 7")));
  EXPECT_TRUE((*newer)->Check().ok());
}

TEST(StateOwnerTest, AnOlderSchedulerDoesNotGetTheState) {
  const TempDir dir;
  ASSERT_TRUE(StateOwner::Claim(dir.path(), 8).ok());
  EXPECT_EQ(StateOwner::Claim(dir.path(), 7).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(StateOwnerTest, AFileThatSaysNothingIsNoOwner) {
  const TempDir dir;
  std::ofstream(dir.File("owner")) << "nonsense";
  const auto owner = StateOwner::Claim(dir.path(), 1);
  ASSERT_TRUE(owner.ok()) << owner.status();
  std::ofstream(dir.File("owner")) << "99";  // torn
  EXPECT_TRUE((*owner)->Check().ok());
}

}  // namespace
}  // namespace syncline::scheduler
