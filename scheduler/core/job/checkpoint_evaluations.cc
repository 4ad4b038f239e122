#include "scheduler/core/job/checkpoint_evaluations.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"

namespace syncline::scheduler {
namespace {

constexpr size_t kWhyBytesMax = 1 << 10;

}  // namespace

void CheckpointEvaluations::Skip(const CheckpointInfo& checkpoint,
                                 const std::string& why) {
  notes_.push_back(absl::StrCat("the checkpoint at clock ", checkpoint.clock(),
                                " is not evaluated: ", why));
}

void CheckpointEvaluations::OnWhole(const CheckpointInfo& checkpoint) {
  if (checkpoint.path().empty() || checkpoint.clock() <= last_clock_) return;
  last_clock_ = checkpoint.clock();
  if (waiting_.has_value()) {
    Skip(*waiting_,
         absl::StrCat("the evaluator is still at another one, and the one at "
                      "clock ",
                      checkpoint.clock(), " has come"));
  }
  waiting_ = checkpoint;
}

void CheckpointEvaluations::OnEvaluatedBefore(int64_t clock) {
  last_clock_ = std::max(last_clock_, clock);
}

void CheckpointEvaluations::OnDeleted(const std::string& path) {
  if (!waiting_.has_value() || waiting_->path() != path) return;
  Skip(*waiting_, "it was deleted before the evaluator came to it");
  waiting_.reset();
}

void CheckpointEvaluations::Forget(const std::string& path) {
  if (under_way_.has_value() && under_way_->path() == path) under_way_.reset();
  if (waiting_.has_value() && waiting_->path() == path) waiting_.reset();
}

void CheckpointEvaluations::OnEvaluated(const std::string& path) {
  Forget(path);
}

void CheckpointEvaluations::OnFailed(const std::string& path,
                                     const std::string& why) {
  const bool is_known =
      (under_way_.has_value() && under_way_->path() == path) ||
      (waiting_.has_value() && waiting_->path() == path);
  Forget(path);
  if (!is_known) return;  // a repeat
  notes_.push_back(absl::StrCat("warning: the checkpoint in ", Utf8Text(path),
                                " could not be evaluated; training goes on: ",
                                Utf8Shortened(Utf8Text(why), kWhyBytesMax)));
}

void CheckpointEvaluations::OnWorkersDone(int64_t final_clock) {
  workers_done_ = true;
  final_clock_ = final_clock;
}

std::optional<CheckpointInfo> CheckpointEvaluations::Next() {
  if (under_way_.has_value()) return std::nullopt;
  if (waiting_.has_value()) {
    under_way_ = std::exchange(waiting_, std::nullopt);
    return under_way_;
  }
  if (!workers_done_ || finish_told_) return std::nullopt;
  finish_told_ = true;
  if (last_clock_ < final_clock_) {
    notes_.push_back(
        absl::StrCat("warning: the job's result, of clock ", final_clock_,
                     ", is not evaluated: there is no checkpoint of it"));
  }
  return CheckpointInfo();
}

std::vector<std::string> CheckpointEvaluations::TakeNotes() {
  return std::exchange(notes_, {});
}

}  // namespace syncline::scheduler
