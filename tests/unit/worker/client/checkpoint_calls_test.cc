// Goal: a checkpoint is whole when each shard has written its part and the
// manifest is there, however long a disk takes; an error names the ps, and ends
// the checkpoint alone. Method: fake ps that answer as they are told.

#include "worker/client/checkpoint_calls.h"

#include <atomic>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/fake_ps.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two ps; the last of three shards has nothing to write.
class CheckpointCallsTest : public ::testing::Test {
 protected:
  CheckpointCalls::Options Options(bool own_folders = false) {
    CheckpointCalls::Options options;
    options.cut_id = 77;
    options.job_id = "j-7";
    options.own_folders = own_folders;
    for (uint32_t shard = 0; shard < 3; ++shard) {
      Caller caller;
      caller.set_job_id("j-7");
      caller.set_shard(shard);
      options.shards.push_back(
          {.peer = {absl::StrCat("ps:", shard % 2), ps_[shard % 2].address()},
           .caller = caller,
           .takes_part = shard < 2});
    }
    return options;
  }
  FakePs::Answer Answer(int ps, const FakePs::Call& call) {
    if (call.method == "AwaitCheckpoint") {
      if (slow_ > 0 && slow_-- > 0) {
        return {.status = {grpc::StatusCode::DEADLINE_EXCEEDED, "writing"}};
      }
      if (full_ == ps) {
        return {.status = {grpc::StatusCode::RESOURCE_EXHAUSTED, "disk full"}};
      }
      AwaitCheckpointResponse response;
      response.set_file(nameless_ == ps ? "" : absl::StrCat("shard-", ps));
      response.set_bytes(100);
      return {.response = response.SerializeAsString()};
    }
    const int commit = ++commits_[ps];
    if (commit == refused_commit_ && ps == 1) {
      return {.status = {grpc::StatusCode::UNAVAILABLE, "disk"}};
    }
    CommitCheckpointResponse response;
    response.set_path(absl::StrCat("/ps", ps, "/c"));
    if (commit > 1) {
      response.add_deleted("/old");
      response.add_deleted(absl::StrCat("/old-", ps));
    }
    return {.response = response.SerializeAsString()};
  }

  std::atomic<int> slow_ = 0;  // so many answers say that it is being written
  std::atomic<int> full_ = -1;
  std::atomic<int> nameless_ = -1;
  std::atomic<int> commits_[2] = {0, 0};
  std::atomic<int> refused_commit_ = 0;  // this one of ps:1
  FakePs ps_[2] = {
      FakePs([this](const FakePs::Call& call) { return Answer(0, call); }),
      FakePs([this](const FakePs::Call& call) { return Answer(1, call); })};
};

TEST_F(CheckpointCallsTest, PartsAreThoseOfTheShards) {
  CheckpointCalls calls(Options());
  EXPECT_EQ(calls.cut_id(), 77u);
  const auto parts = calls.AwaitParts();
  ASSERT_OK(parts.status());
  ASSERT_EQ(parts->size(), 3u);
  EXPECT_EQ((*parts)[0].file, "shard-0");
  EXPECT_EQ((*parts)[1].file, "shard-1");
  EXPECT_EQ((*parts)[2].file, "") << "it has nothing";
}

TEST_F(CheckpointCallsTest, ASlowDiskIsWaitedFor) {
  slow_ = 5;
  CheckpointCalls calls(Options());
  EXPECT_OK(calls.AwaitParts().status());
  EXPECT_LT(slow_, 1);
}

TEST_F(CheckpointCallsTest, AnErrorNamesThePs) {
  full_ = 1;
  const absl::Status full = CheckpointCalls(Options()).AwaitParts().status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(),
              AllOf(HasSubstr("ps:1 at "), HasSubstr("job j-7"),
                    HasSubstr("AwaitCheckpoint"), HasSubstr("disk full")));
  full_ = -1;
  nameless_ = 0;
  const absl::Status nameless =
      CheckpointCalls(Options()).AwaitParts().status();
  EXPECT_EQ(nameless.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(nameless.message(), HasSubstr("ps:0 at "));
}

TEST_F(CheckpointCallsTest, OneManifestInAFolderThatAllSee) {
  const auto committed = CheckpointCalls(Options()).Commit("manifest");
  ASSERT_OK(committed.status());
  EXPECT_EQ(committed->path, "/ps0/c");
  EXPECT_THAT(committed->deleted, ElementsAre("/old", "/old-0"));
}

TEST_F(CheckpointCallsTest, OneManifestForEachPsWithAFolderOfItsOwn) {
  const auto committed =
      CheckpointCalls(Options(/*own_folders=*/true)).Commit("manifest");
  ASSERT_OK(committed.status());
  EXPECT_EQ(committed->path, "/ps0/c");
  EXPECT_THAT(committed->deleted, ElementsAre("/old", "/old-0", "/old-1"));
}

// Else a ps could be without any that the others have.
TEST_F(CheckpointCallsTest, NothingIsDeletedBeforeAllHaveTheManifest) {
  refused_commit_ = 1;
  EXPECT_TRUE(absl::IsUnavailable(
      CheckpointCalls(Options(/*own_folders=*/true)).Commit("m").status()));
  EXPECT_EQ(commits_[0], 1) << "a repeat deletes";
}

TEST_F(CheckpointCallsTest, AWholeCheckpointCountsWhateverIsDeleted) {
  refused_commit_ = 2;
  const auto committed =
      CheckpointCalls(Options(/*own_folders=*/true)).Commit("manifest");
  ASSERT_OK(committed.status());
  EXPECT_THAT(committed->deleted, ElementsAre("/old", "/old-0"));
}

TEST_F(CheckpointCallsTest, CancelEndsAWait) {
  slow_ = 1 << 30;
  CheckpointCalls calls(Options());
  absl::Status ended;
  std::thread waiter([&] { ended = calls.AwaitParts().status(); });
  ps_[0].calls().Await(2);
  calls.Cancel();
  waiter.join();
  EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
  EXPECT_TRUE(absl::IsCancelled(calls.Commit("manifest").status()));
}

}  // namespace
}  // namespace syncline::worker
