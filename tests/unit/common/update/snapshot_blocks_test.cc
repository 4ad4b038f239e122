// Goal: whatever lanes do meanwhile, the writer gets each block once, as it was
// at the moment; no lane waits if there is room for copies; nobody waits for
// ever.
// Method: blocks whose numbers are their block and their version. Interleavings
// by hand, then lanes that change blocks as fast as they can, with many
// reserves.

#include "common/update/snapshot_blocks.h"

#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using Taken = SnapshotBlocks::Taken;

DenseUpdater::Options Adam() {
  DenseUpdater::Options options;
  options.optimizer.kind = OptimizerKind::kAdam;
  return options;
}

class SnapshotBlocksTest : public ::testing::Test {
 protected:
  static constexpr size_t kArrays = 3;  // of Adam

  void Make(const std::vector<size_t>& counts,
            std::optional<uint64_t> copy_bytes = {},
            absl::Duration wait_max = absl::Seconds(20)) {
    counts_ = counts;
    dense_ = std::make_unique<DenseUpdater>(Adam(), counts);
    std::vector<size_t> floats;
    for (const size_t count : counts) floats.push_back(count * kArrays);
    blocks_ = std::make_unique<SnapshotBlocks>(
        SnapshotBlocks::Options{.label = "job", .wait_max = wait_max},
        dense_.get(), CopyReserve(floats, copy_bytes));
    for (uint32_t block = 0; block < counts.size(); ++block) Fill(block, 0);
  }
  // The block's lane changes it.
  void Write(uint32_t block, int version) {
    blocks_->BeforeWrite(block);
    Fill(block, version);
  }
  void Fill(uint32_t block, int version) {
    for (int array = 0; array < static_cast<int>(kArrays); ++array) {
      for (float& value : dense_->mutable_array(block, array)) {
        value = static_cast<float>(version * 10 + array);
      }
    }
    dense_->SetUpdates(block, version);
  }
  // The version that the writer was given; -1: parts of several.
  int VersionOf(const Taken& taken) const {
    const size_t count = counts_[taken.block];
    for (size_t i = 0; i < count * kArrays; ++i) {
      const auto expected =
          static_cast<float>(taken.updates * 10 + static_cast<int>(i / count));
      if (taken.state[i] != expected) return -1;
    }
    return static_cast<int>(taken.updates);
  }
  std::vector<uint32_t> All() const {
    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < counts_.size(); ++i) all.push_back(i);
    return all;
  }
  std::optional<Taken> Next() {
    const auto next =
        blocks_->Next(snapshot_, MonotonicNow() + absl::Seconds(20));
    EXPECT_TRUE(next.ok()) << next.status();
    return next.ok() ? *next : std::nullopt;
  }

  std::vector<size_t> counts_;
  std::unique_ptr<DenseUpdater> dense_;
  std::unique_ptr<SnapshotBlocks> blocks_;
  uint64_t snapshot_ = 0;  // the latest
};

TEST_F(SnapshotBlocksTest, BlocksThatStayAreTakenWhereTheyAre) {
  Make({5, 3});
  snapshot_ = blocks_->Begin();
  blocks_->Mark(All());
  std::map<uint32_t, int> got;
  while (const auto taken = Next()) {
    EXPECT_EQ(taken->place, nullptr);
    got[taken->block] = VersionOf(*taken);
    blocks_->Done(*taken);
  }
  EXPECT_EQ(got, (std::map<uint32_t, int>{{0, 0}, {1, 0}}));
  EXPECT_EQ(blocks_->counts().copies, 0u);
}

TEST_F(SnapshotBlocksTest, ABlockThatChangesIsTakenAsItWas) {
  Make({5, 3, 4});
  snapshot_ = blocks_->Begin();
  blocks_->Mark(All());
  for (const int version : {1, 2, 3}) Write(1, version);
  std::map<uint32_t, int> got;
  while (const auto taken = Next()) {
    got[taken->block] = VersionOf(*taken);
    blocks_->Done(*taken);
    Write(taken->block, 9);  // what is given may change
  }
  EXPECT_EQ(got, (std::map<uint32_t, int>{{0, 0}, {1, 0}, {2, 0}}));
  EXPECT_EQ(blocks_->counts().copies, 1u);
  EXPECT_EQ(blocks_->counts().waits, 0u);
}

