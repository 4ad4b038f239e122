// Goal: a job's record has its checkpoints, by clock, and says what the next
// attempt starts from. Method: reports of a chief, good and bad, and what
// members have found on a disk.

#include "scheduler/core/job/job_checkpoints.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cuts/cut_id.h"
#include "common/job/checkpoint_trouble.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/core/job/regime_history.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;

WorkerReport Whole(int64_t clock, const std::string& path) {
  WorkerReport report;
  report.mutable_checkpoint()->set_clock(clock);
  report.mutable_checkpoint()->set_path(path);
  return report;
}

std::vector<int64_t> Clocks(const JobStatus& job) {
  std::vector<int64_t> clocks;
  for (const CheckpointInfo& one : job.checkpoints()) {
    clocks.push_back(one.clock());
  }
  return clocks;
}

TEST(JobCheckpointsTest, TheNextStartIsTheLastOne) {
  JobStatus job;
  EXPECT_EQ(NextStart(job).clock, 0);
  EXPECT_FALSE(NextStart(job).from.has_value());
  job.set_attempt(3);
  EXPECT_TRUE(TakeCheckpoint(Whole(10, "/a"), 0, &job));
  EXPECT_TRUE(TakeCheckpoint(Whole(20, "/b"), 0, &job));
  EXPECT_EQ(NextStart(job).clock, 20);
  EXPECT_EQ(NextStart(job).from->path(), "/b");
  EXPECT_EQ(NextStart(job).from->attempt(), 3u);
  EXPECT_EQ(StartText(job), "from the checkpoint at clock 20");
}

// Of ALL_REDUCE all ranks write a checkpoint, but for one that the chief saves
// when one of them is lost: what workers keep of compressed gradients is not
// there.
TEST(JobCheckpointsTest, WhatTheChiefHasSavedAloneHasNoResiduals) {
  JobStatus job;
  job.set_attempt(3);
  job.add_workers();
  job.add_workers();
  job.mutable_spec()->set_strategy(ALL_REDUCE);
  job.mutable_spec()->mutable_compression()->set_kind(CompressionSpec::TOP_K);
  const auto path = [](int64_t clock, uint32_t number) {
    return absl::StrFormat(
        "/c/%012d-%016x", clock,
        MakeCutId(/*attempt=*/3, clock, CutSeries::kChief, number));
  };
  // All ranks have, of which there was one then.
  WorkerReport report = Whole(10, path(10, /*number=*/0));
  report.mutable_checkpoint()->set_shards(1);
  ASSERT_TRUE(TakeCheckpoint(report, 0, &job));
  EXPECT_EQ(StartText(job), "from the checkpoint at clock 10");
  report = Whole(20, path(20, kSavedAloneCut));
  report.mutable_checkpoint()->set_shards(1);
  ASSERT_TRUE(TakeCheckpoint(report, 0, &job));
  EXPECT_EQ(StartText(job),
            "from the checkpoint at clock 20, with new residuals of "
            "compression");
  const CheckpointInfo& alone = *job.checkpoints().rbegin();
  EXPECT_TRUE(LacksResiduals(job, alone));

  JobStatus other = job;
  other.mutable_spec()->clear_compression();
  EXPECT_FALSE(LacksResiduals(other, alone));
  other = job;
  other.mutable_spec()->mutable_compression()->set_kind(
      CompressionSpec::TERNGRAD);
  EXPECT_FALSE(LacksResiduals(other, alone)) << "keeps nothing";
  // 1-bit Adam keeps nothing until it sends signs.
  CompressionSpec* const signs = other.mutable_spec()->mutable_compression();
  signs->set_kind(CompressionSpec::ONE_BIT_ADAM);
  signs->set_warmup_clocks(20);
  EXPECT_FALSE(LacksResiduals(other, alone));
  signs->set_warmup_clocks(19);
  EXPECT_TRUE(LacksResiduals(other, alone));
  other = job;
  other.mutable_spec()->set_strategy(PARAMETER_SERVER);
  EXPECT_FALSE(LacksResiduals(other, alone)) << "a ps has written it";
  // By the regime that the job has come to.
  RegimeTransition* const change = other.add_regimes();
  change->mutable_regime()->set_first_clock(15);
  change->mutable_regime()->set_strategy(ALL_REDUCE);
  change->mutable_regime()->set_compression(Regime::COMPRESSED);
  change->mutable_regime()->mutable_compression_spec()->set_kind(
      CompressionSpec::INT8);
  EXPECT_TRUE(LacksResiduals(other, alone));
  change->mutable_regime()->set_first_clock(25);
  EXPECT_FALSE(LacksResiduals(other, alone)) << "made before";
}

