// Goal: folds of statistics are the serial sums in rank order, bit for bit, and
// every call ends once, whatever the network does and whoever is absent.
// Method: seeded histories of workers that fold a few times a clock, leave it
// early or skip it, over a network that delays, reorders, duplicates and loses
// both ways, with calls that are given up and repeated, and zombies of replaced
// processes. A failure prints the seed, which replays it.

#include "common/update/statistics_reducer.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/random.h"
#include "gtest/gtest.h"
#include "tests/testing/seed_count.h"

namespace syncline {
namespace {

constexpr int kSeeds = SeedCount(1000);
constexpr int64_t kClocks = 5;
constexpr absl::Duration kPatience = absl::Milliseconds(80);
constexpr absl::Duration kTickPeriod = absl::Milliseconds(10);
// How long workers go on asking after a close: late messages, and repeats.
constexpr absl::Duration kAfterClose = absl::Milliseconds(500);
constexpr absl::Duration kTimeLimit = absl::Minutes(10);

class Simulation {
 public:
  Simulation(uint64_t seed, bool close_early)
      : random_(seed),
        workers_(1 + random_.Below(4)),
        close_early_(close_early) {
    std::vector<StatisticsReducer::Worker> names;
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      names.push_back({100 + rank, absl::StrCat("worker:", rank)});
    }
    reducer_.emplace(std::move(names), "job");
    width_ = 1 + random_.Below(5);
    for (Worker& worker : workers_) {
      for (int64_t clock = 0; clock < kClocks; ++clock) {
        worker.folds.push_back(static_cast<uint32_t>(random_.Below(4)));
      }
    }
  }

  // The first rule that was broken; empty: none.
  std::string Run() {
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) Next(rank);
    After(kTickPeriod, [this] { Tick(); });
    if (close_early_) {
      After(absl::Milliseconds(random_.Below(500)), [this] { Close(); });
    }
    while (error_.empty() && !Over()) {
      const auto event = events_.begin();
      now_ = event->first;
      const std::function<void()> run = std::move(event->second);
      events_.erase(event);
      run();
      if (now_ > absl::UnixEpoch() + kTimeLimit) return "it hangs";
      if (reducer_->parked_count() > workers_.size()) return "too many parked";
    }
    if (!closed_) Close();
    if (error_.empty() && !open_tokens_.empty()) return "a call has not ended";
    return error_;
  }

 private:
  struct Worker {
    std::vector<uint32_t> folds;  // by clock: that it takes part in
    StatisticsReducer::Point at = {0, 0};
    uint64_t call = 0;   // what it waits for
    bool waits = false;  // for the others to end the clock
    bool done = false;
  };
  struct Call {
    uint32_t rank = 0;
    uint64_t number = 0;  // the worker's, the same for a duplicate
  };

