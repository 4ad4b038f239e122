// Goal: a HYBRID job writes one checkpoint of both its parts, rows by the ps
// and blocks by the ranks, and a job that starts from it ends with the bits of
// one that nothing happened to, whichever of HYBRID and PARAMETER_SERVER has
// written it, and for other numbers of ps. Method: ps and workers in this
// process, real files; the files of results are compared byte for byte.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/job/checkpoint_trouble.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/component/table_training_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct TrainedJob {
  TrainingCluster::Outcome outcome;
  std::vector<CheckpointInfo> checkpoints;
  std::vector<std::string> troubles;
};

class HybridCheckpointTest : public TableTrainingTest {
 protected:
  // Twelve clocks for two workers, in two epochs.
  static JobSpec MixedSpec() {
    JobSpec spec = TableSpecOf(OptimizerSpec::ADAM);
    spec.mutable_learning_rate()->set_base(0.05f);
    spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
    spec.mutable_tables(0)->mutable_optimizer()->set_kind(
        OptimizerSpec::ROW_WISE_ADAGRAD);
    return spec;
  }
  static JobSpec Saving(JobSpec spec) {
    spec.mutable_checkpoint()->set_every_clocks(7);
    return spec;
  }

  TrainedJob Train(Strategy strategy, uint32_t ps, JobSpec spec,
                   const std::optional<CheckpointInfo>& from = {},
                   uint32_t workers = 2) {
    spec.set_strategy(strategy);
    const std::string name = absl::StrCat("c", ++clusters_);
    if (spec.has_checkpoint()) {
      spec.mutable_checkpoint()->set_directory(
          dir_.File(name + "-checkpoints"));
    }
    TrainingCluster cluster(
        {.workers = workers,
         .ps = ps,
         .work_dir = dir_.File(name),
         .data_root = dir_.path(),
         .change_assignment = [&](JobAssignment* assignment) {
           if (!from.has_value()) return;
           *assignment->mutable_start_from() = *from;
           if (!spec.start().weights_only()) {
             assignment->set_start_clock(from->clock());
           }
         }});
    TrainedJob run;
    run.outcome = cluster.RunJob(spec, ModelText("40"));
    for (const DaemonMessage& message : cluster.Messages(0)) {
      if (message.report().has_checkpoint()) {
        run.checkpoints.push_back(message.report().checkpoint());
      }
      if (absl::StartsWith(message.report().activity(), kCheckpointTrouble)) {
        run.troubles.push_back(message.report().activity());
      }
    }
    return run;
  }

  static const std::string& Bytes(const TrainedJob& run) {
    return run.outcome.artifacts.at("trained.safetensors");
  }
};

TEST_F(HybridCheckpointTest, AJobGoesOnWithoutATrace) {
  const TrainedJob reference = Train(PARAMETER_SERVER, 2, MixedSpec());
  ASSERT_OK(reference.outcome.status);
  for (const Strategy writer : {HYBRID, PARAMETER_SERVER}) {
    SCOPED_TRACE(absl::StrCat("written by ", Strategy_Name(writer)));
    const TrainedJob written = Train(writer, 2, Saving(MixedSpec()));
    ASSERT_OK(written.outcome.status);
    EXPECT_TRUE(Bytes(written) == Bytes(reference));
    ASSERT_THAT(written.checkpoints, SizeIs(1));
    EXPECT_THAT(written.troubles, SizeIs(0));
    EXPECT_EQ(written.checkpoints[0].shards(), writer == HYBRID ? 4u : 2u);
    const std::pair<Strategy, uint32_t> kReaders[] = {
        {HYBRID, 2}, {HYBRID, 1}, {HYBRID, 3}, {PARAMETER_SERVER, 2}};
    for (const auto& [reader, ps] : kReaders) {
      if (reader == PARAMETER_SERVER && writer == reader) continue;
      SCOPED_TRACE(
          absl::StrCat("read by ", Strategy_Name(reader), ", ", ps, " ps"));
      const TrainedJob read =
          Train(reader, ps, MixedSpec(), written.checkpoints[0]);
      ASSERT_OK(read.outcome.status);
      EXPECT_TRUE(Bytes(read) == Bytes(reference))
          << "other bits; largest difference "
          << LargestDifference(read.outcome.weights, reference.outcome.weights);
      ASSERT_FALSE(read.outcome.evaluations.empty());
      EXPECT_EQ(read.outcome.evaluations.back().loss(),
                reference.outcome.evaluations.back().loss());
    }
  }
}

