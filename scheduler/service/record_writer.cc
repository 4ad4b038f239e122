#include "scheduler/service/record_writer.h"

#include <utility>

#include "common/system/log.h"

namespace syncline::scheduler {
namespace {

// A disk that is full fails at every tick.
constexpr absl::Duration kLogPeriod = absl::Seconds(30);

}  // namespace

absl::Status RecordWriter::Check() const {
  MutexLock lock(&mu_);
  return trouble_;
}

void RecordWriter::SetTrouble(const absl::Status& trouble) {
  MutexLock lock(&mu_);
  trouble_ = trouble;
}

absl::Status RecordWriter::WriteNew(const StoredJob& job, absl::Time now) {
  const absl::Status written = state_->PutNew(job);
  if (!written.ok()) Revoke(job.status.job_id(), now);
  return written;
}

void RecordWriter::WriteEpoch(uint64_t epoch, absl::Time now) {
  const absl::Status written = state_->PutEpoch(epoch);
  unwritten_epoch_ = written.ok() ? 0 : epoch;
  if (!written.ok()) LogFailure("", written, now);
}

void RecordWriter::Write(const JobRecord& job, bool durable, absl::Time now) {
  const std::string& job_id = job.status.job_id();
  const absl::Status written = state_->Put(job, durable);
  if (written.ok()) {
    if (unwritten_.erase(job_id) > 0 && unwritten_.empty()) {
      SetTrouble(absl::OkStatus());
    }
    return;
  }
  unwritten_.insert(job_id);
  SetTrouble(written);
  LogFailure(job_id, written, now);
}

void RecordWriter::WriteEvent(const AppendEvent& event, absl::Time now) {
  // With those before it, by Retry.
  if (unwritten_events_.contains(event.job_id)) return;
  const absl::Status written =
      state_->PutEvent(event.job_id, event.event, event.left_out);
  if (written.ok()) return;
  unwritten_events_.insert(event.job_id);
  LogFailure(event.job_id, written, now);
}

void RecordWriter::RetryEvents(
    absl::FunctionRef<
        absl::StatusOr<ClusterCore::EventList>(const std::string&)>
        find,
    absl::Time now) {
  for (const std::string& job_id : std::exchange(unwritten_events_, {})) {
    const auto all = find(job_id);
    if (!all.ok()) continue;
    for (const StoredEvent& event : all->events) {
      // Those that were left out meanwhile go one by one, as they came.
      const uint64_t left_out = event.number > JobEventLog::kMax
                                    ? event.number - JobEventLog::kMax
                                    : 0;
      WriteEvent({job_id, event, left_out}, now);
    }
  }
}

void RecordWriter::DeleteOld(const std::string& job_id, absl::Time now) {
  const absl::Status deleted = state_->Delete(job_id);
  if (!deleted.ok()) LogFailure(job_id, deleted, now);
}

void RecordWriter::Revoke(const std::string& job_id, absl::Time now) {
  const absl::Status deleted = state_->Delete(job_id);
  if (deleted.ok()) return;
  revoked_.insert(job_id);
  LogFailure(job_id, deleted, now);
}

void RecordWriter::Retry(
    absl::FunctionRef<absl::StatusOr<JobRecord>(const std::string&)> find,
    absl::Time now) {
  for (const std::string& job_id : std::exchange(revoked_, {})) {
    Revoke(job_id, now);
  }
  if (unwritten_epoch_ != 0) WriteEpoch(unwritten_epoch_, now);
  if (unwritten_.empty()) return;
  for (const std::string& job_id : std::exchange(unwritten_, {})) {
    const auto job = find(job_id);
    if (job.ok()) Write(*job, /*durable=*/true, now);
  }
  if (!unwritten_.empty()) return;
  SetTrouble(absl::OkStatus());
  LogInfo("all job records are written again");
  log_at_ = absl::InfinitePast();
}

void RecordWriter::LogFailure(const std::string& job_id,
                              const absl::Status& why, absl::Time now) {
  metrics_->CountStoreError();
  ++failures_;
  if (now < log_at_) return;
  log_at_ = now + kLogPeriod;
  LogError("job record not written or not deleted; it is tried again")
      .Job(job_id)
      .Field("failed_writes", std::exchange(failures_, 0))
      .Status(why);
}

}  // namespace syncline::scheduler
