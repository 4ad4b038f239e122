// Goal: a checkpoint that has the changed rows alone gives the same rows and
// bits as one with all, on any number of ps, and needs no folder but its own.
// Method: as checkpoint_test.cc; a job whose rows are for the most part on
// disk makes checkpoints, of which some are not committed; one job goes on, and
// another one starts from the last.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_contents.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/component/checkpoint_fixture.h"

namespace syncline {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointChainTest : public ::testing::Test {
 protected:
  static constexpr int64_t kWarm = 5;
  static constexpr int64_t kEnd = 12;

  CheckpointChainTest() {
    one_.options = WithRows(
        Base(ConsistencySpec::SYNC, OptimizerSpec::ADAM), OptimizerSpec::ADAM,
        [](TableSpec* table) { table->set_memory_bytes(1 << 20); });
    one_.options.ps_count = 2;
    one_.options.table_disk_bytes = 64 << 20;
    one_.options.spill_dir = dir_.path();
    one_.options = WithCheckpoints(one_.options, dir_.path(),
                                   [](CheckpointSpec* checkpoint) {
                                     checkpoint->set_full_tables_every(4);
                                     checkpoint->set_keep_last(1);
                                   });
    one_.keys = 40000;
    one_.rows_a_push = 8000;
    first_ = std::make_unique<PsFixture>(one_.options);
    workers_ = std::make_unique<Workers>(one_, first_.get());
    chief_ = std::make_unique<Chief>(first_.get());
    workers_->Init();
    workers_->Run(0, kWarm);
    clock_ = kWarm;
    one_.rows_a_push = 100;
  }

  // A clock, then a cut: what the shards have there, once all lanes passed it.
  std::vector<std::string> Cut(uint64_t cut_id) {
    workers_->Run(clock_, clock_ + 1);
    ++clock_;
    EXPECT_OK(chief_->BeginCut(cut_id, {clock_, clock_}));
    EXPECT_OK(workers_->worker(0).plain().PullCut(cut_id).status());
    std::vector<std::string> states;
    for (uint32_t ps = 0; ps < first_->ps_count(); ++ps) {
      MemoryStateSink sink;
      EXPECT_OK(first_->server(ps).ExportState(kJob, ps, cut_id, {}, &sink));
      states.push_back(std::move(sink.bytes));
    }
    EXPECT_OK(workers_->worker(0).plain().EndCut(cut_id));
    return states;
  }
  CheckpointInfo Checkpoint(uint64_t cut_id) {
    Cut(cut_id);
    return Finish(cut_id);
  }
  CheckpointInfo Finish(uint64_t cut_id) {
    auto info = chief_->Finish(cut_id, {clock_, clock_}, clock_);
    EXPECT_OK(info.status());
    return info.ok() ? *info : CheckpointInfo();
  }
  static std::string Older(const CheckpointInfo& info, uint32_t shard,
                           uint64_t cut_id) {
    return OlderStateFile(
        absl::StrCat(info.path(), "/", ShardFileName(shard, 2)), cut_id);
  }
  absl::Status StartFrom(const CheckpointInfo& info) {
    PsFixture::Options options = one_.options;
    options.start_from = info;
    return PsFixture(options).opened();
  }

