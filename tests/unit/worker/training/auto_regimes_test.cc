// Goal: a job finds the regime in which its loss falls fastest by the clock on
// the wall, never spends more clocks on trials than it may, and says why it
// decides so. Method: jobs in simulated time whose loss falls as each regime
// says, with noise.

#include "worker/training/auto_regimes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/job/regime_rules.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Mode = ConsistencySpec::Mode;

// How a job trains by a mode.
struct Speed {
  double step_seconds = 0.1;
  double fall = 0.001;  // of the distance to the floor, in a second
  bool is_finite = true;
};

struct World {
  std::string spec = "auto_regime {} resources { workers: 4 }";
  int64_t clocks = 20'000;
  double first_loss = 2.3;
  double floor = 0.1;
  double noise = 0.002;  // of each step's loss
  std::map<Mode, Speed> speeds = {{ConsistencySpec::SYNC, {}},
                                  {ConsistencySpec::BOUNDED_STALENESS, {}},
                                  {ConsistencySpec::ASYNC, {}}};
  // From this clock on; 0: never.
  int64_t later_from = 0;
  std::map<Mode, Speed> later = {};
  double refused = 0;  // the chance that a change is not to be had
  Mode refused_mode = ConsistencySpec::MODE_UNSPECIFIED;  // never to be had
  int64_t spent = 0;
};

// A job, clock by clock.
class Job {
 public:
  Job(const World& world, uint64_t seed)
      : world_(world), random_(seed), loss_(world.first_loss) {
    EXPECT_TRUE(
        google::protobuf::TextFormat::ParseFromString(world.spec, &spec_));
    spec_.mutable_consistency()->set_mode(ConsistencySpec::SYNC);
    const uint32_t workers = spec_.resources().workers();
    const auto regimes = AutoRegimesOf(spec_, workers);
    EXPECT_TRUE(regimes.ok()) << regimes.status();
    const auto plan = PlanTrials(spec_, workers, world.clocks);
    EXPECT_TRUE(plan.ok()) << plan.status();
    plan_ = *plan;
    regime_ = (*regimes)[0];
    auto_.emplace(AutoRegimes::Options{.spec = spec_,
                                       .workers = workers,
                                       .current = regime_,
                                       .candidates = *regimes,
                                       .plan = plan_,
                                       .spent = world.spent,
                                       .clocks_total = world.clocks});
  }

  void Run(int64_t until = std::numeric_limits<int64_t>::max()) {
    for (; clock_ < std::min(until, world_.clocks); ++clock_) {
      Ask();
      Step();
      if (!pending_.has_value() || pending_->clock > clock_ + 1) continue;
      Make();
    }
  }

  AutoRegimes& autos() { return *auto_; }
  const TrialPlan& plan() const { return plan_; }
  Mode mode() const { return regime_.consistency().mode(); }
  double loss() const { return loss_; }
  double seconds() const { return seconds_; }
  // Of trials, the way back included.
  int64_t trial_clocks() const { return trial_clocks_; }
  int64_t longest_trial() const { return longest_trial_; }
  // "52 auto: trying ASYNC for 50 clocks"
  const std::vector<std::string>& told() const { return told_; }
  int Trials(const std::string& name) const {
    return static_cast<int>(
        std::count_if(told_.begin(), told_.end(), [&](const std::string& text) {
          return absl::StrContains(text, "trying " + name);
        }));
  }
  bool kept_another() const {
    return std::any_of(told_.begin(), told_.end(), [](const std::string& text) {
      return absl::StrContains(text, " is kept");
    });
  }

 private:
  struct Pending {
    int64_t clock = 0;
    Regime to;
    std::string reason;
  };

