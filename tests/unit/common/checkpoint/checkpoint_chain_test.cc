// Goal: a checkpoint needs the files back to the last one with all rows, of
// checkpoints that are committed; each folder has all that it needs.
// Method: histories by hand, and files in a folder of the test.

#include "common/checkpoint/checkpoint_chain.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<uint64_t> CutsOf(const CheckpointChain::Plan& plan) {
  std::vector<uint64_t> cuts;
  for (const StateFileInfo& file : plan.older) cuts.push_back(file.cut_id);
  return cuts;
}

// The plan of a checkpoint of this cut, which is then written.
CheckpointChain::Plan Make(CheckpointChain* chain, uint64_t cut,
                           bool last_is_committed) {
  CheckpointChain::Plan plan = chain->Next(last_is_committed);
  chain->OnWritten(plan.older,
                   {absl::StrCat("/", cut), {.cut_id = cut, .bytes = 1}});
  return plan;
}

TEST(CheckpointChainTest, OneInSoManyHasAllRows) {
  CheckpointChain chain(3);
  EXPECT_TRUE(chain.is_used());
  EXPECT_THAT(CutsOf(Make(&chain, 1, false)), IsEmpty());
  const CheckpointChain::Plan plan = Make(&chain, 2, true);
  EXPECT_THAT(CutsOf(plan), ElementsAre(1));
  EXPECT_EQ(plan.base_cut, 1u);
  EXPECT_EQ(plan.base_folder, "/1");
  EXPECT_THAT(CutsOf(Make(&chain, 3, true)), ElementsAre(1, 2));
  EXPECT_THAT(CutsOf(Make(&chain, 4, true)), IsEmpty());
  EXPECT_THAT(CutsOf(Make(&chain, 5, true)), ElementsAre(4));
  EXPECT_FALSE(CheckpointChain(1).is_used());
}

TEST(CheckpointChainTest, ChangesOfHalfOfTheRowsAreEnough) {
  CheckpointChain chain(1000);
  const auto make = [&](uint64_t cut, uint64_t rows) {
    CheckpointChain::Plan plan = chain.Next(true);
    chain.OnWritten(plan.older, {"/x", {.cut_id = cut, .rows = rows}});
    return CutsOf(plan);
  };
  EXPECT_THAT(make(1, 1'000'000), IsEmpty());
  EXPECT_THAT(make(2, 300'000), ElementsAre(1));
  EXPECT_THAT(make(3, 200'000), ElementsAre(1, 2));
  EXPECT_THAT(make(4, 1), ElementsAre(1, 2, 3));
  EXPECT_THAT(make(5, 1'000'000), IsEmpty()) << "500,001 have changed";
  EXPECT_THAT(make(6, 10), ElementsAre(5));
  // The changes of a small table are no burden.
  CheckpointChain small(1000);
  for (uint64_t cut = 1; cut < 50; ++cut) {
    CheckpointChain::Plan plan = small.Next(true);
    EXPECT_EQ(plan.older.size(), cut - 1);
    small.OnWritten(plan.older, {"/x", {.cut_id = cut, .rows = 100}});
  }
}

TEST(CheckpointChainTest, OneThatIsNotCommittedIsNoBase) {
  CheckpointChain chain(10);
  Make(&chain, 1, false);
  EXPECT_THAT(CutsOf(Make(&chain, 2, false)), IsEmpty());
  EXPECT_THAT(CutsOf(Make(&chain, 3, true)), ElementsAre(2));
  EXPECT_THAT(CutsOf(Make(&chain, 4, false)), ElementsAre(2));
  // One that failed was not written.
  EXPECT_THAT(CutsOf(chain.Next(true)), ElementsAre(2, 4));
  EXPECT_THAT(CutsOf(chain.Next(true)), ElementsAre(2, 4));
}

class LinkTest : public ::testing::Test {
 protected:
  LinkTest() {
    fs::create_directories(dir_.File("2"));
    fs::create_directories(dir_.File("3"));
    EXPECT_OK(WriteFileAtomically(Base(), "two"));
    EXPECT_OK(WriteFileAtomically(OlderStateFile(Base(), 1), "first"));
  }
  std::string Base() const { return dir_.File(absl::StrCat("2/", file_)); }
  std::string Own() const { return dir_.File(absl::StrCat("3/", file_)); }

  const TempDir dir_;
  const std::string file_ = ShardFileName(0, 2);
  CheckpointChain::Plan plan_{
      .base_cut = 2,
      .base_folder = dir_.File("2"),
      .older = {{.cut_id = 1, .bytes = 5}, {.cut_id = 2, .bytes = 3}}};
};

TEST_F(LinkTest, EachFolderHasAllFiles) {
  ASSERT_OK(LinkOlderFiles(plan_, dir_.File("3"), file_));
  ASSERT_OK(LinkOlderFiles(plan_, dir_.File("3"), file_));  // again
  fs::remove_all(dir_.File("2"));
  EXPECT_EQ(*ReadFile(OlderStateFile(Own(), 1), 100), "first");
  EXPECT_EQ(*ReadFile(OlderStateFile(Own(), 2), 100), "two");
  // Those of one shard go, and the folder with the last of them.
  const std::string other = dir_.File(absl::StrCat("3/", ShardFileName(1, 2)));
  ASSERT_OK(WriteFileAtomically(other, "x"));
  ASSERT_OK(WriteFileAtomically(Own(), "three"));
  RemoveShardFiles(dir_.File("3"), file_);
  EXPECT_FALSE(fs::exists(Own()));
  EXPECT_FALSE(fs::exists(OlderStateFile(Own(), 1)));
  EXPECT_TRUE(fs::exists(other));
  RemoveShardFiles(dir_.File("3"), ShardFileName(1, 2));
  EXPECT_FALSE(fs::exists(dir_.File("3")));
}

TEST_F(LinkTest, AFileThatIsGoneOrOfAnotherSizeLeavesNoLink) {
  plan_.older[1].bytes = 4;
  absl::Status linked = LinkOlderFiles(plan_, dir_.File("3"), file_);
  EXPECT_EQ(linked.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(linked.message()), HasSubstr(Base()));
  EXPECT_TRUE(fs::is_empty(dir_.File("3")));
  fs::remove(Base());
  linked = LinkOlderFiles(plan_, dir_.File("3"), file_);
  EXPECT_EQ(linked.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(fs::is_empty(dir_.File("3")));
  EXPECT_FALSE(LinkOlderFiles(plan_, dir_.File("none"), file_).ok());
}

}  // namespace
}  // namespace syncline
