#ifndef SYNCLINE_TESTS_FAULT_CHAOS_HISTORY_CHECKER_H_
#define SYNCLINE_TESTS_FAULT_CHAOS_HISTORY_CHECKER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace syncline {

// A job that counts its pushes. Each sample of an epoch is one push, and names
// itself: its gradient is -1 in the sample's element of each tensor and in its
// row of the table, and 0 elsewhere. Step s of an epoch pushes the samples
// s * workers + rank. So an element says how often its sample was applied, in
// whatever order pushes came: each element sees its own gradients alone.
struct CountingJob {
  enum class Rule {
    kSgd,      // n times give n
    kAdagrad,  // n times give 1 + 1/sqrt(2) + .. + 1/sqrt(n): it needs its slot
  };
  Rule rule = Rule::kSgd;
  int64_t workers = 2;
  int64_t samples = 0;  // of an epoch, a multiple of `workers`
  int64_t epochs = 1;

  int64_t steps_per_epoch() const { return samples / workers; }
  int64_t clocks_total() const { return steps_per_epoch() * epochs; }
};

// Values by tensor, each [samples]; a row that the table does not have is 0.
using CountedValues = std::map<std::string, std::vector<float>>;

// How often each sample is to be in a state in which worker r has closed the
// clocks below clocks[r].
std::vector<int64_t> TimesExpected(const CountingJob& job,
                                   absl::Span<const int64_t> clocks);

// How many updates give `value`; nothing: no number of them does.
std::optional<int64_t> TimesApplied(CountingJob::Rule rule, float value);

// The findings of a check, added up over checks.
struct Verdict {
  int64_t states = 0;   // looked at
  int64_t lost = 0;     // updates that a state should have and has not
  int64_t doubled = 0;  // that it has too often
  int64_t torn = 0;     // values that no number of updates gives
  int64_t broken = 0;   // other promises
  std::vector<std::string> problems;  // the first ones, for people

  bool ok() const { return lost + doubled + torn + broken == 0; }
  void Add(const Verdict& other);
  void Say(std::string problem);
};

// Checks a checkpoint, or the end of a job: `clocks` by worker are its cut's.
// Every push below the cut is in it once, and none above it.
Verdict CheckState(const CountingJob& job, const std::string& name,
                   absl::Span<const int64_t> clocks,
                   const CountedValues& values);

// The state of a job at some moment, as the scheduler told it.
struct Sighting {
  absl::Time time;
  uint32_t attempt = 0;
  int64_t clock = 0;  // that all workers have closed, acknowledged by every ps
  int64_t checkpoint = -1;  // the newest one's clock; -1: none
};

// The clock with which an attempt began, as the scheduler said it.
using AttemptStarts = std::map<uint32_t, int64_t>;

// A checkpoint that the scheduler has told of is never lost: no later attempt
// begins before it. Sightings are in the order of time.
Verdict CheckAttempts(absl::Span<const Sighting> sightings,
                      const AttemptStarts& starts);

// For the table of a run.
struct HistoryTotals {
  int64_t acknowledged = 0;  // pushes, those that were made again included
  int64_t made_again = 0;    // acknowledged, behind the checkpoint gone back to
  absl::Duration longest_pause;  // between two clocks
};
HistoryTotals Summarize(const CountingJob& job,
                        absl::Span<const Sighting> sightings,
                        const AttemptStarts& starts);

}  // namespace syncline

#endif  // SYNCLINE_TESTS_FAULT_CHAOS_HISTORY_CHECKER_H_