  void Ask() {
    const auto action = auto_->Next(clock_);
    if (!action.has_value()) return;
    EXPECT_THAT(action->reason, StartsWith("auto: "));
    if (!action->change.has_value()) {
      told_.push_back(absl::StrCat(clock_, " ", action->reason));
      return;
    }
    const auto next = ChangedRegime(spec_, spec_.resources().workers(), regime_,
                                    *action->change);
    ASSERT_TRUE(next.ok()) << next.status() << ": " << action->reason;
    const bool is_refused = next->consistency().mode() == world_.refused_mode ||
                            random_.Uniform() < world_.refused;
    if (is_refused) {
      told_.push_back(absl::StrCat(clock_, " not made: ", action->reason));
      return auto_->OnFailed("no answer from ps:1");
    }
    // One or two clocks later, as it is announced.
    const auto soon = clock_ + 1 + static_cast<int64_t>(random_.Below(2));
    pending_ = Pending{.clock = std::max(soon, action->at),
                       .to = *next,
                       .reason = action->reason};
  }

  void Step() {
    const bool is_later = world_.later_from > 0 && clock_ >= world_.later_from;
    const auto& speeds = is_later ? world_.later : world_.speeds;
    const Speed speed = speeds.at(mode());
    seconds_ += speed.step_seconds;
    loss_ -= (loss_ - world_.floor) * speed.fall * speed.step_seconds;
    if (in_trial_) ++trial_clocks_;
    const double loss = loss_ + world_.noise * random_.Normal();
    auto_->OnStep(
        clock_, absl::Seconds(speed.step_seconds),
        speed.is_finite ? loss : std::numeric_limits<double>::quiet_NaN());
  }

  void Make() {
    const Pending made = *std::exchange(pending_, std::nullopt);
    told_.push_back(absl::StrCat(made.clock, " ", made.reason));
    if (in_trial_) {
      longest_trial_ = std::max(longest_trial_, made.clock - trial_began_);
    }
    in_trial_ = absl::StrContains(made.reason, "auto: trying");
    trial_began_ = made.clock;
    regime_ = made.to;
    regime_.set_first_clock(made.clock);
    auto_->OnMade(regime_);
  }

  const World world_;
  Random random_;
  JobSpec spec_;
  TrialPlan plan_;
  std::optional<AutoRegimes> auto_;
  Regime regime_;
  std::optional<Pending> pending_;
  int64_t clock_ = 0;
  double loss_;
  double seconds_ = 0;
  bool in_trial_ = false;
  int64_t trial_began_ = 0;
  int64_t trial_clocks_ = 0;
  int64_t longest_trial_ = 0;
  std::vector<std::string> told_;
};

// Steps without waits for others: twice as many in a second.
World WithFastAsync() {
  World world;
  world.speeds[ConsistencySpec::ASYNC] = {.step_seconds = 0.05, .fall = 0.002};
  world.noise = 0.001;
  return world;
}

TEST(AutoRegimesTest, TheFastestIsKept) {
  int kept = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Job job(WithFastAsync(), seed);
    job.Run();
    kept += job.mode() == ConsistencySpec::ASYNC ? 1 : 0;
    EXPECT_LE(job.trial_clocks(), job.plan().budget);
    EXPECT_EQ(job.longest_trial(), job.plan().window);
  }
  EXPECT_GE(kept, 19);
}

// The reasons that a user reads.
TEST(AutoRegimesTest, EachDecisionIsExplained) {
  World world = WithFastAsync();
  world.noise = 1e-4;
  Job job(world, 1);
  job.Run(/*until=*/1000);
  EXPECT_THAT(
      job.told(),
      ElementsAre(
          HasSubstr(" auto: trying BOUNDED_STALENESS bound 4 for 50 clocks"),
          HasSubstr(" auto: back to SYNC after 50 clocks of BOUNDED_STALENESS "
                    "bound 4"),
          HasSubstr(" auto: trying ASYNC for 50 clocks"),
          HasSubstr(" auto: back to SYNC after 50 clocks of ASYNC"),
          AllOf(HasSubstr(" auto: ASYNC is kept; loss/s: BOUNDED_STALENESS "
                          "bound 4 0.0"),
                HasSubstr("not better by a factor of 1.1; ASYNC 0.0"),
                HasSubstr(" against 0.0"), HasSubstr(", better"))));
}

