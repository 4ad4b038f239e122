#include "tests/fault/chaos/history_checker.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

constexpr size_t kProblemsMax = 20;
// Sums of a few hundred roots in float32 are off by less.
constexpr double kTolerance = 2e-3;
constexpr int64_t kTimesMax = 100'000;

}  // namespace

std::vector<int64_t> TimesExpected(const CountingJob& job,
                                   absl::Span<const int64_t> clocks) {
  std::vector<int64_t> times(job.samples, 0);
  const int64_t steps = job.steps_per_epoch();
  for (size_t rank = 0; rank < clocks.size(); ++rank) {
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t sample = step * job.workers + static_cast<int64_t>(rank);
      times[sample] = clocks[rank] / steps + (step < clocks[rank] % steps);
    }
  }
  return times;
}

std::optional<int64_t> TimesApplied(CountingJob::Rule rule, float value) {
  if (!std::isfinite(value) || value < 0) return std::nullopt;
  if (rule == CountingJob::Rule::kSgd) {
    if (value > kTimesMax || value != std::floor(value)) return std::nullopt;
    return static_cast<int64_t>(value);
  }
  double sum = 0;
  for (int64_t n = 0; n <= kTimesMax; ++n) {
    if (n > 0) sum += 1 / std::sqrt(static_cast<double>(n));
    if (std::fabs(sum - value) < kTolerance) return n;
    if (sum > value + kTolerance) break;
  }
  return std::nullopt;
}

void Verdict::Say(std::string problem) {
  if (problems.size() < kProblemsMax) problems.push_back(std::move(problem));
}

void Verdict::Add(const Verdict& other) {
  states += other.states;
  lost += other.lost;
  doubled += other.doubled;
  torn += other.torn;
  broken += other.broken;
  for (const std::string& problem : other.problems) Say(problem);
}

Verdict CheckState(const CountingJob& job, const std::string& name,
                   absl::Span<const int64_t> clocks,
                   const CountedValues& values) {
  Verdict verdict;
  verdict.states = 1;
  if (clocks.size() != static_cast<size_t>(job.workers) || values.empty()) {
    ++verdict.broken;
    verdict.Say(absl::StrCat(name, ": ", clocks.size(), " clocks and ",
                             values.size(), " tensors"));
    return verdict;
  }
  const std::vector<int64_t> expected = TimesExpected(job, clocks);
  for (const auto& [tensor, elements] : values) {
    if (elements.size() != expected.size()) {
      ++verdict.broken;
      verdict.Say(absl::StrCat(name, ": ", tensor, " has ", elements.size(),
                               " elements"));
      continue;
    }
    for (size_t i = 0; i < elements.size(); ++i) {
      const std::optional<int64_t> times = TimesApplied(job.rule, elements[i]);
      if (times == expected[i]) continue;
      const std::string where =
          absl::StrCat(name, ": ", tensor, "[", i, "], pushed by worker ",
                       i % job.workers, " in step ", i / job.workers,
                       " of each epoch, is ", elements[i], ": ");
      if (!times.has_value()) {
        ++verdict.torn;
        verdict.Say(absl::StrCat(where, "no number of updates gives that; ",
                                 expected[i], " expected"));
      } else {
        const int64_t surplus = *times - expected[i];
        (surplus > 0 ? verdict.doubled : verdict.lost) += std::abs(surplus);
        verdict.Say(absl::StrCat(where, *times, " updates, ", expected[i],
                                 " expected"));
      }
    }
  }
  return verdict;
}

Verdict CheckAttempts(absl::Span<const Sighting> sightings,
                      const AttemptStarts& starts) {
  Verdict verdict;
  for (const auto& [attempt, start] : starts) {
    int64_t told = -1;
    for (const Sighting& sighting : sightings) {
      if (sighting.attempt < attempt)
        told = std::max(told, sighting.checkpoint);
    }
    if (start >= told) continue;
    ++verdict.broken;
    verdict.Say(absl::StrCat("attempt ", attempt, " began at clock ", start,
                             ", but a checkpoint at clock ", told,
                             " had been told of"));
  }
  return verdict;
}

HistoryTotals Summarize(const CountingJob& job,
                        absl::Span<const Sighting> sightings,
                        const AttemptStarts& starts) {
  const auto start_of = [&](uint32_t attempt) {
    const auto start = starts.find(attempt);
    return start == starts.end() ? int64_t{0} : start->second;
  };
  HistoryTotals totals;
  std::map<uint32_t, int64_t> reached;  // by attempt
  for (const Sighting& sighting : sightings) {
    if (sighting.attempt == 0) continue;
    int64_t& clock =
        reached.emplace(sighting.attempt, start_of(sighting.attempt))
            .first->second;
    clock = std::max(clock, sighting.clock);
  }
  for (auto attempt = reached.begin(); attempt != reached.end(); ++attempt) {
    const auto& [number, clock] = *attempt;
    totals.acknowledged += (clock - start_of(number)) * job.workers;
    const auto next = std::next(attempt);
    if (next == reached.end()) continue;
    totals.made_again +=
        std::max<int64_t>(0, clock - start_of(next->first)) * job.workers;
  }
  absl::Time moved = sightings.empty() ? absl::Time() : sightings[0].time;
  for (size_t i = 1; i < sightings.size(); ++i) {
    if (sightings[i].clock == sightings[i - 1].clock) continue;
    totals.longest_pause =
        std::max(totals.longest_pause, sightings[i].time - moved);
    moved = sightings[i].time;
  }
  return totals;
}

}  // namespace syncline