  const TempDir dir_;
  Case one_{"", {}};
  std::unique_ptr<PsFixture> first_;
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<Chief> chief_;
  int64_t clock_ = 0;
};

TEST_F(CheckpointChainTest, ChangedRowsGiveTheSameBitsOnAnotherNumberOfPs) {
  const CheckpointInfo whole = Checkpoint(1);
  const CheckpointInfo changed = Checkpoint(2);
  EXPECT_LT(changed.bytes(), whole.bytes() / 2);
  // The chief gives one up.
  Cut(3);
  ASSERT_OK(chief_->AwaitAll(3, {clock_, clock_}).status());
  const std::vector<std::string> states = Cut(4);
  const CheckpointInfo info = Finish(4);
  EXPECT_LT(info.bytes(), whole.bytes() / 2);
  EXPECT_FALSE(fs::exists(whole.path()));
  EXPECT_FALSE(fs::exists(changed.path()));
  EXPECT_THAT(
      NamesIn(info.path()),
      ElementsAre("manifest", "shard-00000-of-00002.0000000000000001.state",
                  "shard-00000-of-00002.0000000000000002.state",
                  "shard-00000-of-00002.state",
                  "shard-00001-of-00002.0000000000000001.state",
                  "shard-00001-of-00002.0000000000000002.state",
                  "shard-00001-of-00002.state"));
  const Contents at_cut = ContentsOf(states);
  EXPECT_GT(RowsOnDisk(states), 1000u);

  // Without a job.
  const auto manifest = ReadManifest(info.path());
  ASSERT_OK(manifest.status());
  size_t read = 0;
  ASSERT_OK(ReadCheckpoint(
      info.path(), *manifest, nullptr,
      [&](uint32_t table, absl::Span<const int64_t> keys,
          absl::Span<const float> values) {
        for (size_t i = 0; i < keys.size(); ++i) {
          const auto row = at_cut.rows.find({table, keys[i]});
          if (row == at_cut.rows.end() ||
              std::memcmp(row->second.data() + 16, values.data() + i * kDim,
                          kDim * sizeof(float)) != 0) {
            return absl::InternalError(absl::StrCat("key ", keys[i]));
          }
          ++read;
        }
        return absl::OkStatus();
      }));
  EXPECT_EQ(read, at_cut.rows.size());

  ASSERT_NO_FATAL_FAILURE(workers_->Run(clock_, kEnd));
  for (const uint32_t ps_count : {2u, 3u, 1u}) {
    SCOPED_TRACE(ps_count);
    Case restored = one_;
    restored.options.lanes = 3;
    restored.options.ps_count = ps_count;
    restored.options.start_from = info;
    PsFixture second(restored.options);
    ASSERT_OK(second.opened());
    Workers others(restored, &second);
    ASSERT_NO_FATAL_FAILURE(others.Init());
    const std::vector<std::string> begun = others.Export(5, clock_);
    EXPECT_TRUE(ContentsOf(begun) == at_cut);
    if (ps_count == 2) {
      EXPECT_EQ(RowsOnDisk(begun), RowsOnDisk(states));
    }
    ASSERT_NO_FATAL_FAILURE(others.Run(clock_, kEnd));
    const Contents result = ContentsOf(others.Export(6, kEnd));
    const Contents expected = ContentsOf(workers_->Export(10 + ps_count, kEnd));
    EXPECT_TRUE(result.arrays == expected.arrays);
    EXPECT_TRUE(result.rows == expected.rows);
    EXPECT_TRUE(result == expected);
  }
}

TEST_F(CheckpointChainTest, ADamagedOlderFileIsNamedAndNothingIsServed) {
  Checkpoint(1);
  const CheckpointInfo info = Checkpoint(2);
  const auto manifest = ReadManifest(info.path());
  ASSERT_OK(manifest.status());
  ASSERT_OK(ReadCheckpoint(info.path(), *manifest, nullptr, nullptr));
  const std::string file = Older(info, 1, 1);
  const std::string whole = ContentOf(file);
  const auto expect = [&](absl::StatusCode code) {
    const absl::Status read =
        ReadCheckpoint(info.path(), *manifest, nullptr, nullptr);
    EXPECT_EQ(read.code(), code) << read;
    EXPECT_THAT(std::string(read.message()), HasSubstr(file));
    const absl::Status started = StartFrom(info);
    EXPECT_EQ(started.code(), code) << started;
    EXPECT_THAT(std::string(started.message()), HasSubstr(file));
  };
  for (const size_t at : {size_t{3}, whole.size() / 2, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] ^= 4;
    ASSERT_OK(WriteFileAtomically(file, damaged));
    expect(absl::StatusCode::kDataLoss);
  }
  // A whole file of another shard.
  ASSERT_OK(WriteFileAtomically(file, ContentOf(Older(info, 0, 1))));
  expect(absl::StatusCode::kDataLoss);
  ASSERT_OK(WriteFileAtomically(file, whole.substr(0, whole.size() - 100)));
  expect(absl::StatusCode::kDataLoss);
  fs::remove(file);
  expect(absl::StatusCode::kNotFound);
  ASSERT_OK(WriteFileAtomically(file, whole));
  ASSERT_OK(StartFrom(info));
}

TEST_F(CheckpointChainTest, AShardWhoseBaseIsGoneWritesAllRows) {
  const CheckpointInfo first = Checkpoint(1);
  fs::remove(absl::StrCat(first.path(), "/", ShardFileName(0, 2)));
  const std::vector<std::string> states = Cut(2);
  const CheckpointInfo info = Finish(2);
  EXPECT_THAT(NamesIn(info.path()),
              ElementsAre("manifest", "shard-00000-of-00002.state",
                          "shard-00001-of-00002.0000000000000001.state",
                          "shard-00001-of-00002.state"));
  Case restored = one_;
  restored.options.start_from = info;
  PsFixture second(restored.options);
  ASSERT_OK(second.opened());
  Workers others(restored, &second);
  ASSERT_NO_FATAL_FAILURE(others.Init());
  EXPECT_TRUE(ContentsOf(others.Export(5, clock_)) == ContentsOf(states));
  // The job that starts has written nothing that it could go on from.
  ASSERT_NO_FATAL_FAILURE(others.Run(clock_, clock_ + 1));
  Chief chief(&second);
  ASSERT_OK(chief.BeginCut(7, {clock_ + 1, clock_ + 1}));
  ASSERT_OK(others.worker(0).plain().PullCut(7).status());
  ASSERT_OK(others.worker(0).plain().EndCut(7));
  const auto next = chief.Finish(7, {clock_ + 1, clock_ + 1});
  ASSERT_OK(next.status());
  EXPECT_THAT(NamesIn(next->path()),
              ElementsAre("manifest", "shard-00000-of-00002.state",
                          "shard-00001-of-00002.state"));
}

}  // namespace
}  // namespace syncline
