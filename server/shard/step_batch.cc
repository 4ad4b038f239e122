#include "server/shard/step_batch.h"

#include <algorithm>
#include <cstddef>
#include <memory>

namespace syncline::ps {
namespace {

// True if rows `next` continue the rows of `step`, of the same ranks.
bool Continues(const RowsStep& step, const ShardAction& action,
               const std::vector<CallRowSpan>& next) {
  return step.kind == action.kind && step.clock == action.clock &&
         step.sample_count == action.sample_count &&
         std::equal(step.ranks.begin(), step.ranks.end(), next.begin(),
                    next.end(), [](const CallRowSpan& a, const CallRowSpan& b) {
                      return a.IsFollowedBy(b);
                    });
}

}  // namespace

void StepBatch::AddRows(int lane, const ShardAction& action,
                        std::vector<CallRowSpan> ranks) {
  std::vector<LaneStep>& steps = lanes_[lane];
  RowsStep* const last = steps.empty() ? nullptr : steps.back().rows.get();
  if (last != nullptr && Continues(*last, action, ranks)) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      last->ranks[i].count += ranks[i].count;
    }
    return;
  }
  LaneStep& step = steps.emplace_back();
  step.rows = std::make_unique<RowsStep>();
  step.rows->kind = action.kind;
  step.rows->block = action.block;
  step.rows->ranks = std::move(ranks);
  step.rows->clock = action.clock;
  step.rows->sample_count = action.sample_count;
  step.rows->squared_norm = action.squared_norm;
}

void StepBatch::AfterSteps(Callback then) {
  AddCountdown(std::move(then), /*all_lanes=*/false);
}

void StepBatch::AfterAllLanes(Callback then) {
  AddCountdown(std::move(then), /*all_lanes=*/true);
}

void StepBatch::VisitLanes(LaneVisit visit) {
  const auto shared = std::make_shared<const LaneVisit>(std::move(visit));
  for (std::vector<LaneStep>& steps : lanes_) {
    steps.push_back({.kind = ShardAction::Kind::kSnapshot, .visit = shared});
  }
}

void StepBatch::AddCountdown(Callback then, bool all_lanes) {
  auto countdown = std::make_shared<Countdown>();
  countdown->then = std::move(then);
  for (std::vector<LaneStep>& steps : lanes_) {
    if (steps.empty() && !all_lanes) continue;
    ++countdown->left;
    steps.push_back(
        {.kind = ShardAction::Kind::kAccept, .countdown = countdown});
  }
  if (countdown->left > 0) return;
  End([countdown](absl::Status, PullValues) { countdown->then(); },
      absl::OkStatus());
}

void StepBatch::RunCallbacks() {
  for (Ended& ended : ended_) ended.done(ended.status, {});
}

}  // namespace syncline::ps
