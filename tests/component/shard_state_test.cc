// Goal: a shard that begins with the state of another goes on with the same
// bits: values, optimizer state, update counts, running means, rows with their
// past, filters, and who has pushed what.
// Method: a job runs some clocks on one set of ps and is exported at a cut. It
// runs on there, and on new ps with another number of lanes, which begin with
// the states. At a later cut both are exported again, and must be the same,
// record by record. Each optimizer, each mode; tables with admission, expiry
// and rows on disk; other numbers of ps.

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/state/row_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_state.pb.h"
#include "server/shard/shard_exporter.h"
#include "server/shard/shard_importer.h"
#include "tests/component/shard_state_fixture.h"
#include "tests/testing/fakes/shard_states.h"
#include "tests/testing/process_memory.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using Kind = ShardStateKind;

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

uint64_t Resident() { return ProcessMemoryBytes(getpid(), "VmRSS"); }

class ShardStateTest : public ::testing::TestWithParam<Case> {};

TEST_P(ShardStateTest, ANewShardGoesOnWithTheSameBits) {
  constexpr int64_t kCut = 6;
  constexpr int64_t kEnd = 12;
  const TempDir dir;
  Case one = GetParam();
  if (one.options.table_disk_bytes > 0) one.options.spill_dir = dir.path();
  PsFixture first(one.options);
  Workers workers(one, &first);
  ASSERT_NO_FATAL_FAILURE(workers.Init());
  ASSERT_NO_FATAL_FAILURE(workers.Run(0, kCut));
  const std::vector<std::string> states = workers.Export(1, kCut);
  ASSERT_NO_FATAL_FAILURE(workers.Run(kCut, kEnd));

  Case restored = one;
  restored.options.lanes = one.restored_lanes;
  restored.options.states = states;
  if (one.restored_ps > 0) restored.options.ps_count = one.restored_ps;
  PsFixture second(restored.options);
  Workers others(restored, &second);
  const Contents at_cut = ContentsOf(states);
  EXPECT_EQ(at_cut.workers[0].first, kCut);
  EXPECT_EQ(at_cut.total_clocks, kTotalClocks);
  EXPECT_EQ(at_cut.rows.size() > 50, one.rows_a_push > 0);
  EXPECT_EQ(RowsOnDisk(states) > 0, one.options.table_disk_bytes > 0);
  EXPECT_TRUE(ContentsOf(others.Export(2, kCut)) == at_cut);
  ASSERT_NO_FATAL_FAILURE(others.Run(kCut, kEnd));
  const Contents expected = ContentsOf(workers.Export(2, kEnd));
  const Contents result = ContentsOf(others.Export(3, kEnd));
  EXPECT_TRUE(result.arrays == expected.arrays) << "values or slots";
  EXPECT_TRUE(result.updates == expected.updates);
  EXPECT_EQ(result.rows.size(), expected.rows.size());
  EXPECT_TRUE(result.rows == expected.rows);
  EXPECT_TRUE(result == expected) << "counts";
  EXPECT_FALSE(result.arrays == at_cut.arrays) << "nothing was learnt";
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto dense = [&](const std::string& name, ConsistencySpec::Mode mode,
                         OptimizerSpec::Kind kind) {
    Case one{name, Base(mode, kind)};
    one.rows_a_push = 0;
    cases.push_back(one);
  };
  dense("Sgd", ConsistencySpec::SYNC, OptimizerSpec::SGD);
  dense("Momentum", ConsistencySpec::ASYNC, OptimizerSpec::MOMENTUM);
  dense("Nesterov", ConsistencySpec::BOUNDED_STALENESS,
        OptimizerSpec::NESTEROV);
  dense("Adagrad", ConsistencySpec::SYNC, OptimizerSpec::ADAGRAD);
  dense("Adam", ConsistencySpec::SYNC, OptimizerSpec::ADAM);
  dense("AdamW", ConsistencySpec::BOUNDED_STALENESS, OptimizerSpec::ADAMW);
  dense("RmsProp", ConsistencySpec::ASYNC, OptimizerSpec::RMSPROP);
  dense("Ftrl", ConsistencySpec::SYNC, OptimizerSpec::FTRL);
  {
    Case one{"LambClipped", Base(ConsistencySpec::SYNC, OptimizerSpec::LAMB)};
    one.rows_a_push = 0;
    one.options.ps_count = 2;
    one.options.spec = [base = one.options.spec](JobSpec* spec) {
      base(spec);
      spec->mutable_optimizer()->set_clip_norm(5);
    };
    cases.push_back(one);
  }
  const auto rows = [&](const std::string& name, ConsistencySpec::Mode mode,
                        OptimizerSpec::Kind kind,
                        std::function<void(TableSpec*)> change) {
    Case one{name, WithRows(Base(mode, OptimizerSpec::ADAM), kind, change)};
    cases.push_back(one);
  };
  rows("RowsOfSgd", ConsistencySpec::SYNC, OptimizerSpec::SGD, nullptr);
  rows("RowsOfAdagradAndExpiry", ConsistencySpec::SYNC, OptimizerSpec::ADAGRAD,
       [](TableSpec* table) {
         table->mutable_expiry()->set_unseen_clocks(2);
         table->mutable_expiry()->set_min_score(0.5);
         table->mutable_expiry()->set_decay(0.6);
         table->mutable_expiry()->set_decay_clocks(2);
       });
  rows("RowsOfRowWiseAdagradAndAdmission", ConsistencySpec::ASYNC,
       OptimizerSpec::ROW_WISE_ADAGRAD, [](TableSpec* table) {
         table->mutable_admission()->set_min_sightings(4);
         table->mutable_admission()->set_filter_bytes(8192);
       });
  rows("RowsOfAdamAndChance", ConsistencySpec::BOUNDED_STALENESS,
       OptimizerSpec::ADAM, [](TableSpec* table) {
         table->mutable_admission()->set_probability(0.3);
       });
  rows("RowsOfFtrl", ConsistencySpec::SYNC, OptimizerSpec::FTRL, nullptr);
  Case spilled = cases.back();
  spilled.name = "RowsOnDisk";
  spilled.options = WithRows(Base(ConsistencySpec::SYNC, OptimizerSpec::ADAM),
                             OptimizerSpec::ADAM, [](TableSpec* table) {
                               table->set_memory_bytes(1 << 20);
                               table->mutable_admission()->set_probability(0.6);
                             });
  spilled.options.table_disk_bytes = 64 << 20;
  spilled.keys = 40000;
  spilled.rows_a_push = 8000;
  cases.push_back(spilled);
  Case fewer = cases[cases.size() - 2];
  fewer.name = "TwoShardsBecomeOne";
  fewer.options.ps_count = 2;
  fewer.restored_ps = 1;
  cases.push_back(fewer);
  Case more = cases[cases.size() - 3];
  more.name = "OneShardBecomesThree";
  more.restored_ps = 3;
  more.restored_lanes = 1;
  cases.push_back(more);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Jobs, ShardStateTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// A worker that has lost the answer sends its push again, to the new shard.
TEST(ShardStateRepeatTest, APushBeforeTheCutIsAnsweredAsRecorded) {
  Case one{"", WithRows(Base(ConsistencySpec::ASYNC, OptimizerSpec::SGD),
                        OptimizerSpec::SGD)};
  PsFixture first(one.options);
  Workers workers(one, &first);
  ASSERT_NO_FATAL_FAILURE(workers.Init());
  ASSERT_NO_FATAL_FAILURE(workers.Run(0, 3));
  one.options.states = workers.Export(1, 3);
  PsFixture second(one.options);
  Workers others(one, &second);
  others.Push(0, 2);
  others.Push(1, 0);
  EXPECT_TRUE(ContentsOf(others.Export(2, 3)) ==
              ContentsOf(one.options.states));
  // And an Init that comes late changes nothing.
  ASSERT_NO_FATAL_FAILURE(others.Init());
  EXPECT_TRUE(ContentsOf(others.Export(3, 3)) ==
              ContentsOf(one.options.states));
}

TEST(ShardStateExportTest, OnlyAHeldCutIsExported) {
  Case one{"", WithRows(Base(ConsistencySpec::SYNC, OptimizerSpec::ADAM),
                        OptimizerSpec::ADAM)};
  PsFixture fixture(one.options);
  Workers workers(one, &fixture);
  ASSERT_NO_FATAL_FAILURE(workers.Init());
  MemoryStateSink sink;
  EXPECT_THAT(
      MessageOf(fixture.server(0).ExportState("j-0001", 0, 1, {}, &sink)),
      HasSubstr("cut 1 is not announced"));
  EXPECT_EQ(fixture.server(0).ExportState("j-2", 0, 1, {}, &sink).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_NO_FATAL_FAILURE(workers.Run(0, 1));
  PlainWorker& chief = workers.worker(0).plain();
  ASSERT_OK(chief.BeginCut(1, {2, 2}));
  EXPECT_THAT(
      MessageOf(fixture.server(0).ExportState("j-0001", 0, 1, {}, &sink)),
      HasSubstr("cut 1 is not passed yet"));
  ASSERT_NO_FATAL_FAILURE(workers.Run(1, 2));
  ASSERT_OK(chief.PullCut(1).status());
  MemoryStateSink small(10000);
  EXPECT_EQ(fixture.server(0).ExportState("j-0001", 0, 1, {}, &small),
            absl::ResourceExhaustedError("the sink is full"));
  // A sink in whose middle the cut ends: no state that has both sides of it.
  class EndsTheCut : public ShardStateSink {
   public:
    explicit EndsTheCut(PlainWorker* chief) : chief_(chief) {}
    absl::Status Append(absl::string_view, absl::string_view) override {
      if (++records_ == 3) EXPECT_OK(chief_->EndCut(1));
      return absl::OkStatus();
    }

   private:
    PlainWorker* const chief_;
    int records_ = 0;
  } ends(&chief);
  EXPECT_THAT(
      MessageOf(fixture.server(0).ExportState("j-0001", 0, 1, {}, &ends)),
      HasSubstr("cut 1 has ended"));
}

// The other way would be two copies of a shard.
TEST(ShardStateExportTest, MemoryIsBoundedByAPiece) {
  PsFixture::Options options = Base(ConsistencySpec::SYNC, OptimizerSpec::ADAM,
                                    /*workers=*/1);
  options.tensor_sizes = {8 << 20};  // 32 MiB, and twice as much of slots
  options.momenta = {};
  PsFixture fixture(options);
  PlainWorker chief(&fixture, 0);
  for (uint32_t id = 0; id < fixture.map().blocks().size(); ++id) {
    InitRequest request;
    *request.mutable_header()->mutable_caller() = chief.caller();
    request.mutable_header()->set_total_clocks(kTotalClocks);
    request.mutable_header()->add_blocks(id);
    request.set_payload(
        std::string(fixture.map().blocks()[id].count * sizeof(float), '\1'));
    InitResponse response;
    ASSERT_TRUE(fixture.stub(0)
                    .Init(MakeContext(absl::Now() + kPsTimeout).get(), request,
                          &response)
                    .ok());
  }
  ASSERT_OK(chief.BeginCut(1, {0}));
  class Counts : public ShardStateSink {
   public:
    absl::Status Append(absl::string_view head,
                        absl::string_view bulk) override {
      bytes += head.size() + bulk.size();
      EXPECT_LE(head.size() + bulk.size(), kShardStateRecordMax);
      most = std::max(most, Resident());
      return absl::OkStatus();
    }
    uint64_t bytes = 0;
    uint64_t most = 0;
  } counts;
  const uint64_t before = Resident();
  ASSERT_OK(fixture.server(0).ExportState("j-0001", 0, 1, {}, &counts));
  EXPECT_GT(counts.bytes, uint64_t{96} << 20);
  EXPECT_LT(counts.most, before + (uint64_t{12} << 20));
}

}  // namespace
}  // namespace syncline