TEST(JobCheckpointsTest, AJobMayStartFromAnothersCheckpoint) {
  JobStatus job;
  StartSpec* const start = job.mutable_spec()->mutable_start();
  start->set_checkpoint("/other/c-70");
  start->set_clock(70);
  start->set_shards(2);
  start->set_manifest_crc32c(5);
  StartPoint point = NextStart(job);
  EXPECT_EQ(point.clock, 70);
  EXPECT_EQ(point.from->path(), "/other/c-70");
  EXPECT_EQ(point.from->clock(), 70);
  EXPECT_EQ(point.from->shards(), 2u);
  EXPECT_EQ(point.from->manifest_crc32c(), 5u);
  EXPECT_EQ(StartText(job), "from clock 70, the checkpoint in /other/c-70");
  start->set_weights_only(true);
  point = NextStart(job);
  EXPECT_EQ(point.clock, 0);
  EXPECT_EQ(point.from->clock(), 70);
  EXPECT_EQ(StartText(job), "from clock 0 and the values in /other/c-70");
  // Its own are later.
  EXPECT_TRUE(TakeCheckpoint(Whole(80, "/own"), 0, &job));
  EXPECT_EQ(NextStart(job).clock, 80);
}

TEST(JobCheckpointsTest, WhatWasDeletedOrOvertakenLeaves) {
  JobStatus job;
  for (int clock = 10; clock <= 40; clock += 10) {
    TakeCheckpoint(Whole(clock, absl::StrCat("/", clock)), 0, &job);
  }
  WorkerReport report = Whole(50, "/50");
  report.add_deleted_checkpoints("/20");
  report.add_deleted_checkpoints("/50");  // cannot be: it is whole
  EXPECT_TRUE(TakeCheckpoint(report, 0, &job));
  EXPECT_THAT(Clocks(job), ElementsAre(10, 30, 40, 50));
  EXPECT_FALSE(TakeCheckpoint(report, 0, &job));  // again
  // A late repeat of what is no more.
  EXPECT_FALSE(TakeCheckpoint(Whole(20, "/20"), 0, &job));
  EXPECT_THAT(Clocks(job), ElementsAre(10, 30, 40, 50));
  // An attempt that began at clock 10 has written other ones.
  job.set_attempt(2);
  EXPECT_TRUE(TakeCheckpoint(Whole(40, "/40-b"), 10, &job));
  EXPECT_THAT(Clocks(job), ElementsAre(10, 30, 40));
  EXPECT_EQ(job.checkpoints(2).path(), "/40-b");
  WorkerReport deleted;
  deleted.mutable_checkpoint();
  deleted.add_deleted_checkpoints("/10");
  EXPECT_TRUE(TakeCheckpoint(deleted, 0, &job));
  EXPECT_THAT(Clocks(job), ElementsAre(30, 40));
}

// In ASYNC, while the slowest worker is in a long step.
TEST(JobCheckpointsTest, OfTwoOfOneClockTheLaterCounts) {
  JobStatus job;
  WorkerReport first = Whole(50, "/a");
  first.mutable_checkpoint()->mutable_time()->set_seconds(1);
  WorkerReport second = Whole(50, "/b");
  second.mutable_checkpoint()->mutable_time()->set_seconds(2);
  EXPECT_TRUE(TakeCheckpoint(first, 0, &job));
  EXPECT_TRUE(TakeCheckpoint(second, 0, &job));
  EXPECT_FALSE(TakeCheckpoint(second, 0, &job));
  EXPECT_FALSE(TakeCheckpoint(first, 0, &job)) << "a repeat that came late";
  ASSERT_EQ(job.checkpoints_size(), 1);
  EXPECT_EQ(job.checkpoints(0).path(), "/b");
}

