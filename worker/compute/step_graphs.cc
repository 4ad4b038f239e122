#include "worker/compute/step_graphs.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace syncline::worker {

SegmentRecorder::~SegmentRecorder() {
  // Some work of the step failed. What was kept of it is nobody's.
  if (is_keeping_) stream_.EndGraph().status().IgnoreError();
}

absl::Status SegmentRecorder::Begin() {
  SYNCLINE_CHECK(!is_keeping_);
  SYNCLINE_RETURN_IF_ERROR(stream_.BeginGraph());
  is_keeping_ = true;
  return absl::OkStatus();
}

absl::Status SegmentRecorder::Cut() {
  is_keeping_ = false;
  SYNCLINE_ASSIGN_OR_RETURN(open_.graph, stream_.EndGraph());
  segments_.push_back(std::exchange(open_, StepSegment()));
  open_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status SegmentRecorder::AddGradient(int parameter, int64_t bytes) {
  open_.gradients.push_back(parameter);
  open_bytes_ += bytes;
  if (open_bytes_ < segment_bytes_) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(Cut());
  return Begin();
}

absl::Status SegmentRecorder::AddApart(const StepPlan::Apart& apart) {
  SYNCLINE_RETURN_IF_ERROR(Cut());
  segments_.push_back({.graph = nullptr, .apart = apart});
  return Begin();
}

absl::StatusOr<std::vector<StepSegment>> SegmentRecorder::End() {
  SYNCLINE_RETURN_IF_ERROR(Cut());
  return std::move(segments_);
}

KeptSteps::Step* KeptSteps::Find(absl::Span<const void* const> binding,
                                 int choices) {
  const auto found =
      std::find_if(steps_.begin(), steps_.end(), [&](const auto& step) {
        return step->choices == choices && step->binding == binding;
      });
  if (found != steps_.end()) {
    std::rotate(steps_.begin(), found, found + 1);
    return steps_.front().get();
  }
  if (steps_.size() == kStepsMax) steps_.pop_back();
  auto step = std::make_unique<Step>();
  step->binding.assign(binding.begin(), binding.end());
  step->choices = choices;
  steps_.insert(steps_.begin(), std::move(step));
  return nullptr;
}

}  // namespace syncline::worker