// The rows' mode does not matter to the cut: the dense part holds all ranks at
// one clock.
TEST_F(HybridCheckpointTest, RowsInAnotherModeAreCutAtOneClockToo) {
  JobSpec spec = MixedSpec();
  spec.mutable_table_consistency()->set_mode(ConsistencySpec::ASYNC);
  const TrainedJob written = Train(HYBRID, 2, Saving(spec), {}, /*workers=*/3);
  ASSERT_OK(written.outcome.status);
  ASSERT_FALSE(written.checkpoints.empty());
  EXPECT_THAT(written.troubles, SizeIs(0));
  const auto manifest = ReadManifest(written.checkpoints[0].path());
  ASSERT_OK(manifest.status());
  for (const auto& worker : manifest->workers()) {
    EXPECT_EQ(worker.clock(), manifest->clock());
  }
  EXPECT_OK(Train(HYBRID, 2, spec, written.checkpoints[0], 3).outcome.status);
  // Alone, a worker's order is the order.
  const TrainedJob whole = Train(HYBRID, 2, Saving(spec), {}, /*workers=*/1);
  ASSERT_OK(whole.outcome.status);
  ASSERT_FALSE(whole.checkpoints.empty());
  const TrainedJob read =
      Train(HYBRID, 1, spec, whole.checkpoints.back(), /*workers=*/1);
  ASSERT_OK(read.outcome.status);
  EXPECT_TRUE(Bytes(read) == Bytes(whole));
}

TEST_F(HybridCheckpointTest, ValuesAloneBeginAJob) {
  const TrainedJob written = Train(HYBRID, 2, Saving(MixedSpec()));
  ASSERT_OK(written.outcome.status);
  ASSERT_FALSE(written.checkpoints.empty());
  const CheckpointInfo& from = written.checkpoints[0];
  JobSpec later = TableSpecOf(OptimizerSpec::ADAGRAD);
  later.mutable_start()->set_checkpoint(from.path());
  later.mutable_start()->set_manifest_crc32c(from.manifest_crc32c());
  later.mutable_start()->set_weights_only(true);
  const TrainedJob hybrid = Train(HYBRID, 1, later, from, /*workers=*/3);
  const TrainedJob by_ps =
      Train(PARAMETER_SERVER, 1, later, from, /*workers=*/3);
  ASSERT_OK(hybrid.outcome.status);
  ASSERT_OK(by_ps.outcome.status);
  EXPECT_TRUE(Bytes(hybrid) == Bytes(by_ps));
  later.clear_start();
  EXPECT_FALSE(Bytes(Train(HYBRID, 1, later, {}, 3)) == Bytes(hybrid))
      << "the values must have been taken";
}

// Each part's damage is named by who reads it: ranks the blocks, ps the rows.
TEST_F(HybridCheckpointTest, APartThatIsDamagedIsRefusedByName) {
  const TrainedJob written = Train(HYBRID, 2, Saving(MixedSpec()));
  ASSERT_OK(written.outcome.status);
  ASSERT_FALSE(written.checkpoints.empty());
  const CheckpointInfo& from = written.checkpoints[0];
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(from.path())) {
    files.insert(entry.path().filename().string());
  }
  EXPECT_THAT(files, SizeIs(5)) << "four parts and the manifest";
  for (const char* part :
       {"shard-00001-of-00004.state", "shard-00002-of-00004.state"}) {
    SCOPED_TRACE(part);
    const std::string path = absl::StrCat(from.path(), "/", part);
    const std::string copy = dir_.File("copy");
    std::filesystem::copy_file(
        path, copy, std::filesystem::copy_options::overwrite_existing);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path)) /
               2);
    file.put('\x5a');
    file.close();
    const TrainedJob read = Train(HYBRID, 2, MixedSpec(), from);
    EXPECT_THAT(std::string(read.outcome.status.message()),
                AllOf(HasSubstr(from.path()), HasSubstr(part)))
        << read.outcome.status;
    std::filesystem::copy_file(
        copy, path, std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_OK(Train(HYBRID, 2, MixedSpec(), from).outcome.status);
}

}  // namespace
}  // namespace syncline
