// Goal: the members of a group hand one gradient to the ps, the sum of theirs
// in the order of ranks, and all have the values that the leader reads; a step
// that one member leaves out is left out by all; an error of the leader's
// exchange, a gradient that is not finite and a lost member are named; while
// the leader waits for the ps, its members wait, too. Method: random steps of
// ranks as threads over InProcessPeers, whose seed orders bytes; the leader's
// exchange is one of this file, which keeps what it is given.

#include "worker/peers/group_exchange.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/borrowed_peer.h"
#include "tests/testing/fakes/idle_exchange.h"
#include "tests/testing/in_process_peers.h"
#include "tests/testing/seed_count.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Tensors = std::vector<std::vector<float>>;

// The ps are given this in a step, and answer it.
struct Pushed {
  int64_t clock = -1;
  uint64_t samples = 0;
  bool abandoned = false;
  bool finished = false;
  Tensors gradient;                  // empty: none
  std::vector<uint32_t> order = {};  // in which tensors came
};

// The ps, to a leader: the values of clock c are c in each element.
class PsOfLeader final : public IdleExchange {
 public:
  struct Log {
    std::vector<Pushed> pushed;
    std::vector<std::string> calls;
    absl::Status wait_status;
    absl::Duration wait_takes;
    absl::Status cancelled;
    bool skips = false;
  };
  PsOfLeader(DenseTensors tensors, Log* log)
      : tensors_(std::move(tensors)), log_(*log) {}

  void Cancel(const absl::Status& reason) override { log_.cancelled = reason; }
  absl::Status Pull(int64_t clock) override {
    Set(clock);
    return absl::OkStatus();
  }
  absl::Status PullCut(uint64_t, int64_t clock) override {
    Set(clock);
    return absl::OkStatus();
  }
  absl::Status Leave(int64_t) override {
    log_.calls.push_back("Leave");
    return absl::OkStatus();
  }
  void BeginStep(const Step& step) override {
    log_.pushed.push_back({.clock = step.clock,
                           .samples = step.sample_count,
                           .finished = step.finished,
                           .gradient = {}});
    pull_ = step.pull;
  }
  void AbandonStep(bool own_values) override {
    EXPECT_FALSE(own_values);
    log_.pushed.back().abandoned = true;
  }
  bool step_abandoned() const override {
    return !log_.pushed.empty() && log_.pushed.back().abandoned;
  }
  bool was_skipped(int64_t) const override { return log_.skips; }
  void OnGradientReady(uint32_t tensor) override {
    Tensors& gradient = log_.pushed.back().gradient;
    gradient.resize(tensors_.gradients.size());
    EXPECT_TRUE(gradient[tensor].empty()) << "each comes once";
    const auto& of = tensors_.gradients[tensor];
    gradient[tensor].assign(of.begin(), of.end());
    log_.pushed.back().order.push_back(tensor);
  }
  absl::Status Wait() override {
    absl::SleepFor(log_.wait_takes);
    if (!log_.wait_status.ok()) return log_.wait_status;
    if (pull_) Set(log_.pushed.back().clock + 1);
    return absl::OkStatus();
  }

 private:
  void Set(int64_t clock) {
    for (const auto& values : tensors_.values) {
      std::fill(values.begin(), values.end(), static_cast<float>(clock));
    }
  }

  const DenseTensors tensors_;
  Log& log_;
  bool pull_ = false;
};

// The members of one group, each with tensors of its own.
class Group {
 public:
  Group(uint32_t members, std::vector<int64_t> sizes, uint64_t seed,
        const GroupExchange::Options& options = {},
        absl::Duration step_timeout = absl::Seconds(60))
      : peers_({.ranks = members, .seed = seed}) {
    std::vector<TensorSize> tensors;
    for (const int64_t size : sizes) {
      tensors.push_back({absl::StrCat("t", tensors.size()), size});
    }
    values_.resize(members);
    gradients_.resize(members);
    for (uint32_t rank = 0; rank < members; ++rank) {
      DenseTensors dense;
      for (const int64_t size : sizes) {
        values_[rank].emplace_back(size, -1.0f);
        gradients_[rank].emplace_back(size, 0.0f);
      }
      for (size_t t = 0; t < sizes.size(); ++t) {
        dense.values.push_back(absl::MakeSpan(values_[rank][t]));
        dense.gradients.push_back(gradients_[rank][t]);
        dense.names.push_back(tensors[t].name);
      }
      auto link = std::make_shared<PeerLink>(
          PeerLink::Options{.label = absl::StrCat("job j-test on rank ", rank),
                            .step_timeout = step_timeout},
          BorrowedPeer::Of(&peers_, rank));
      auto made = GroupExchange::Create(
          options, *OwnedBlocks(tensors, members), dense, link,
          [this](DenseTensors of_leader) {
            return std::make_unique<PsOfLeader>(std::move(of_leader), &log);
          });
      EXPECT_TRUE(made.ok()) << made.status();
      exchanges_.push_back(*std::move(made));
    }
  }
  ~Group() {
    // Each waits until its messages are cancelled.
    Run([this](uint32_t rank) { exchanges_[rank].reset(); });
  }