// More samples in a second are no merit: the loss falls no faster.
TEST(AutoRegimesTest, MoreStepsThatBringLessAreNotBetter) {
  World world;
  world.speeds[ConsistencySpec::ASYNC] = {.step_seconds = 0.03, .fall = 0.0008};
  world.speeds[ConsistencySpec::BOUNDED_STALENESS] = {.step_seconds = 0.2,
                                                      .fall = 0.0005};
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Job job(world, seed);
    job.Run();
    EXPECT_FALSE(job.kept_another()) << seed;
    EXPECT_THAT(job.told(), Contains(HasSubstr("SYNC stays; loss/s: ")));
  }
}

// The loss falls ever more slowly, which is no fault of what is tried later,
// and no merit of what is in force before.
TEST(AutoRegimesTest, ALossThatFallsMoreSlowlyLaterMisleadsNobody) {
  World world;
  for (auto& [mode, speed] : world.speeds) speed.fall = 0.05;
  world.speeds[ConsistencySpec::ASYNC].fall = 0.1;
  world.noise = 1e-3;
  int kept = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Job job(world, seed);
    job.Run();
    kept += job.mode() == ConsistencySpec::ASYNC ? 1 : 0;
    EXPECT_EQ(job.mode() == ConsistencySpec::BOUNDED_STALENESS, false) << seed;
  }
  EXPECT_GE(kept, 15);
}

TEST(AutoRegimesTest, WithinTheNoiseTheRegimeInForceStays) {
  constexpr int kSeeds = 100;
  int changed = 0;
  int explained = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world;
    world.clocks = 5'000;
    world.noise = seed % 2 == 0 ? 0.01 : 0.5;
    Job job(world, seed);
    job.Run();
    changed += job.kept_another() ? 1 : 0;
    for (const std::string& text : job.told()) {
      if (absl::StrContains(text, "within the noise, ")) {
        ++explained;
        break;
      }
    }
  }
  // Two comparisons for each job.
  EXPECT_LE(changed, kSeeds / 10);
  EXPECT_GE(explained, kSeeds / 4);
}

TEST(AutoRegimesTest, ACandidateWhoseLossRisesIsLeftAtOnceAndForGood) {
  World world;
  world.speeds[ConsistencySpec::ASYNC].fall = -2;  // e times as high in 5 steps
  world.spec = "auto_regime { window_clocks: 50 } resources { workers: 4 }";
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Job job(world, seed);
    job.Run();
    EXPECT_EQ(job.Trials("ASYNC"), 1) << seed;
    EXPECT_EQ(job.Trials("BOUNDED_STALENESS"), 4) << seed;
    EXPECT_EQ(job.mode(), ConsistencySpec::SYNC);
    EXPECT_THAT(job.told(),
                Contains(AllOf(HasSubstr("auto: back to SYNC: ASYNC was left, "
                                         "its loss rose from "),
                               HasSubstr(" to "))));
    // Of five trials, one of which was short.
    EXPECT_LT(job.trial_clocks(), 4 * 50 + 15) << seed;
  }
}

TEST(AutoRegimesTest, ACandidateWithoutAFiniteLossIsLeftAtOnceAndForGood) {
  World world;
  world.speeds[ConsistencySpec::ASYNC].is_finite = false;
  Job job(world, 3);
  job.Run();
  EXPECT_EQ(job.Trials("ASYNC"), 1);
  EXPECT_THAT(job.told(),
              Contains(HasSubstr("back to SYNC: ASYNC was left, its loss or "
                                 "its gradient is not finite")));
  EXPECT_LE(job.trial_clocks(), (2 * job.plan().rounds - 1) * 50 + 5);
}

TEST(AutoRegimesTest, ACandidateThatIsNotToBeHadIsNotTriedAgain) {
  World world = WithFastAsync();
  world.refused_mode = ConsistencySpec::BOUNDED_STALENESS;
  Job job(world, 1);
  job.Run();
  EXPECT_EQ(job.Trials("BOUNDED_STALENESS"), 1);
  EXPECT_EQ(job.mode(), ConsistencySpec::ASYNC);
  EXPECT_THAT(job.told(),
              Contains(HasSubstr("loss/s: BOUNDED_STALENESS bound 4 was not "
                                 "to be had: no answer from ps:1; ASYNC ")));
}

