// Goal: a cut that workers are past when shards hear of it is raised and read
// as one state, and ends nobody's client. Method: real ps, workers that train
// as fast as they can, and an evaluator that asks for cuts at clock 0. Each
// worker's gradient is a number of its own, so that the values at a cut tell
// how many steps of each worker they have.

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/regime/job_regimes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/snapshot_taker.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"
#include "worker/client/ps_client.h"

namespace syncline {
namespace {

using ::testing::Each;

constexpr uint32_t kWorkers = 2;
constexpr int64_t kBound = 2;
constexpr int kCuts = 9;
// Sums of these below 2^24 are exact in float32.
constexpr float kGradients[kWorkers] = {1, 4096};
constexpr int64_t kClocksMax = 4000;

// Notes the cuts at which it is asked for a snapshot, with how many lanes were.
class CountingTaker : public ps::SnapshotTaker {
 public:
  void OnSnapshot(uint64_t cut_id, absl::Span<const int64_t> clocks,
                  int lane) override {
    MutexLock lock(&mu_);
    open_[cut_id].clocks.assign(clocks.begin(), clocks.end());
    EXPECT_TRUE(open_[cut_id].lanes.insert(lane).second);
  }
  void OnSnapshotDone(uint64_t cut_id) override {
    MutexLock lock(&mu_);
    EXPECT_EQ(static_cast<int>(open_[cut_id].lanes.size()),
              PsFixture::Options().lanes);
    taken_.Add({cut_id, open_[cut_id].clocks});
  }

  // True once it has a snapshot at these clocks; then the id.
  uint64_t IdAt(const std::vector<int64_t>& clocks) {
    const std::vector<Taken> all =
        taken_.AwaitThat([&](const std::vector<Taken>& taken) {
          return !taken.empty() && taken.back().second == clocks;
        });
    return all.empty() || all.back().second != clocks ? 0 : all.back().first;
  }

 private:
  struct Snapshot {
    std::vector<int64_t> clocks;
    std::set<int> lanes;
  };
  using Taken = std::pair<uint64_t, std::vector<int64_t>>;
  Mutex mu_;
  std::map<uint64_t, Snapshot> open_ ABSL_GUARDED_BY(mu_);  // by cut
  WaitLog<Taken> taken_;
};

CutUse UseOf(uint64_t id) {
  return id % 3 == 0 ? CutUse::kCheckpoint : CutUse::kEvaluation;
}

class CutRaisingTest : public ::testing::TestWithParam<ConsistencySpec::Mode> {
 protected:
  CutRaisingTest()
      : fixture_({.ps_count = 2,
                  .workers = kWorkers,
                  .evaluator = true,
                  .snapshot_taker = [this](uint32_t ps) { return takers_[ps]; },
                  .spec =
                      [](JobSpec* spec) {
                        spec->mutable_consistency()->set_mode(GetParam());
                        if (GetParam() != ConsistencySpec::BOUNDED_STALENESS)
                          return;
                        spec->mutable_consistency()->set_staleness_bound(
                            kBound);
                      }}) {}