  // Each rank on a thread of its own.
  void Run(const std::function<void(uint32_t rank)>& run) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < exchanges_.size(); ++rank) {
      threads.emplace_back([&run, rank] { run(rank); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // One step of one rank: `samples` of 0 have no gradient.
  absl::Status Step(uint32_t rank, ParameterExchange::Step step,
                    bool abandons = false) {
    GroupExchange& exchange = *exchanges_[rank];
    exchange.BeginStep(step);
    if (abandons) {
      exchange.AbandonStep(/*own_values=*/true);
    } else if (step.sample_count > 0) {
      for (uint32_t t = static_cast<uint32_t>(values_[rank].size()); t-- > 0;) {
        exchange.OnGradientReady(t);
      }
    }
    exchange.EndBackward({});
    return exchange.Wait();
  }

  GroupExchange& at(uint32_t rank) { return *exchanges_[rank]; }
  Tensors& gradient(uint32_t rank) { return gradients_[rank]; }
  const Tensors& values(uint32_t rank) { return values_[rank]; }
  InProcessPeers& peers() { return peers_; }
  bool AllValuesAre(uint32_t rank, float value) {
    for (const auto& of : values_[rank]) {
      if (!std::all_of(of.begin(), of.end(),
                       [&](float v) { return v == value; })) {
        return false;
      }
    }
    return true;
  }

  PsOfLeader::Log log;

 private:
  InProcessPeers peers_;
  std::vector<Tensors> values_, gradients_;  // by rank
  std::vector<std::unique_ptr<GroupExchange>> exchanges_;
};

TEST(GroupExchangeTest, HandsOverTheSumInTheOrderOfRanks) {
  for (int seed = 0; seed < SeedCount(100); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed + 1);
    const auto members = static_cast<uint32_t>(2 + random.Below(3));
    std::vector<int64_t> sizes;
    for (size_t t = 0; t < 1 + random.Below(4); ++t) {
      sizes.push_back(static_cast<int64_t>(1 + random.Below(3000)));
    }
    constexpr int64_t kClocks = 3;
    // By clock, by rank.
    std::vector<std::vector<uint64_t>> samples(kClocks);
    for (auto& of_clock : samples) {
      for (uint32_t rank = 0; rank < members; ++rank) {
        of_clock.push_back(random.Below(4) == 0 ? 0 : 1 + random.Below(9));
      }
    }
    // The leader reads a cut behind the second step.
    const bool has_cut = random.Below(2) == 0;
    const auto gradient_of = [&](uint32_t rank, int64_t clock, size_t t) {
      Random of(seed * 1000 + clock * 100 + rank * 10 + t);
      std::vector<float> values(sizes[t]);
      for (float& value : values) {
        value = static_cast<float>(of.Normal() * (rank == 1 ? 1e6 : 1));
      }
      return values;
    };
    GroupExchange::Options options;
    options.buckets = {.worth = 1 + random.Below(1500),
                       .most = 1500 + random.Below(1500)};
    Group group(members, sizes, seed, options);
    std::vector<std::string> wrong(members);
    group.Run([&](uint32_t rank) {
      const auto expect = [&](bool holds, const std::string& what) {
        if (!holds && wrong[rank].empty()) wrong[rank] = what;
      };
      expect(group.at(rank).Pull(0).ok(), "pull");
      expect(group.AllValuesAre(rank, 0), "first values");
      for (int64_t clock = 0; clock < kClocks; ++clock) {
        for (size_t t = 0; t < sizes.size(); ++t) {
          const auto gradient = gradient_of(rank, clock, t);
          std::copy(gradient.begin(), gradient.end(),
                    group.gradient(rank)[t].begin());
        }
        const bool last = clock + 1 == kClocks;
        const bool cut = has_cut && clock == 1 && rank == 0;
        const absl::Status status =
            group.Step(rank, {.clock = clock,
                              .sample_count = samples[clock][rank],
                              .finished = last,
                              .pull = !last && !cut});
        expect(status.ok(), status.ToString());
        if (cut) expect(group.at(rank).PullCut(7, clock + 1).ok(), "cut");
        if (!last) {
          expect(group.AllValuesAre(rank, static_cast<float>(clock + 1)),
                 absl::StrCat("values of clock ", clock + 1));
        }
        expect(!group.at(rank).was_left_behind(clock), "left behind");
      }
    });
    for (const std::string& what : wrong) EXPECT_EQ(what, "");
    ASSERT_EQ(group.log.pushed.size(), static_cast<size_t>(kClocks));
    std::vector<uint32_t> order;
    for (int64_t clock = 0; clock < kClocks; ++clock) {
      const Pushed& pushed = group.log.pushed[clock];
      EXPECT_EQ(pushed.clock, clock);
      EXPECT_EQ(pushed.finished, clock + 1 == kClocks);
      EXPECT_FALSE(pushed.abandoned);
      uint64_t all = 0;
      Tensors sums;
      for (uint32_t rank = 0; rank < members; ++rank) {
        if (samples[clock][rank] == 0) continue;
        all += samples[clock][rank];
        for (size_t t = 0; t < sizes.size(); ++t) {
          const auto gradient = gradient_of(rank, clock, t);
          if (sums.size() <= t) {
            sums.push_back(gradient);
            continue;
          }
          for (size_t i = 0; i < gradient.size(); ++i) {
            sums[t][i] += gradient[i];
          }
        }
      }
      EXPECT_EQ(pushed.samples, all);
      EXPECT_TRUE(pushed.gradient == sums) << "clock " << clock;
      // The order does not depend on which member was late, so the leaders of
      // several groups have the same.
      if (pushed.order.empty()) continue;
      if (order.empty()) order = pushed.order;
      EXPECT_EQ(pushed.order, order) << "clock " << clock;
    }
  }
}

TEST(GroupExchangeTest, AStepThatOneLeavesOutIsLeftOutByAll) {
  Group group(3, {40, 7}, 1, {.on_non_finite = OnNonFinite::kSkipStep});
  group.log.skips = true;
  group.Run([&](uint32_t rank) {
    EXPECT_EQ(group.at(rank).Pull(5), absl::OkStatus());
    EXPECT_EQ(group.Step(rank, {.clock = 5, .sample_count = 4},
                         /*abandons=*/rank == 2),
              absl::OkStatus());
    EXPECT_EQ(group.at(rank).step_abandoned(), rank == 2);
    EXPECT_TRUE(group.at(rank).was_left_behind(5));
    EXPECT_TRUE(group.at(rank).was_skipped(5));
    EXPECT_TRUE(group.AllValuesAre(rank, 6));
    // The next one is made by all.
    EXPECT_EQ(group.Step(rank, {.clock = 6, .sample_count = 4}),
              absl::OkStatus());
    EXPECT_FALSE(group.at(rank).step_abandoned());
    EXPECT_FALSE(group.at(rank).was_left_behind(6));
  });
  ASSERT_EQ(group.log.pushed.size(), 2u);
  EXPECT_TRUE(group.log.pushed[0].abandoned);
  EXPECT_TRUE(group.log.pushed[0].gradient.empty());
  EXPECT_EQ(group.log.pushed[0].samples, 12u);
  EXPECT_FALSE(group.log.pushed[1].abandoned);
  EXPECT_EQ(group.log.pushed[1].gradient.size(), 2u);
}

TEST(GroupExchangeTest, AnErrorOfTheLeaderGoesToAllMembers) {
  for (int seed = 0; seed < SeedCount(100); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed + 1);
    Group group(3, {40}, seed);
    group.log.wait_status = absl::UnavailableError("ps:1 is out of reach");
    const auto late = static_cast<uint32_t>(1 + random.Below(2));
    std::vector<absl::Status> ended(3);
    group.Run([&](uint32_t rank) {
      EXPECT_EQ(group.at(rank).Pull(0), absl::OkStatus());
      ended[rank] = group.Step(rank, {.clock = 0, .sample_count = 1});
      // A member that has heard of the failure may end while another waits.
      if (rank == late) absl::SleepFor(absl::Milliseconds(random.Below(3)));
      group.at(rank).Cancel(ended[rank]);
    });
    EXPECT_EQ(ended[0], group.log.wait_status);
    for (const uint32_t rank : {1, 2}) {
      EXPECT_TRUE(absl::IsUnavailable(ended[rank])) << ended[rank];
      EXPECT_THAT(std::string(ended[rank].message()),
                  AllOf(HasSubstr("the leader of its group, rank 0 (worker:0"),
                        HasSubstr("ps:1 is out of reach")));
    }
  }
}