  void After(absl::Duration delay, std::function<void()> run) {
    events_.emplace(now_ + delay, std::move(run));
  }
  absl::Duration Latency() {
    return absl::Milliseconds(1 +
                              random_.Below(random_.Below(8) == 0 ? 200 : 9));
  }
  uint32_t FoldsOf(uint32_t rank, int64_t clock) const {
    return workers_[rank].folds[clock];
  }
  double ValueOf(uint32_t rank, StatisticsReducer::Point at, size_t i) const {
    Random random(SeedFor(SeedFor(rank, at.clock * 16 + at.fold), i));
    const double value = random.Uniform();
    return value / static_cast<double>(1 + random.Below(1000000));
  }
  std::vector<double> Expected(StatisticsReducer::Point at) const {
    std::vector<double> sums(width_);
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      if (FoldsOf(rank, at.clock) <= at.fold) continue;
      for (size_t i = 0; i < width_; ++i) sums[i] += ValueOf(rank, at, i);
    }
    return sums;
  }
  bool Over() const {
    if (closed_) return now_ > closed_at_ + kAfterClose;
    for (const Worker& worker : workers_) {
      if (!worker.done) return false;
    }
    return true;
  }

  // The worker's next call, in a new attempt.
  void Next(uint32_t rank) {
    Worker& worker = workers_[rank];
    const uint64_t number = ++calls_;
    worker.call = number;
    const StatisticsReducer::Point at = worker.at;
    const int copies = random_.Below(10) == 0   ? 0
                       : random_.Below(10) == 0 ? 2
                                                : 1;
    for (int copy = 0; copy < copies; ++copy) {
      After(Latency(), [=, this] { Arrive(rank, number, at); });
    }
    if (random_.Below(20) == 0) {
      After(Latency(), [=, this] { Arrive(rank, 0, at); });
    }
    After(kPatience, [=, this] {
      if (workers_[rank].call == number) Next(rank);
    });
  }

  // `number` 0: a zombie's.
  void Arrive(uint32_t rank, uint64_t number, StatisticsReducer::Point at) {
    const uint64_t token = ++tokens_;
    open_tokens_[token] = {rank, number};
    std::vector<double> values;
    const bool absent = at.fold >= FoldsOf(rank, at.clock);
    for (size_t i = 0; i < width_ && !absent; ++i) {
      values.push_back(number == 0 ? 1e9 : ValueOf(rank, at, i));
    }
    StatisticsReducer::Answers answers;
    reducer_->OnPart({.token = token,
                      .rank = rank,
                      .incarnation = number == 0 ? 7 : 100 + rank,
                      .at = at,
                      .values = values,
                      .absent = absent,
                      .deadline = now_ + kPatience * 3 / 4},
                     now_, &answers);
    Take(answers);
    if (random_.Below(30) == 0) {
      After(Latency(), [=, this] {
        StatisticsReducer::Answers cancelled;
        reducer_->OnCancel(token, &cancelled);
        Take(cancelled);
      });
    }
  }

  void Take(const StatisticsReducer::Answers& answers) {
    for (const StatisticsReducer::Answer& answer : answers) {
      const auto found = open_tokens_.find(answer.token);
      if (found == open_tokens_.end()) {
        error_ = "a call has ended twice";
        return;
      }
      const Call call = found->second;
      open_tokens_.erase(found);
      Check(call, answer);
      if (random_.Below(15) == 0) continue;  // lost
      After(Latency(), [=, this] { OnAnswer(call, answer); });
    }
  }

  void Check(const Call& call, const StatisticsReducer::Answer& answer) {
    if (call.number == 0 && answer.status.ok()) error_ = "a zombie was heard";
    if (closed_ && !absl::IsCancelled(answer.status)) {
      error_ = absl::StrCat("after the close: ", answer.status.ToString());
    }
    if (!absl::IsDeadlineExceeded(answer.status)) return;
    const std::string text(answer.status.message());
    if (!absl::StrContains(text, "missing: worker:") ||
        absl::StrContains(text, absl::StrCat("worker:", call.rank))) {
      error_ = absl::StrCat("odd names: ", text);
    }
  }

  void OnAnswer(const Call& call, const StatisticsReducer::Answer& answer) {
    Worker& worker = workers_[call.rank];
    if (call.number == 0 || worker.call != call.number || closed_) return;
    if (!answer.status.ok()) {
      if (absl::IsInvalidArgument(answer.status)) {
        error_ = std::string(answer.status.message());
        return;
      }
      return Next(call.rank);
    }
    worker.call = 0;
    if (worker.at.fold < FoldsOf(call.rank, worker.at.clock)) {
      if (answer.sums != Expected(worker.at)) error_ = "other sums";
      ++worker.at.fold;
      // A worker with the most folds, 3, needs no other worker to go on.
      if (worker.at.fold < 3) return Next(call.rank);
    }
    worker.waits = true;
    EndClock();
  }

  // All go on together, when all have pushed.
  void EndClock() {
    for (const Worker& worker : workers_) {
      if (!worker.waits) return;
    }
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      worker.waits = false;
      worker.at = {worker.at.clock + 1, 0};
      worker.done = worker.at.clock == kClocks;
      if (!worker.done) After(Latency(), [=, this] { Next(rank); });
    }
  }

  void Tick() {
    StatisticsReducer::Answers answers;
    reducer_->OnTick(now_, &answers);
    Take(answers);
    After(kTickPeriod, [this] { Tick(); });
  }

  void Close() {
    StatisticsReducer::Answers answers;
    reducer_->Close(absl::CancelledError("closed"), &answers);
    closed_ = true;
    closed_at_ = now_;
    Take(answers);
    if (reducer_->parked_count() > 0) error_ = "a call is parked after a close";
  }

  Random random_;
  std::vector<Worker> workers_;
  const bool close_early_;
  std::optional<StatisticsReducer> reducer_;
  size_t width_ = 0;
  absl::Time now_ = absl::UnixEpoch();
  std::multimap<absl::Time, std::function<void()>> events_;
  std::map<uint64_t, Call> open_tokens_;
  uint64_t tokens_ = 0;
  uint64_t calls_ = 0;
  bool closed_ = false;
  absl::Time closed_at_;
  std::string error_;
};

TEST(StatisticsReducerSimulation, FoldsAreTheSerialSumsInRankOrder) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    ASSERT_EQ(Simulation(seed, /*close_early=*/false).Run(), "")
        << "seed=" << seed;
  }
}

TEST(StatisticsReducerSimulation, ClosingEndsEveryCall) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    ASSERT_EQ(Simulation(seed, /*close_early=*/true).Run(), "")
        << "seed=" << seed;
  }
}

}  // namespace
}  // namespace syncline
