#include "common/update/pending_statistics.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"

namespace syncline {

PendingStatistics::PendingStatistics(
    std::vector<StatisticsReducer::Worker> workers, std::string label)
    : label_(label), reducer_(std::move(workers), std::move(label)) {}

uint64_t PendingStatistics::Reduce(const FoldStatisticsRequest& request,
                                   absl::Time deadline, Done done) {
  if (request.clock() < 0) {
    done(absl::InvalidArgumentError(
        absl::StrCat(label_, ": statistics of clock ", request.clock(),
                     ", must be at least 0")));
    return 0;
  }
  StatisticsReducer::Part part = {.rank = request.caller().rank(),
                                  .incarnation = request.caller().incarnation(),
                                  .at = {request.clock(), request.fold()},
                                  .values = request.values(),
                                  .absent = request.absent(),
                                  .deadline = deadline};
  StatisticsReducer::Answers answers;
  {
    MutexLock lock(&mu_);
    part.token = next_token_++;
    waiting_[part.token] = std::move(done);
    reducer_.OnPart(part, MonotonicNow(), &answers);
  }
  Answer(std::move(answers));
  return part.token;
}

void PendingStatistics::Cancel(uint64_t token) {
  StatisticsReducer::Answers answers;
  {
    MutexLock lock(&mu_);
    reducer_.OnCancel(token, &answers);
  }
  Answer(std::move(answers));
}

void PendingStatistics::Tick(absl::Time now, absl::Duration frozen) {
  StatisticsReducer::Answers answers;
  {
    MutexLock lock(&mu_);
    reducer_.OnFrozen(frozen, now);
    reducer_.OnTick(now, &answers);
  }
  Answer(std::move(answers));
}

void PendingStatistics::Close(const absl::Status& status) {
  StatisticsReducer::Answers answers;
  {
    MutexLock lock(&mu_);
    reducer_.Close(status, &answers);
  }
  Answer(std::move(answers));
}

void PendingStatistics::Answer(StatisticsReducer::Answers answers) {
  for (StatisticsReducer::Answer& answer : answers) {
    Done done;
    {
      MutexLock lock(&mu_);
      auto waiting = waiting_.extract(answer.token);
      SYNCLINE_CHECK(!waiting.empty());
      done = std::move(waiting.mapped());
    }
    if (answer.status.ok()) {
      done(std::move(answer.sums));
    } else {
      done(std::move(answer.status));
    }
  }
}

size_t PendingStatistics::parked_count() const {
  MutexLock lock(&mu_);
  return reducer_.parked_count();
}

absl::Time PendingStatistics::moved_at() const {
  MutexLock lock(&mu_);
  return reducer_.moved_at();
}

}  // namespace syncline
