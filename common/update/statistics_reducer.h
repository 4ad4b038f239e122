#ifndef SYNCLINE_COMMON_UPDATE_STATISTICS_REDUCER_H_
#define SYNCLINE_COMMON_UPDATE_STATISTICS_REDUCER_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace syncline {

// At a job's ReductionRoot: adds up what the workers of a job measure at each
// point of a step, in order of rank and in fp64, so that the sums do not depend
// on the order of calls. A worker takes part in a clock's folds from the first
// on, until it says that it is absent, or the clock is over.
//
// Memory: the parts of the open fold and the sums of the one before it. That is
// enough for repeats: a fold is complete only when all workers have asked for
// it, and a worker that asks for it has the answers to all folds before it.
//
// A pure state machine; thread-compatible.
class StatisticsReducer {
 public:
  struct Worker {
    uint64_t incarnation = 0;
    std::string name;  // "worker:2 at 10.0.0.7:4000"
  };
  struct Point {
    int64_t clock = -1;
    uint32_t fold = 0;  // of the clock

    auto operator<=>(const Point&) const = default;
  };
  // One worker's part in a fold.
  struct Part {
    uint64_t token = 0;
    uint32_t rank = 0;
    uint64_t incarnation = 0;
    Point at;
    absl::Span<const double> values = {};
    bool absent = false;  // in this fold and the clock's later ones
    absl::Time deadline = absl::InfinitePast();
  };
  // How a call ends. Each call ends exactly once.
  struct Answer {
    uint64_t token = 0;
    absl::Status status;
    std::vector<double> sums;  // empty for an absent worker
  };
  using Answers = std::vector<Answer>;

  // `label` names job and root in messages.
  StatisticsReducer(std::vector<Worker> workers, std::string label);

  // Parked until all workers have come, except those that are absent. Repeats,
  // also of the last fold, are answered like the first; one that finds the
  // first still parked takes its place. Errors: InvalidArgument: no such rank,
  // no or too many values, or not the clock, fold or number of values that the
  // others are at; FailedPrecondition: a replaced incarnation.
  void OnPart(const Part& part, absl::Time now, Answers* out);
  // The caller gave up; the values of its part still count.
  void OnCancel(uint64_t token, Answers* out);
  // As ConsistencyController::OnFrozen.
  void OnFrozen(absl::Duration frozen, absl::Time now);
  void OnTick(absl::Time now, Answers* out);
  // Ends all parked calls and every later one.
  void Close(const absl::Status& status, Answers* out);

  size_t parked_count() const;
  // When a part or an absence last came; InfinitePast: never.
  absl::Time moved_at() const { return moved_at_; }

 private:
  struct Standing {
    std::vector<double> values;  // of the open fold; empty: still to come
    bool absent = false;         // from the open clock
    uint64_t token = 0;          // of its parked call; 0: none
    absl::Time deadline;
    Point last;  // of its latest part or absence
  };
  absl::Status CheckCaller(const Part& part) const;
  absl::Status CheckPart(const Part& part) const;
  // Whether `at` is of the next clock, and no call waits in the open one.
  bool StartsClock(const Point& at) const;
  std::string Expected() const;
  bool Missing(const Standing& standing) const {
    return !standing.absent && standing.values.empty();
  }
  // For messages: the participants that are missing, and the last report of
  // each.
  std::string MissingText() const;
  size_t OpenWidth() const;
  void Park(const Part& part, Answers* out);
  void ReduceIfComplete(Answers* out);
  void End(Standing* standing, const absl::Status& status, Answers* out);

  const std::vector<Worker> workers_;  // by rank
  const std::string label_;
  std::vector<Standing> standings_;  // by rank
  Point open_;
  Point reduced_;             // the last one
  std::vector<double> sums_;  // of it
  absl::Time moved_at_ = absl::InfinitePast();
  absl::Status closed_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_STATISTICS_REDUCER_H_
