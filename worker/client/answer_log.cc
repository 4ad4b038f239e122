#include "worker/client/answer_log.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

namespace syncline::worker {

AnswerLog::AnswerLog(uint32_t shards, const ClientTelemetry& telemetry,
                     std::optional<uint64_t>* non_finite)
    : telemetry_(telemetry),
      passes_over_first_(!non_finite->has_value()),
      non_finite_(shards),
      told_(*non_finite) {
  if (passes_over_first_) *non_finite = 0;
}

void AnswerLog::BeginStep() {
  MutexLock lock(&mu_);
  left_ = absl::InfinitePast();
  readable_ = absl::InfinitePast();
  checkpoint_cut_ = 0;
}

void AnswerLog::OnPushed(absl::Time left) {
  MutexLock lock(&mu_);
  Mark(left, left);
}

void AnswerLog::OnValues(uint32_t shard, const PullResponseHeader& header,
                         size_t bytes, absl::Time left) {
  AddCount(telemetry_.pulled_bytes, bytes);
  MutexLock lock(&mu_);
  TakeNonFinite(shard, header.non_finite());
  skipped_through_ = std::max(skipped_through_, header.skipped_through());
  regimes_ = std::max(regimes_, header.regimes());
  checkpoint_cut_ = std::max(checkpoint_cut_, header.checkpoint_cut());
  if (header.open_clock() > 0) {
    open_clock_ = std::max(open_clock_, header.open_clock());
    applied_clocks_ = std::max(applied_clocks_, header.min_clock());
  }
  for (int i = static_cast<int>(lost_.size()); i < header.lost_workers_size();
       ++i) {
    const LostWorker& lost = header.lost_workers(i);
    lost_.push_back({.rank = lost.rank(), .first_clock = lost.first_clock()});
  }
  for (const ReturnedClock& lease : header.returned()) {
    const ParameterExchange::ReturnedClock returned = {
        .rank = lease.rank(),
        .clock = lease.clock(),
        .next_clock = lease.next_clock()};
    if (!absl::c_linear_search(returned_, returned)) {
      returned_.push_back(returned);
    }
  }
  Mark(left, left + absl::Seconds(header.waited_seconds()));
}

ParameterExchange::WaitTimes AnswerLog::TimesOf(absl::Time begin,
                                                absl::Time end) const {
  MutexLock lock(&mu_);
  const absl::Time left = std::clamp(left_, begin, end);
  const absl::Time readable = std::clamp(readable_, left, end);
  return {left - begin, readable - left, end - readable};
}

uint32_t AnswerLog::Regimes() const {
  MutexLock lock(&mu_);
  return regimes_;
}

void AnswerLog::ForgetRegimes() {
  MutexLock lock(&mu_);
  regimes_ = 0;
}

int64_t AnswerLog::OpenClock() const {
  MutexLock lock(&mu_);
  return open_clock_;
}

int64_t AnswerLog::AppliedClocks() const {
  MutexLock lock(&mu_);
  return applied_clocks_;
}

std::vector<ParameterExchange::LostWorker> AnswerLog::Lost() const {
  MutexLock lock(&mu_);
  return lost_;
}

std::vector<ParameterExchange::ReturnedClock> AnswerLog::TakeReturned() {
  MutexLock lock(&mu_);
  return std::exchange(returned_, {});
}

bool AnswerLog::HasReturned() const {
  MutexLock lock(&mu_);
  return !returned_.empty();
}

uint64_t AnswerLog::CheckpointCut() const {
  MutexLock lock(&mu_);
  return checkpoint_cut_;
}

int64_t AnswerLog::SkippedThrough() const {
  MutexLock lock(&mu_);
  return skipped_through_;
}

void AnswerLog::Mark(absl::Time left, absl::Time readable) {
  left_ = std::max(left_, left);
  readable_ = std::max(readable_, readable);
}

void AnswerLog::TakeNonFinite(uint32_t shard, uint64_t count) {
  std::optional<uint64_t>& latest = non_finite_[shard];
  if (passes_over_first_ && !latest.has_value()) *told_ += count;
  latest = std::max(latest.value_or(0), count);
  uint64_t sum = 0;
  for (const std::optional<uint64_t>& of : non_finite_) sum += of.value_or(0);
  if (sum <= *told_) return;
  AddCount(telemetry_.non_finite, sum - *told_);
  told_ = sum;
}

}  // namespace syncline::worker
