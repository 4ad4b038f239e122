#ifndef SYNCLINE_WORKER_COMPUTE_STEP_RECORDER_H_
#define SYNCLINE_WORKER_COMPUTE_STEP_RECORDER_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/job/profile_limits.h"
#include "common/model/graph/node.h"
#include "proto/profile.pb.h"

namespace syncline::worker {

// Writes down what one thread does during its next steps, for `synctl profile`.
// Without a recorder a step costs nothing more: no clock is read. Nodes of
// several plans with one name and operator are one. Thread-compatible.
class StepRecorder {
 public:
  using Kind = StepProfile::Kind;
  static constexpr int kIntervalsMax = 1 << 20;

  // For this many steps, but for one at least and kProfileStepsMax at most.
  explicit StepRecorder(uint32_t steps)
      : steps_(std::clamp(steps, 1u, kProfileStepsMax)) {}

  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  // From where it is made to the end of its scope; `recorder` may be null.
  // Intervals do not overlap: one inside another cuts it in two.
  class Interval {
   public:
    Interval(StepRecorder* recorder, Kind kind, const Node* node = nullptr)
        : recorder_(recorder), kind_(kind), node_(node) {
      if (recorder_ == nullptr) return;
      begin_ = Now();
      outer_ = std::exchange(recorder_->open_, this);
      if (outer_ != nullptr) outer_->AddUntil(begin_);
    }
    ~Interval() {
      if (recorder_ == nullptr) return;
      const int64_t end = Now();
      AddUntil(end);
      recorder_->open_ = outer_;
      if (outer_ != nullptr) outer_->begin_ = end;
    }
    Interval(const Interval&) = delete;
    Interval& operator=(const Interval&) = delete;

   private:
    void AddUntil(int64_t end) { recorder_->Add(kind_, node_, begin_, end); }

    StepRecorder* const recorder_;
    const Kind kind_;
    const Node* const node_;
    Interval* outer_ = nullptr;
    int64_t begin_ = 0;  // of what is not recorded yet
  };

  void BeginStep(int64_t clock);
  void EndStep(uint64_t samples);
  // Its steps are over.
  bool done() const {
    return static_cast<uint32_t>(profile_.steps_size()) == steps_;
  }

  // Intervals that ended just now, one after the other.
  struct Timed {
    Kind kind;
    absl::Duration duration;
  };
  void AddLast(absl::Span<const Timed> sequence);

  // Of the steps that were ended; without job, task and threads.
  const StepProfile& profile() const { return profile_; }

 private:
  static int64_t Now() {
    return std::chrono::steady_clock::now().time_since_epoch() /
           std::chrono::nanoseconds(1);
  }
  void Add(Kind kind, const Node* node, int64_t begin, int64_t end);
  uint32_t ActivityOf(Kind kind, const Node* node);

  const uint32_t steps_;
  StepProfile profile_;
  // By kind, name and operator of the node, in profile_ or empty.
  std::map<std::tuple<Kind, absl::string_view, absl::string_view>, uint32_t>
      activities_;
  Interval* open_ = nullptr;  // the innermost
  int64_t origin_ = 0;        // Now() when the first step began
  int64_t step_begin_ = 0;    // since then
  int64_t clock_ = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_STEP_RECORDER_H_