TEST(AutoRegimesTest, AJobThatHasNothingLeftToTryIsDone) {
  World world;
  world.spec =
      "auto_regime { candidates { mode: ASYNC } } resources { workers: 4 }";
  world.refused_mode = ConsistencySpec::ASYNC;
  Job job(world, 1);
  job.Run();
  EXPECT_TRUE(job.autos().ended());
  EXPECT_EQ(job.trial_clocks(), 0);
  EXPECT_THAT(
      job.told(),
      ElementsAre(HasSubstr("not made: auto: trying ASYNC"),
                  HasSubstr("auto: SYNC stays; loss/s: ASYNC was not to")));
}

// Another regime is best late than was early.
TEST(AutoRegimesTest, ALaterRoundDecidesAnew) {
  World world = WithFastAsync();
  world.later_from = 5'000;
  world.later = world.speeds;
  std::swap(world.later[ConsistencySpec::ASYNC],
            world.later[ConsistencySpec::SYNC]);
  int early = 0;
  int late = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Job job(world, seed);
    job.Run(4'900);
    early += job.mode() == ConsistencySpec::ASYNC ? 1 : 0;
    job.Run();
    late += job.mode() == ConsistencySpec::SYNC ? 1 : 0;
  }
  EXPECT_GE(early, 19);
  EXPECT_GE(late, 19);
}

TEST(AutoRegimesTest, TheWayBackIsTriedUntilItIsMade) {
  World world;
  int refused = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    world.refused = 0.5;
    Job job(world, seed);
    job.Run();
    for (const std::string& text : job.told()) {
      refused += absl::StrContains(text, "not made: auto: back") ? 1 : 0;
    }
    EXPECT_EQ(job.mode(), job.autos().kept().consistency().mode()) << seed;
  }
  EXPECT_GT(refused, 5);
}

TEST(AutoRegimesTest, WhereThereIsNoWayBackItIsSaid) {
  World world;
  Job job(world, 1);
  while (!job.autos().is_trying()) job.Run(job.autos().spent() + 100);
  AutoRegimes& autos = job.autos();
  autos.OnFailed("torn");
  for (int64_t clock = 100; clock < 100 + (1 << 12); ++clock) {
    const auto action = autos.Next(clock);
    if (!action.has_value()) continue;
    if (!action->change.has_value()) {
      EXPECT_THAT(action->reason,
                  HasSubstr("BOUNDED_STALENESS bound 4 stays: after 11 tries "
                            "there is no way back to SYNC, and no more is "
                            "tried: torn"));
      EXPECT_TRUE(autos.ended());
      return;
    }
    autos.OnFailed("torn");
  }
  FAIL() << "nothing was said";
}

TEST(AutoRegimesTest, SomebodyElsesChangeEndsTheTrialsForGood) {
  for (const int64_t at : {10, 60, 120, 180, 260}) {
    Job job(WithFastAsync(), 1);
    job.Run(at);
    job.autos().OnOthersChange();
    EXPECT_TRUE(job.autos().ended());
    const auto told = job.autos().Next(at);
    ASSERT_TRUE(told.has_value());
    EXPECT_FALSE(told->change.has_value());
    EXPECT_EQ(told->reason,
              "auto: no more is tried: somebody else has changed the regime");
    EXPECT_FALSE(job.autos().Next(at + 1).has_value());
  }
}

// A change by somebody else that goes first, and is not made.
TEST(AutoRegimesTest, AChangeThatGaveWayIsAskedForAgain) {
  Job job(WithFastAsync(), 1);
  AutoRegimes& autos = job.autos();
  for (int64_t clock = 0; clock < 200; ++clock) {
    const auto action = autos.Next(clock);
    if (action.has_value()) {
      EXPECT_FALSE(autos.Next(clock).has_value()) << "once";
      autos.OnGaveWay();
      const auto again = autos.Next(clock + 1);
      ASSERT_TRUE(again.has_value());
      EXPECT_EQ(again->reason, action->reason);
      return;
    }
    autos.OnStep(clock, absl::Seconds(1), 1);
  }
  FAIL() << "nothing was asked for";
}

