#ifndef SYNCLINE_COMMON_REGIME_REGIME_SCHEDULE_H_
#define SYNCLINE_COMMON_REGIME_REGIME_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/element_type.h"
#include "common/regime/gradient_compression.h"

namespace syncline {

enum class ConsistencyMode { kSync, kBoundedStaleness, kAsync };

// How the members of a job train from one clock on. The message Regime of
// proto/job.proto with its defaults filled in; enumerators that this version
// does not build are left out. job_regimes.h converts.
struct TrainingRegime {
  // kAllReduce, kSharded: workers reduce among themselves, without ps; each
  // has all of the optimizer's state, or its part. kHybrid: as kAllReduce for
  // the dense parameters, and rows of tables are on the ps.
  enum class Strategy { kParameterServer, kAllReduce, kSharded, kHybrid };
  enum class LatePolicy { kNoneIsLate };

  int64_t first_clock = 0;  // of every worker: clocks from this one on
  // Of what the ps hold. kHybrid: of the rows; the dense part is in SYNC.
  ConsistencyMode mode = ConsistencyMode::kSync;
  int64_t staleness_bound = 0;  // kBoundedStaleness
  Strategy strategy = Strategy::kParameterServer;
  uint32_t group_size = 1;  // workers whose gradients are added up first
  // Of gradients, and of values but those at cuts.
  ElementType wire_type = ElementType::kFloat32;
  GradientCompression compression = {};  // of dense gradients
  LatePolicy late_policy = LatePolicy::kNoneIsLate;
  double learning_rate_factor = 1;  // finite, > 0

  bool sync() const { return mode == ConsistencyMode::kSync; }
  bool has_ps() const {
    return strategy == Strategy::kParameterServer ||
           strategy == Strategy::kHybrid;
  }
  // The ps send what changes in their values, in 8 bits an element, to workers
  // that have followed.
  bool SendsChanges() const {
    return compression.values && sync() &&
           strategy == Strategy::kParameterServer;
  }
  // All ranks reduce the same step at a time, whatever the mode of the rows.
  bool in_step() const { return sync() || strategy == Strategy::kHybrid; }
  // How many clocks of another worker a value may lack; none: any number.
  std::optional<int64_t> bound() const {
    if (mode == ConsistencyMode::kAsync) return std::nullopt;
    return sync() ? 0 : staleness_bound;
  }

  friend bool operator==(const TrainingRegime&,
                         const TrainingRegime&) = default;
};

// The regimes of a job by clock: each holds from its first clock to that of the
// next, the last one for ever. There is always one. A clock before the first
// one's has the first one, so there is no gap. A plain value;
// thread-compatible.
//
// The clock that counts is that of the step: a push of clock c and the values
// that step c reads follow At(c), whenever they come.
class RegimeSchedule {
 public:
  static constexpr size_t kRegimesMax = 4096;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  RegimeSchedule() : RegimeSchedule(TrainingRegime()) {}
  // One regime for all clocks.
  explicit RegimeSchedule(const TrainingRegime& first) : regimes_{first} {}

  const TrainingRegime& At(int64_t clock) const {
    size_t i = regimes_.size() - 1;
    while (i > 0 && regimes_[i].first_clock > clock) --i;
    return regimes_[i];
  }

  // Adds a regime behind the others. `begun`: clocks below it have begun
  // somewhere, so they keep the regime that they have. OK without effect if the
  // same regime is there already: a repeat.
  // Errors, which change nothing: InvalidArgument: another regime begins at
  // this clock, or after it; OutOfRange: the clock has begun, and the message
  // has the smallest possible one; ResourceExhausted: kRegimesMax are there.
  absl::Status Add(const TrainingRegime& regime, int64_t begun);

  // The first clock after `clock` at which SYNC begins or ends; kNever: none.
  int64_t NextSyncChange(int64_t clock) const;
  // True if some regime, or each of them, is SYNC.
  bool AnySync() const;
  bool AllSync() const;
  // How far apart the clocks of any cut may be, wherever it is; none: any
  // number. In SYNC they are equal. A bound lets them be so far apart, though
  // it lets workers be one clock more: the chief reads at its cut's clock
  // before it awaits the cut, and nobody makes the clocks behind the cut for
  // it.
  std::optional<int64_t> CutSpread() const;
  // The type that takes most bytes; at some clock elements travel in it.
  ElementType WidestWireType() const;

  absl::Span<const TrainingRegime> regimes() const { return regimes_; }

  friend bool operator==(const RegimeSchedule&,
                         const RegimeSchedule&) = default;

 private:
  std::vector<TrainingRegime> regimes_;  // by first_clock; never empty
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_REGIME_REGIME_SCHEDULE_H_
