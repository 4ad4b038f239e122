#include "server/shard/non_finite_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/system/log.h"

namespace syncline::ps {
namespace {

// A model that diverges is not finite in every block of every clock.
constexpr absl::Duration kWarningPeriod = absl::Seconds(10);

}  // namespace

NonFiniteLog::NonFiniteLog(OnNonFinite policy, std::vector<std::string> workers,
                           std::string label)
    : policy_(policy),
      workers_(std::move(workers)),
      label_(std::move(label)),
      counts_(workers_.size()) {}

void NonFiniteLog::Found(uint32_t rank, int64_t clock,
                         const std::string& what) {
  const bool sum = rank >= workers_.size();
  total_.fetch_add(1);
  if (!sum) counts_[rank].fetch_add(1);
  const bool fails = policy_ == OnNonFinite::kFailJob;
  const absl::Time now = MonotonicNow();
  MutexLock lock(&mu_);
  // There may be a message's rows of them: most are counted and no more.
  if (fails ? !failure_.ok() : now < next_warning_) return;
  const absl::Status problem = absl::FailedPreconditionError(absl::StrCat(
      label_, ": the gradient of clock ", clock, " is not finite: ", what,
      sum ? ", in the sum over all workers"
          : absl::StrCat(", of ", workers_[rank])));
  if (fails) {
    failure_ = problem;
    failed_.store(true, std::memory_order_release);
  }
  next_warning_ = now + kWarningPeriod;
  LogWarning(fails ? "the job fails" : "a gradient is not applied")
      .Status(problem);
}

void NonFiniteLog::Import(absl::Span<const uint64_t> counts, uint64_t total) {
  for (size_t rank = 0; rank < counts_.size(); ++rank) {
    counts_[rank] = counts[rank];
  }
  total_ = total;
}

absl::Status NonFiniteLog::failure() const {
  if (!failed()) return absl::OkStatus();
  MutexLock lock(&mu_);
  return failure_;
}

}  // namespace syncline::ps