TEST(GroupExchangeTest, AGradientThatIsNotFiniteIsNamed) {
  Group group(3, {40, 9}, 3);
  std::vector<absl::Status> ended(3);
  group.Run([&](uint32_t rank) {
    EXPECT_EQ(group.at(rank).Pull(0), absl::OkStatus());
    if (rank == 1) {
      group.gradient(rank)[1][4] = std::numeric_limits<float>::infinity();
    }
    ended[rank] = group.Step(rank, {.clock = 0, .sample_count = 1});
  });
  for (const Pushed& pushed : group.log.pushed) {
    EXPECT_TRUE(pushed.gradient.size() < 2 || pushed.gradient[1].empty())
        << "the ps would blame the leader for it";
  }
  int named = 0;
  for (const absl::Status& status : ended) {
    EXPECT_FALSE(status.ok());
    if (!absl::IsFailedPrecondition(status)) continue;
    ++named;
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("element 4 of 't1' is inf of rank 1"),
                      HasSubstr("clock 0")));
  }
  EXPECT_GE(named, 1);
}

TEST(GroupExchangeTest, ALostMemberIsNamedAndThePsAreLetGo) {
  Group group(3, {40}, 4);
  std::vector<absl::Status> ended(3);
  group.Run([&](uint32_t rank) {
    EXPECT_EQ(group.at(rank).Pull(0), absl::OkStatus());
    if (rank == 2) return group.peers().Kill(2);
    ended[rank] = group.Step(rank, {.clock = 0, .sample_count = 1});
  });
  EXPECT_TRUE(absl::IsUnavailable(ended[0])) << ended[0];
  EXPECT_THAT(ended[0].message(), HasSubstr("rank 2"));
  EXPECT_FALSE(group.log.cancelled.ok());
  EXPECT_FALSE(ended[1].ok());
}

