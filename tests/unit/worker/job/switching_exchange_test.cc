// Goal: a change of the strategy that one rank cannot make costs the change and
// not the job: the other ranks hear of it long before they would give the rank
// up. Method: two ranks as threads over InProcessPeers, which share state, and
// of which one has no memory for all of it.

#include "worker/job/switching_exchange.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/borrowed_peer.h"
#include "tests/testing/in_process_peers.h"
#include "tests/testing/status_matchers.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/peer_exchange.h"
#include "worker/peers/peer_link.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kStepTimeout = absl::Seconds(3);
constexpr uint64_t kCutId = 7;
constexpr int64_t kClocks = 2;

// One rank, with parameters of its own.
class Rank {
 public:
  // `after`: the group from the change on. `no_memory`: not OK: why the rank
  // cannot have the state of the other strategy. `closes`: an exchange was
  // begun in vain, which has closed the link of the group.
  Rank(uint32_t rank, InProcessPeers* peers, InProcessPeers* after,
       absl::Status no_memory, bool closes) {
    const std::shared_ptr<PeerLink> link = LinkOf(peers, rank);
    auto first = CreateIn(link, /*replicates=*/false);
    EXPECT_OK(first.status());
    PeerExchange* const shown = first->get();
    SwitchingExchange::Options options;
    options.label = absl::StrCat("job j-test on worker:", rank);
    options.rank = rank;
    options.step_timeout = kStepTimeout;
    options.regimes = RegimeSchedule(
        TrainingRegime{.strategy = TrainingRegime::Strategy::kSharded});
    options.arrays = 3;
    options.join = [after, rank](int64_t) { return LinkOf(after, rank); };
    options.make_peers = [this, no_memory, closes](const RegimeSchedule&,
                                                   std::shared_ptr<PeerLink> in)
        -> absl::StatusOr<std::unique_ptr<PeerExchange>> {
      if (no_memory.ok()) return CreateIn(std::move(in), /*replicates=*/true);
      if (closes) in->Close();
      return no_memory;
    };
    exchange_ = std::make_unique<SwitchingExchange>(std::move(options),
                                                    *std::move(first), shown);
  }

  SwitchingExchange& exchange() { return *exchange_; }
  absl::Status Step(int64_t clock) {
    exchange_->BeginStep(
        {.clock = clock, .sample_count = 1, .finished = clock + 1 == kClocks});
    for (uint32_t t = 0; t < gradients_.size(); ++t) {
      exchange_->OnGradientReady(t);
    }
    exchange_->EndBackward({});
    return exchange_->Wait();
  }

 private:
  static std::shared_ptr<PeerLink> LinkOf(InProcessPeers* peers,
                                          uint32_t rank) {
    return std::make_shared<PeerLink>(
        PeerLink::Options{.label = absl::StrCat("job j-test on worker:", rank),
                          .step_timeout = kStepTimeout},
        BorrowedPeer::Of(peers, rank));
  }
  absl::StatusOr<std::unique_ptr<PeerExchange>> CreateIn(
      std::shared_ptr<PeerLink> link, bool replicates) {
    PeerExchange::Options options;
    options.replicates = replicates;
    options.update.optimizer.kind = OptimizerKind::kAdam;
    options.update.rule.learning_rate.base = 0.01f;
    options.buckets = {.worth = 100, .most = 1000};
    DenseTensors tensors;
    std::vector<TensorSize> sizes;
    for (size_t t = 0; t < values_.size(); ++t) {
      const std::string name = absl::StrCat("t", t);
      tensors.values.push_back(absl::MakeSpan(values_[t]));
      tensors.gradients.push_back(absl::MakeConstSpan(gradients_[t]));
      tensors.names.push_back(name);
      sizes.push_back({name, static_cast<int64_t>(values_[t].size())});
      options.momenta.push_back(std::nullopt);
    }
    return PeerExchange::Create(std::move(options), *OwnedBlocks(sizes, 2),
                                std::move(tensors), std::move(link));
  }

  std::vector<std::vector<float>> values_ = {std::vector<float>(3000, 1),
                                             std::vector<float>(200, 2)};
  std::vector<std::vector<float>> gradients_ = {std::vector<float>(3000, 0.5f),
                                                std::vector<float>(200, 0.25f)};
  std::unique_ptr<SwitchingExchange> exchange_;
};

TEST(SwitchingExchangeTest, ARankWithoutMemoryCostsTheChangeAndNotTheJob) {
  for (int which = 0; which < 4; ++which) {
    const uint32_t poor = which % 2;
    const bool closed = which >= 2;
    SCOPED_TRACE(absl::StrCat(poor, closed ? ", closed" : ""));
    InProcessPeers peers({.ranks = 2, .seed = 1, .epoch = 1});
    InProcessPeers after({.ranks = 2, .seed = 2, .epoch = 2});
    const absl::Status no_memory =
        absl::ResourceExhaustedError("8 MiB are available");
    Rank chief(0, &peers, &after, poor == 0 ? no_memory : absl::OkStatus(),
               closed);
    Rank other(1, &peers, &after, poor == 1 ? no_memory : absl::OkStatus(),
               closed);
    const auto run_other = [&]() -> absl::Status {
      SYNCLINE_RETURN_IF_ERROR(other.exchange().Pull(0));
      SYNCLINE_RETURN_IF_ERROR(other.Step(0));
      EXPECT_TRUE(other.exchange().has_regime_news());
      const auto regimes = other.exchange().FollowRegimes(1);
      SYNCLINE_RETURN_IF_ERROR(regimes.status());
      EXPECT_EQ(regimes->regimes().size(), 1u);
      return other.Step(1);
    };
    const auto run_chief = [&]() -> absl::Status {
      SwitchingExchange& exchange = chief.exchange();
      SYNCLINE_RETURN_IF_ERROR(exchange.Init(kClocks));
      SYNCLINE_RETURN_IF_ERROR(exchange.Pull(0));
      SYNCLINE_RETURN_IF_ERROR(
          exchange
              .BeginCut(
                  {.id = kCutId,
                   .use = CutUse::kRegime,
                   .clocks = {1, 1},
                   .regime =
                       TrainingRegime{
                           .first_clock = 1,
                           .strategy = TrainingRegime::Strategy::kAllReduce}})
              .status());
      SYNCLINE_RETURN_IF_ERROR(chief.Step(0));
      SYNCLINE_RETURN_IF_ERROR(exchange.AwaitCut(kCutId, 1));
      const absl::Time begun = MonotonicNow();
      const absl::Status prepared = exchange.PrepareRegime(kCutId, 1);
      EXPECT_LT(MonotonicNow() - begun, kStepTimeout);
      // Another rank whose link is closed has left the group without a word.
      EXPECT_THAT(std::string(prepared.message()),
                  HasSubstr(closed && poor == 1 ? "" : "8 MiB are available"));
      EXPECT_FALSE(prepared.ok());
      SYNCLINE_RETURN_IF_ERROR(exchange.EndCut(kCutId, 1));
      return chief.Step(1);
    };
    absl::Status other_ended;
    std::thread thread([&] { other_ended = run_other(); });
    EXPECT_OK(run_chief());
    thread.join();
    EXPECT_OK(other_ended);
  }
}

}  // namespace
}  // namespace syncline::worker