TEST_F(SnapshotBlocksTest, WithoutASnapshotNothingIsCopied) {
  Make({5});
  Write(0, 1);
  EXPECT_EQ(blocks_->counts().copies, 0u);
  EXPECT_FALSE(blocks_->Next(snapshot_, MonotonicNow()).ok());
}

TEST_F(SnapshotBlocksTest, WithoutRoomALaneWaitsUntilTheWriterHasItsBlock) {
  Make({5, 3, 4}, 0);
  snapshot_ = blocks_->Begin();
  blocks_->Mark(All());
  std::atomic<bool> written = false;
  std::thread lane([&] {
    Write(2, 1);
    written = true;
  });
  while (blocks_->counts().waits == 0) std::this_thread::yield();
  EXPECT_FALSE(written);
  const auto taken = Next();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->block, 2u) << "the one that a lane waits for comes first";
  EXPECT_EQ(VersionOf(*taken), 0);
  lane.join();
}

TEST_F(SnapshotBlocksTest, APlaceThatIsFreeAgainIsUsed) {
  Make({4, 4}, 4 * kArrays * sizeof(float));
  snapshot_ = blocks_->Begin();
  blocks_->Mark(All());
  Write(0, 1);
  std::thread lane([&] { Write(1, 1); });
  while (blocks_->counts().waits == 0) std::this_thread::yield();
  std::map<uint32_t, int> got;
  while (const auto taken = Next()) {
    got[taken->block] = VersionOf(*taken);
    blocks_->Done(*taken);
  }
  lane.join();
  EXPECT_EQ(got, (std::map<uint32_t, int>{{0, 0}, {1, 0}}));
}

TEST_F(SnapshotBlocksTest, AnAbortFreesEverybody) {
  Make({5, 3}, 0);
  snapshot_ = blocks_->Begin();
  blocks_->Mark(All());
  std::thread lane([&] { Write(0, 1); });
  while (blocks_->counts().waits == 0) std::this_thread::yield();
  blocks_->Abort(absl::CancelledError("gone"));
  lane.join();
  EXPECT_EQ(blocks_->Next(snapshot_, MonotonicNow()).status(),
            absl::CancelledError("gone"));
  // The next one is whole.
  snapshot_ = blocks_->Begin();
  blocks_->Mark(All());
  std::map<uint32_t, int> got;
  while (const auto taken = Next()) {
    got[taken->block] = VersionOf(*taken);
    blocks_->Done(*taken);
  }
  EXPECT_EQ(got, (std::map<uint32_t, int>{{0, 1}, {1, 0}}));
}

TEST_F(SnapshotBlocksTest, ALaneThatHasWaitedLongEnoughGoesOn) {
  Make({5}, 0, absl::Milliseconds(20));
  snapshot_ = blocks_->Begin();
  blocks_->Mark(All());
  Write(0, 1);
  const absl::Status why = blocks_->Next(snapshot_, MonotonicNow()).status();
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
}

TEST_F(SnapshotBlocksTest, ALaneThatDoesNotComeIsNotWaitedForForEver) {
  Make({5, 3});
  snapshot_ = blocks_->Begin();
  blocks_->Mark({1});
  EXPECT_TRUE(Next().has_value());
  const auto next =
      blocks_->Next(snapshot_, MonotonicNow() + absl::Milliseconds(5));
  EXPECT_EQ(next.status().code(), absl::StatusCode::kDeadlineExceeded);
}