TEST(GroupExchangeTest, AMissingMemberIsNamed) {
  Group group(2, {40}, 5, {}, absl::Milliseconds(500));
  group.Run([&](uint32_t rank) {
    EXPECT_EQ(group.at(rank).Pull(0), absl::OkStatus());
    if (rank == 1) return;  // it makes no step
    const absl::Status ended =
        group.Step(rank, {.clock = 0, .sample_count = 1});
    EXPECT_TRUE(absl::IsDeadlineExceeded(ended)) << ended;
    EXPECT_THAT(ended.message(), AllOf(HasSubstr("clock 0, gradients of"),
                                       HasSubstr("rank 1 (worker:1")));
  });
}

TEST(GroupExchangeTest, MembersWaitAsLongAsTheLeaderWaitsForThePs) {
  Group group(2, {40}, 6, {}, absl::Milliseconds(400));
  group.log.wait_takes = absl::Milliseconds(1500);
  group.Run([&](uint32_t rank) {
    EXPECT_EQ(group.at(rank).Pull(0), absl::OkStatus());
    EXPECT_EQ(group.Step(rank, {.clock = 0, .sample_count = 1}),
              absl::OkStatus());
  });
}

TEST(GroupExchangeTest, BehindTheLastClockAllLeaveTogether) {
  Group group(3, {40}, 7);
  group.Run([&](uint32_t rank) {
    if (rank == 0) {
      EXPECT_EQ(group.at(0).PullCut(1, 9), absl::OkStatus());
    }
    EXPECT_EQ(group.at(rank).Leave(9), absl::OkStatus());
  });
  EXPECT_TRUE(group.AllValuesAre(0, 9));
  EXPECT_EQ(group.log.calls, std::vector<std::string>{"Leave"});
}

TEST(GroupExchangeTest, CutsAreTheLeaders) {
  Group group(2, {40}, 8);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      group.at(1).BeginCut({.id = 1, .clocks = {3}}).status()));
  EXPECT_FALSE(group.at(1).PullCut(1, 3).ok());
  EXPECT_FALSE(group.at(1).Init(3).ok());
  EXPECT_TRUE(absl::IsUnimplemented(
      group.at(0)
          .BeginCut({.id = 1, .use = CutUse::kRegime, .clocks = {3}})
          .status()));
  EXPECT_EQ(group.at(0).BeginCut({.id = 1, .clocks = {3}}).value(),
            std::vector<int64_t>{3});
  EXPECT_TRUE(absl::IsUnimplemented(group.at(0).ScanTable(
      0, 1, 0, 0, [](auto, auto) { return absl::OkStatus(); })));
}

TEST(GroupExchangeTest, TakesTheMemoryThatItSays) {
  const BlockMap map = *OwnedBlocks({{"a", 1'000'000}, {"b", 500'000}}, 4);
  const int64_t all = 1'500'000 * 4;
  EXPECT_EQ(GroupExchange::MemoryBytes(map, 0),
            all + 3 * map.shard_elements(0) * 4);
  EXPECT_EQ(GroupExchange::MemoryBytes(map, 1), 4 * map.shard_elements(1) * 4);
}

}  // namespace
}  // namespace syncline::worker
