// Ranks of a group as processes, one of which is killed or stopped while they
// reduce, gather or do both. The others must end with an error that names it,
// and one that goes on later must disturb nobody.

#include <signal.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/system/child_process.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

constexpr int kRanks = 3;

class Ranks {
 public:
  Ranks(const std::string& folder, const std::string& flags) {
    for (int r = 0; r < kRanks; ++r) {
      ChildProcess::Options options;
      options.argv = {SYNCLINE_COLLECTIVE_RANK,
                      "--dir",
                      folder,
                      "--rank",
                      std::to_string(r),
                      "--ranks",
                      std::to_string(kRanks)};
      for (const absl::string_view flag :
           absl::StrSplit(flags, ' ', absl::SkipEmpty())) {
        options.argv.emplace_back(flag);
      }
      options.output_file = absl::StrCat(folder, "/out-", r);
      auto process = ChildProcess::Spawn(options);
      EXPECT_TRUE(process.ok()) << process.status();
      if (process.ok()) ranks_.push_back(*std::move(process));
    }
  }

  ChildProcess& at(int rank) { return *ranks_[rank]; }
  std::string OutputOf(int rank) const {
    std::ifstream in(ranks_[rank]->output_file());
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  bool AllRun() const {
    return Eventually(absl::Seconds(90), [&] {
      for (int r = 0; r < kRanks; ++r) {
        if (!absl::StrContains(OutputOf(r), "running")) return false;
      }
      return true;
    });
  }
  // The error that a rank ended with.
  std::string ErrorOf(int rank) {
    const auto exit =
        ranks_[rank]->WaitUntil(MonotonicNow() + absl::Seconds(60));
    if (!exit.has_value()) return "it goes on";
    if (exit->code != 3) return exit->ToString() + ": " + OutputOf(rank);
    return OutputOf(rank);
  }

 private:
  std::vector<std::unique_ptr<ChildProcess>> ranks_;
};

std::string Names(int rank) {
  return absl::StrCat("rank ", rank, " (worker:", rank, " at 127.0.0.1:");
}

struct Fault {
  const char* name;
  const char* flags;
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

class CollectiveFaults : public ::testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    Phases, CollectiveFaults,
    ::testing::Values(Fault{"ReduceShared", "--reduce 300000"},
                      Fault{"GatherShared", "--gather 300000"},
                      Fault{"AllShared", "--loop 300000"},
                      Fault{"SmallShared", "--loop 100"},
                      Fault{"ReduceTcp", "--reduce 300000 --tcp"},
                      Fault{"GatherTcp", "--gather 300000 --tcp"},
                      Fault{"AllTcp", "--loop 300000 --tcp"},
                      Fault{"SmallTcp", "--loop 100 --tcp"}),
    [](const auto& info) { return info.param.name; });

TEST_P(CollectiveFaults, AKilledRankIsNamedByTheOthers) {
  for (int victim = 0; victim < kRanks; ++victim) {
    const TempDir folder;
    Ranks ranks(folder.path(), absl::StrCat(GetParam().flags, " --seconds 60"));
    ASSERT_TRUE(ranks.AllRun());
    ranks.at(victim).Signal(SIGKILL);
    for (int r = 0; r < kRanks; ++r) {
      if (r == victim) continue;
      const std::string error = ranks.ErrorOf(r);
      EXPECT_TRUE(absl::StrContains(error, Names(victim))) << error;
      // Long before the deadline of the message.
      EXPECT_FALSE(absl::StrContains(error, "DEADLINE")) << error;
    }
  }
}

TEST_P(CollectiveFaults, AStoppedRankRunsIntoTheDeadlineOfTheOthers) {
  constexpr int kVictim = 1;
  const TempDir folder;
  Ranks ranks(folder.path(), absl::StrCat(GetParam().flags, " --seconds 3"));
  ASSERT_TRUE(ranks.AllRun());
  ranks.at(kVictim).Signal(SIGSTOP);
  // One may have all that it needs of the victim, and wait for one that has
  // not. So it is named by one of them at least.
  std::string errors;
  for (int r = 0; r < kRanks; ++r) {
    if (r == kVictim) continue;
    const std::string error = ranks.ErrorOf(r);
    EXPECT_TRUE(absl::StrContains(error, "DEADLINE_EXCEEDED")) << error;
    EXPECT_TRUE(absl::StrContains(error, "clock ")) << error;
    errors += error;
  }
  EXPECT_TRUE(absl::StrContains(errors, Names(kVictim))) << errors;
  // The next epoch of the group has other memory and connections: it goes on
  // while the one of the last wakes up, which finds that it is alone.
  const TempDir next;
  Ranks later(next.path(),
              absl::StrCat(GetParam().flags, " --seconds 60 --epoch 2"));
  ASSERT_TRUE(later.AllRun());
  ranks.at(kVictim).Signal(SIGCONT);
  const std::string error = ranks.ErrorOf(kVictim);
  EXPECT_TRUE(absl::StrContains(error, "error:")) << error;
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_FALSE(later.at(r).Poll().has_value()) << later.OutputOf(r);
  }
}

TEST(CollectiveFaultsTest, RanksOfOtherEpochsDoNotMeet) {
  const TempDir folder;
  const auto start = [&](int rank, const char* epoch) {
    ChildProcess::Options options;
    options.argv = {SYNCLINE_COLLECTIVE_RANK,
                    "--dir",
                    std::string(folder.path()),
                    "--rank",
                    std::to_string(rank),
                    "--ranks",
                    "2",
                    "--epoch",
                    epoch,
                    "--loop",
                    "10"};
    options.output_file = absl::StrCat(folder.path(), "/out-", rank);
    auto process = ChildProcess::Spawn(options);
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  };
  const auto earlier = start(0, "1");
  const auto later = start(1, "2");
  const auto exit = earlier->WaitUntil(MonotonicNow() + absl::Seconds(60));
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 3);
  std::ifstream in(earlier->output_file());
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_TRUE(absl::StrContains(text.str(), "ABORTED")) << text.str();
  EXPECT_TRUE(absl::StrContains(text.str(), "forms group epoch 2, not 1"))
      << text.str();
}

}  // namespace
}  // namespace syncline