TEST(AutoRegimesTest, AnInterruptedTrialMayBeRepeated) {
  World world = WithFastAsync();
  Job job(world, 1);
  int64_t until = 0;
  while (!job.autos().is_trying()) job.Run(++until);
  job.autos().Interrupt("since a checkpoint was asked for");
  job.Run(until + 5);
  EXPECT_FALSE(job.autos().is_trying());
  EXPECT_THAT(job.told().back(),
              HasSubstr("auto: back to SYNC: BOUNDED_STALENESS bound 4 was "
                        "left, since a checkpoint was asked for"));
  EXPECT_LT(job.trial_clocks(), 5);
  job.Run();
  EXPECT_EQ(job.Trials("BOUNDED_STALENESS"), job.plan().rounds);
}

// An attempt that goes on from a checkpoint.
TEST(AutoRegimesTest, WhatEarlierAttemptsHaveSpentIsGone) {
  World world = WithFastAsync();
  world.spent = 400 - 60;
  Job job(world, 1);
  job.Run();
  EXPECT_EQ(job.trial_clocks(), 50);
  world.spent = 400;
  Job none(world, 1);
  none.Run();
  EXPECT_EQ(none.trial_clocks(), 0);
  EXPECT_THAT(none.told(),
              ElementsAre(HasSubstr("auto: SYNC stays: no more is tried, after "
                                    "400 clocks of trials of at most 400")));
}

TEST(AutoRegimesTest, StepsWithoutSamplesSayNothing) {
  World world;
  Job job(world, 1);
  AutoRegimes& autos = job.autos();
  Regime regime;
  int64_t trials = 0;
  for (int64_t clock = 0; clock < 300; ++clock) {
    const auto action = autos.Next(clock);
    if (action.has_value() && !action->change.has_value()) {
      EXPECT_THAT(action->reason,
                  HasSubstr("SYNC stays; loss/s: BOUNDED_STALENESS bound 4: "
                            "too few losses to compare"));
      EXPECT_EQ(trials, 2);
      return;
    }
    if (action.has_value() && action->at == 0) {
      ++trials;
      regime.set_first_clock(clock);
      autos.OnMade(regime);
    } else if (autos.is_trying()) {
      regime.set_first_clock(clock);
      autos.OnMade(regime);
    }
    autos.OnStep(clock, absl::Seconds(1), std::nullopt);
  }
  FAIL() << "nothing was decided";
}

// Whatever a job is, and whatever fails.
TEST(AutoRegimesTest, NoJobSpendsMoreThanItsBudget) {
  constexpr uint64_t kSeeds = 1500;
  int64_t spent = 0;
  int64_t budgets = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    World world;
    world.clocks = 500 + static_cast<int64_t>(random.Below(3'000));
    world.noise = random.Uniform() * 0.2;
    for (auto& [mode, speed] : world.speeds) {
      speed.step_seconds = 0.01 + random.Uniform() * 0.1;
      speed.fall = random.Uniform() * 0.1 - (random.Below(8) == 0 ? 3 : 0.01);
      speed.is_finite = random.Below(12) != 0;
    }
    world.speeds[ConsistencySpec::SYNC].is_finite = true;
    world.speeds[ConsistencySpec::SYNC].fall =
        std::max(0.0, world.speeds[ConsistencySpec::SYNC].fall);
    const double share = 0.02 + random.Uniform() * 0.48;
    world.spec =
        absl::StrCat("resources { workers: ", 2 + random.Below(6),
                     " } auto_regime { trial_share: ", share,
                     random.Below(2) == 0 ? " window_clocks: 10" : "",
                     random.Below(3) == 0 ? " candidates { mode: ASYNC }" : "",
                     " gain: ", 1 + random.Uniform(), " }");
    Job job(world, seed);
    job.Run();
    ASSERT_LE(job.trial_clocks(), job.plan().budget);
    ASSERT_LE(job.longest_trial(), job.plan().window);
    ASSERT_LE(static_cast<double>(job.trial_clocks()),
              share * static_cast<double>(world.clocks) + 1e-6);
    ASSERT_EQ(job.mode(), job.autos().kept().consistency().mode());
    ASSERT_LE(job.told().size(), 40u);
    spent += job.trial_clocks();
    budgets += job.plan().budget;
  }
  // They do try.
  EXPECT_GT(spent, budgets / 10);
}

}  // namespace
}  // namespace syncline::worker