  // A client and its tensors.
  struct Rank {
    std::vector<std::vector<float>> values;
    std::vector<std::vector<float>> gradients;
    std::unique_ptr<worker::PsClient> client;
  };
  std::unique_ptr<Rank> MakeRank(uint32_t rank, float gradient) {
    auto made = std::make_unique<Rank>();
    worker::PsClient::Options options;
    options.job_id = fixture_.assignment().job_id();
    options.rank = rank;
    options.incarnation = 100 + rank;
    options.pass = kTestPass;
    options.cut_series =
        rank == kWorkers ? CutSeries::kEvaluator : CutSeries::kChief;
    options.regimes = *ReadRegimes(fixture_.assignment());
    for (uint32_t ps = 0; ps < fixture_.ps_count(); ++ps) {
      options.ps.push_back({absl::StrCat("ps:", ps), fixture_.address(ps)});
    }
    worker::DenseTensors tensors;
    for (const int64_t size : PsFixture::Options().tensor_sizes) {
      made->values.emplace_back(size, 0.0f);
      made->gradients.emplace_back(size, gradient);
    }
    for (size_t i = 0; i < made->values.size(); ++i) {
      tensors.values.push_back(absl::MakeSpan(made->values[i]));
      tensors.gradients.push_back(made->gradients[i]);
    }
    made->client = std::make_unique<worker::PsClient>(options, fixture_.map(),
                                                      std::move(tensors));
    return made;
  }
  // Steps until the test ends; in the end as many as every other worker.
  absl::Status Train(Rank* rank) {
    SYNCLINE_RETURN_IF_ERROR(rank->client->Pull(0));
    for (int64_t clock = 0; clock < kClocksMax; ++clock) {
      rank->client->BeginStep({.clock = clock,
                               .sample_count = 1,
                               .finished = clock + 1 == kClocksMax,
                               .pull = clock + 1 < kClocksMax});
      for (uint32_t tensor = 0; tensor < rank->values.size(); ++tensor) {
        rank->client->OnGradientReady(tensor);
      }
      rank->client->EndBackward({});
      SYNCLINE_RETURN_IF_ERROR(rank->client->Wait());
      ++steps_;
    }
    return absl::OkStatus();
  }
  // The value that SGD at rate 1 reaches with the steps below the cut. In SYNC
  // the mean of the workers' gradients counts.
  static float ValueAt(const std::vector<int64_t>& clocks) {
    double value = 0;
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      value -= static_cast<double>(clocks[rank]) * kGradients[rank];
    }
    if (GetParam() == ConsistencySpec::SYNC) value /= kWorkers;
    return static_cast<float>(value);
  }

  // By ps.
  const std::vector<std::shared_ptr<CountingTaker>> takers_ = {
      std::make_shared<CountingTaker>(), std::make_shared<CountingTaker>()};
  PsFixture fixture_;
  std::atomic<int64_t> steps_{0};
};

TEST_P(CutRaisingTest, ACutAtClockZeroIsRaisedAndReadWhileWorkersTrain) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    ranks.push_back(MakeRank(rank, kGradients[rank]));
  }
  const auto evaluator = MakeRank(kWorkers, 0);
  ASSERT_OK(ranks[0]->client->Init(kClocksMax));
  std::vector<absl::Status> trained(kWorkers);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back(
        [&, rank] { trained[rank] = Train(ranks[rank].get()); });
  }
  bool passed = false;
  const absl::Cleanup over = [&] {
    for (const auto& rank : ranks) {
      if (!passed) rank->client->Cancel(absl::CancelledError("failed"));
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : trained) EXPECT_OK(status);
  };
  ASSERT_TRUE(Eventually(absl::Seconds(60), [&] { return steps_ > 0; }));
  std::vector<int64_t> last(kWorkers, 0);
  for (uint64_t id = 1; id <= kCuts; ++id) {
    const absl::StatusOr<std::vector<int64_t>> agreed =
        evaluator->client->BeginCut(
            {.id = id,
             .use = UseOf(id),
             .clocks = std::vector<int64_t>(kWorkers, 0),
             .hold = absl::Hours(1)});
    ASSERT_OK(agreed.status());
    EXPECT_GT((*agreed)[0] + (*agreed)[1], 0) << "raised";
    EXPECT_GE((*agreed)[0], last[0]);
    EXPECT_GE((*agreed)[1], last[1]);
    last = *agreed;
    ASSERT_OK(evaluator->client->PullCut(id, last[0]));
    for (const std::vector<float>& values : evaluator->values) {
      ASSERT_THAT(values, Each(ValueAt(*agreed))) << "cut " << id;
    }
    if (UseOf(id) == CutUse::kCheckpoint) {
      const uint64_t taken = takers_[0]->IdAt(last);
      EXPECT_NE(taken, 0u) << "a snapshot of the agreed cut";
      EXPECT_EQ(takers_[1]->IdAt(last), taken);
    }
    ASSERT_OK(evaluator->client->EndCut(id, last[0]));
  }
  passed = true;
}

INSTANTIATE_TEST_SUITE_P(Modes, CutRaisingTest,
                         ::testing::Values(ConsistencySpec::SYNC,
                                           ConsistencySpec::BOUNDED_STALENESS,
                                           ConsistencySpec::ASYNC),
                         [](const auto& mode) {
                           return ConsistencySpec::Mode_Name(mode.param);
                         });

}  // namespace
}  // namespace syncline