// Else the second one would lack what the first one's writer was given.
TEST_F(SnapshotBlocksTest, AWriterGetsNothingOfALaterSnapshot) {
  Make({5, 3});
  const uint64_t first = blocks_->Begin();
  snapshot_ = blocks_->Begin();
  blocks_->Mark(All());
  Write(0, 1);  // a copy, and a block where it is
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(
        absl::IsCancelled(blocks_->Next(first, MonotonicNow()).status()));
  }
  std::map<uint32_t, int> got;
  while (const auto taken = Next()) {
    got[taken->block] = VersionOf(*taken);
    blocks_->Done(*taken);
  }
  EXPECT_EQ(got, (std::map<uint32_t, int>{{0, 0}, {1, 0}}));
}

TEST_F(SnapshotBlocksTest, ASecondSnapshotTakesThePlaceOfTheFirst) {
  Make({5, 3});
  snapshot_ = blocks_->Begin();
  blocks_->Mark(All());
  Write(0, 1);
  const auto first = Next();
  ASSERT_TRUE(first.has_value());
  snapshot_ = blocks_->Begin();
  blocks_->Mark({0});
  // Its place is the writer's until it is done.
  std::thread lane([&] { Write(0, 2); });
  while (blocks_->counts().waits == 0) std::this_thread::yield();
  EXPECT_EQ(VersionOf(*first), 0);
  blocks_->Done(*first);
  lane.join();
  blocks_->Mark({1});
  std::map<uint32_t, int> got;
  while (const auto taken = Next()) {
    got[taken->block] = VersionOf(*taken);
    blocks_->Done(*taken);
  }
  EXPECT_EQ(got, (std::map<uint32_t, int>{{0, 1}, {1, 0}}));
}

// Lanes at full speed, snapshots one after the other, some of them given up.
TEST_F(SnapshotBlocksTest, EachSnapshotIsWholeWhateverLanesDo) {
  constexpr int kLanes = 3;
  constexpr int kSnapshots = 60;
  for (const uint64_t places : {0, 1, 3, 100}) {
    SCOPED_TRACE(places);
    Make(std::vector<size_t>(12, 200), places * 200 * kArrays * sizeof(float));
    // Each lane marks its blocks between two writes, as it is told.
    std::atomic<int> told = 0;
    std::atomic<bool> over = false;
    std::vector<std::vector<int>> versions(
        kSnapshots, std::vector<int>(counts_.size(), -1));
    std::vector<std::atomic<int>> marked(kSnapshots);
    std::vector<std::thread> lanes;
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes.emplace_back([&, lane] {
        Random random(static_cast<uint64_t>(lane) + 1);
        std::vector<uint32_t> own;
        for (uint32_t b = static_cast<uint32_t>(lane); b < counts_.size();
             b += kLanes) {
          own.push_back(b);
        }
        std::vector<int> version(counts_.size());
        int seen = 0;
        while (!over) {
          if (const int snapshot = told; snapshot > seen) {
            seen = snapshot;
            for (const uint32_t block : own) {
              versions[snapshot - 1][block] = version[block];
            }
            blocks_->Mark(own);
            ++marked[snapshot - 1];
          }
          const uint32_t block = own[random.Below(own.size())];
          Write(block, ++version[block]);
        }
      });
    }
    for (int snapshot = 0; snapshot < kSnapshots; ++snapshot) {
      snapshot_ = blocks_->Begin();
      told = snapshot + 1;
      const bool gives_up = snapshot % 4 == 3;
      std::map<uint32_t, int> got;
      while (const auto taken = Next()) {
        ASSERT_TRUE(got.emplace(taken->block, VersionOf(*taken)).second);
        blocks_->Done(*taken);
        if (gives_up && got.size() == 5) break;
      }
      if (gives_up) blocks_->Abort(absl::CancelledError("given up"));
      // Lanes that were told of a snapshot mark it before the next one begins.
      while (marked[snapshot] < kLanes) std::this_thread::yield();
      for (const auto& [block, version] : got) {
        ASSERT_EQ(version, versions[snapshot][block]) << "block " << block;
      }
      ASSERT_EQ(got.size(), gives_up ? 5 : counts_.size());
    }
    over = true;
    for (std::thread& lane : lanes) lane.join();
    EXPECT_EQ(blocks_->counts().copies > 0, places > 0);
  }
}

}  // namespace
}  // namespace syncline