TEST(JobCheckpointsTest, NonsenseIsNotTaken) {
  JobStatus job;
  EXPECT_FALSE(TakeCheckpoint(Whole(10, ""), 0, &job));
  EXPECT_FALSE(TakeCheckpoint(Whole(10, std::string(1201, 'x')), 0, &job));
  EXPECT_FALSE(TakeCheckpoint(Whole(9, "/9"), 10, &job));
  EXPECT_FALSE(TakeCheckpoint(Whole(-1, "/"), 0, &job));
  EXPECT_TRUE(job.checkpoints().empty());
}

TEST(JobCheckpointsTest, TheRecordIsBounded) {
  JobStatus job;
  for (int clock = 1; clock <= kCheckpointsMax + 5; ++clock) {
    TakeCheckpoint(Whole(clock, absl::StrCat("/", clock)), 0, &job);
  }
  EXPECT_EQ(job.checkpoints_size(), kCheckpointsMax);
  EXPECT_EQ(job.checkpoints(0).clock(), 6);
}

std::string Damaged(const std::string& path) {
  return absl::StrCat("checkpoint ", path, ": ", kDamagedCheckpoint, ": torn");
}
std::string Unseen(const std::string& path) {
  return absl::StrCat("checkpoint ", path, ": ", kUnseenCheckpoint, ": EIO");
}

TEST(JobCheckpointsTest, ADamagedOneLeavesIfThereIsOneBefore) {
  JobStatus job;
  TakeCheckpoint(Whole(10, "/a"), 0, &job);
  EXPECT_FALSE(DropDamaged({Damaged("/a")}, &job));
  TakeCheckpoint(Whole(20, "/b"), 0, &job);
  EXPECT_FALSE(DropDamaged({}, &job));
  EXPECT_FALSE(DropDamaged({Damaged("/b"), "data.train: none"}, &job));
  EXPECT_FALSE(DropDamaged({Damaged("/a")}, &job));
  EXPECT_THAT(Clocks(job), ElementsAre(10, 20));
  // One ps sees that it is damaged; others do not come so far.
  EXPECT_TRUE(DropDamaged({Unseen("/b"), Damaged("/b")}, &job));
  EXPECT_THAT(Clocks(job), ElementsAre(10));
}

TEST(JobCheckpointsTest, OnlyDamageIsAReasonToLoseOne) {
  JobStatus job;
  TakeCheckpoint(Whole(10, "/a"), 0, &job);
  TakeCheckpoint(Whole(20, "/b"), 0, &job);
  EXPECT_FALSE(DropDamaged({Unseen("/b")}, &job));
  EXPECT_FALSE(DropDamaged(
      {"checkpoint /b: table 'emb': --table-memory has no room"}, &job));
  EXPECT_THAT(Clocks(job), ElementsAre(10, 20));
}

TEST(JobCheckpointsTest, OneThatIsNotSeenMayBeSeenLater) {
  JobStatus job;
  TakeCheckpoint(Whole(10, "/a"), 0, &job);
  const StartPoint start = NextStart(job);
  job.set_attempt(2);
  EXPECT_TRUE(IsUnseen({Unseen("/a"), Unseen("/a")}, start, job));
  EXPECT_FALSE(IsUnseen({}, start, job));
  EXPECT_FALSE(IsUnseen({Unseen("/a"), Damaged("/a")}, start, job));
  EXPECT_FALSE(IsUnseen({Unseen("/a"), "data.train: none"}, start, job));
  EXPECT_FALSE(IsUnseen({"checkpoint /a: of another model"}, start, job));
  EXPECT_FALSE(IsUnseen({Unseen("/other")}, start, job));
  EXPECT_FALSE(IsUnseen({Unseen("/a")}, {}, job)) << "it starts from none";
  // Nobody has seen it: its path may be wrong.
  job.set_attempt(1);
  EXPECT_FALSE(IsUnseen({Unseen("/a")}, start, job));
}

FoundCheckpoint Found(int64_t clock, uint32_t attempt, int64_t second) {
  FoundCheckpoint found;
  found.mutable_checkpoint()->set_path(absl::StrCat("/c/j/", clock));
  found.mutable_checkpoint()->set_clock(clock);
  found.mutable_checkpoint()->set_attempt(attempt);
  found.mutable_checkpoint()->mutable_time()->set_seconds(second);
  return found;
}

