#include "worker/compute/step_recorder.h"

#include <algorithm>

namespace syncline::worker {

void StepRecorder::BeginStep(int64_t clock) {
  const int64_t now = Now();
  if (profile_.steps_size() == 0) origin_ = now;
  step_begin_ = now - origin_;
  clock_ = clock;
}

void StepRecorder::EndStep(uint64_t samples) {
  StepProfile::Step* const step = profile_.add_steps();
  step->set_clock(clock_);
  step->set_begin_ns(static_cast<uint64_t>(step_begin_));
  step->set_duration_ns(static_cast<uint64_t>(Now() - origin_ - step_begin_));
  step->set_samples(samples);
}

void StepRecorder::AddLast(absl::Span<const Timed> sequence) {
  int64_t at = Now();
  for (const Timed& timed : sequence) {
    at -= absl::ToInt64Nanoseconds(timed.duration);
  }
  for (const Timed& timed : sequence) {
    const int64_t begin = at;
    at += absl::ToInt64Nanoseconds(timed.duration);
    if (at > begin) Add(timed.kind, nullptr, begin, at);
  }
}

void StepRecorder::Add(Kind kind, const Node* node, int64_t begin,
                       int64_t end) {
  if (profile_.interval_activity_size() == kIntervalsMax) {
    profile_.set_truncated(true);
    return;
  }
  begin = std::max(begin, origin_);
  profile_.add_interval_activity(ActivityOf(kind, node));
  profile_.add_interval_begin_ns(static_cast<uint64_t>(begin - origin_));
  profile_.add_interval_duration_ns(
      static_cast<uint64_t>(std::max<int64_t>(0, end - begin)));
}

uint32_t StepRecorder::ActivityOf(Kind kind, const Node* node) {
  const auto found = activities_.find(
      {kind, node != nullptr ? absl::string_view(node->name) : "",
       node != nullptr ? absl::string_view(node->op_type) : ""});
  if (found != activities_.end()) return found->second;
  const auto index = static_cast<uint32_t>(profile_.activities_size());
  StepProfile::Activity* const activity = profile_.add_activities();
  activity->set_kind(kind);
  if (node != nullptr) {
    activity->set_node(node->name);
    activity->set_op_type(node->op_type);
  }
  // An activity of the profile stays where it is.
  activities_[{kind, activity->node(), activity->op_type()}] = index;
  return index;
}

}  // namespace syncline::worker
