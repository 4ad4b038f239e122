#include "common/job/lease_rules.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_fields.h"
#include "common/job/worker_groups.h"

namespace syncline {
namespace {

using C = ConsistencySpec;

bool LetsWorkersRunApart(C::Mode mode) {
  return mode == C::ASYNC || mode == C::BOUNDED_STALENESS;
}

void CheckMode(const JobSpec& spec, Problems* problems) {
  const ConsistencySpec& consistency = spec.consistency();
  if (!LetsWorkersRunApart(consistency.mode())) {
    const C::Mode mode = consistency.mode() == C::MODE_UNSPECIFIED
                             ? C::SYNC
                             : consistency.mode();
    problems->Add("data.sharing", "LEASED does not go with consistency.mode ",
                  C::Mode_Name(mode),
                  ": there each worker has a part of every clock, so none can "
                  "take more than another; use ASYNC or BOUNDED_STALENESS, or "
                  "STATIC (with resources.min_workers a SYNC job goes on "
                  "without a lost worker)");
    return;
  }
  if (consistency.mode() != C::BOUNDED_STALENESS) return;
  const uint32_t workers = std::max(
      {1u, spec.resources().workers(), spec.resources().max_workers()});
  if (const std::string why =
          WhyBoundTooTight(consistency.staleness_bound(), workers);
      !why.empty()) {
    problems->Add("consistency.staleness_bound", why);
  }
}

}  // namespace

std::string WhyBoundTooTight(uint32_t staleness_bound, uint32_t workers) {
  if (staleness_bound >= workers) return "";
  return absl::StrCat(
      staleness_bound, " is less than ", workers,
      ", the number of workers: with data.sharing LEASED a clock is one batch "
      "of one worker, so workers that train side by side are at clocks as far "
      "apart; use at least ",
      workers, ", better ", 4 * uint64_t{workers});
}

void CheckLeases(const JobSpec& spec, Problems* problems) {
  if (!LeasesData(spec)) return;
  if (!IsOneOf(spec.strategy(), {STRATEGY_UNSPECIFIED, PARAMETER_SERVER})) {
    problems->Add("data.sharing",
                  "LEASED is for strategy PARAMETER_SERVER only: in ",
                  Strategy_Name(spec.strategy()),
                  " workers make every clock together; use STATIC");
    return;
  }
  CheckMode(spec, problems);
  if (HasGroups(spec)) {
    problems->Add("data.sharing",
                  "LEASED is not built for groups: the workers of a group make "
                  "every clock together; use STATIC");
  }
  if (spec.training().global_batch() > 0) {
    problems->Add("training.global_batch",
                  "is for data.sharing STATIC: with LEASED a clock is one "
                  "batch of training.batch_size, whatever the number of "
                  "workers");
  }
  if (spec.has_auto_regime()) {
    problems->Add("auto_regime",
                  "tries SYNC, which does not go with data.sharing LEASED; use "
                  "STATIC");
  }
}

}  // namespace syncline