class FoundCheckpointsTest : public ::testing::Test {
 protected:
  FoundCheckpointsTest() {
    job_.set_attempt(3);
    for (const int64_t clock : {225, 250}) {
      *job_.add_checkpoints() =
          Found(clock, /*attempt=*/3, /*second=*/clock).checkpoint();
    }
    start_ = NextStart(job_);
  }
  bool Take(const std::vector<FoundCheckpoint>& found) {
    return TakeFound(found, start_, absl::FromUnixSeconds(1000), &job_);
  }

  JobStatus job_;
  StartPoint start_;
};

TEST_F(FoundCheckpointsTest, LaterOnesTakeThePlaceOfTheOneThatIsGone) {
  EXPECT_TRUE(Take({Found(300, 3, 300), Found(325, 3, 325)}));
  EXPECT_THAT(Clocks(job_), ElementsAre(300, 325));
  EXPECT_EQ(NextStart(job_).from->path(), "/c/j/325");
  // Those that are not gone stay.
  start_ = NextStart(job_);
  EXPECT_TRUE(Take({Found(300, 3, 300), Found(350, 4, 350)}));
  EXPECT_THAT(Clocks(job_), ElementsAre(300, 350));
  EXPECT_EQ(NextStart(job_).from->attempt(), 4u);
}

TEST_F(FoundCheckpointsTest, OnlyThoseMadeAfterItByTheJobCount) {
  EXPECT_FALSE(Take({}));
  EXPECT_FALSE(Take({Found(225, 3, 225)})) << "an earlier clock";
  EXPECT_FALSE(Take({Found(300, 2, 300)})) << "the job has gone back from it";
  EXPECT_FALSE(Take({Found(300, 3, 249)})) << "of a former job with this id";
  FoundCheckpoint other = Found(300, 3, 300);
  other.mutable_checkpoint()->set_path("/c/k/300");
  EXPECT_FALSE(Take({other})) << "another folder";
  EXPECT_FALSE(Take({Found(250, 3, 250), Found(300, 3, 300)})) << "is there";
  EXPECT_THAT(Clocks(job_), ElementsAre(225, 250));
  // The chief has reported a later one meanwhile.
  TakeCheckpoint(Whole(275, "/c/j/275"), 0, &job_);
  EXPECT_FALSE(Take({Found(300, 3, 300)}));
  EXPECT_THAT(Clocks(job_), ElementsAre(225, 250, 275));
}

// It starts from what another job has made.
TEST_F(FoundCheckpointsTest, AJobWithoutAnyOfItsOwnTakesNone) {
  job_.clear_checkpoints();
  EXPECT_FALSE(Take({Found(300, 3, 300)}));
}

TEST_F(FoundCheckpointsTest, TheRegimeOfTheCheckpointHolds) {
  job_.mutable_spec()->mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  BeginRegimes(0, absl::UnixEpoch(), &job_);
  FoundCheckpoint found = Found(300, 3, 300);
  *found.add_regimes() = RegimesInForce(job_)[0];
  Regime* const later = found.add_regimes();
  later->set_first_clock(275);
  later->mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  EXPECT_TRUE(Take({found}));
  const std::vector<Regime> regimes = RegimesInForce(job_);
  ASSERT_EQ(regimes.size(), 2u);
  EXPECT_EQ(regimes[1].first_clock(), 275);
  EXPECT_EQ(regimes[1].consistency().mode(), ConsistencySpec::ASYNC);
}

TEST_F(FoundCheckpointsTest, OneOfARegimeThatIsNotKnownIsLeftOut) {
  FoundCheckpoint found = Found(325, 3, 325);
  found.add_regimes()->set_group_size(4096);
  EXPECT_TRUE(Take({Found(300, 3, 300), found}));
  EXPECT_THAT(Clocks(job_), ElementsAre(300));
}

TEST_F(FoundCheckpointsTest, AllWhoHaveFoundSomeMustHaveIt) {
  const std::vector<FoundCheckpoint> all = {
      Found(300, 3, 300), Found(325, 3, 325), Found(350, 3, 350)};
  FoundCheckpoint other = all[1];
  other.mutable_checkpoint()->set_manifest_crc32c(7);
  const auto both = FoundByAll({all, {other, all[2]}});
  ASSERT_EQ(both.size(), 1u);
  EXPECT_EQ(both[0].checkpoint().clock(), 350);
  EXPECT_EQ(FoundByAll({all}).size(), 3u);
  EXPECT_TRUE(FoundByAll({}).empty());
}

}  // namespace
}  // namespace syncline::scheduler
