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

void RecordWriter::Write(const JobStatus& job, bool durable, absl::Time now) {
  const absl::Status written = state_->Put(job, durable);
  if (written.ok()) {
    if (unwritten_.erase(job.job_id()) > 0 && unwritten_.empty()) {
      SetTrouble(absl::OkStatus());
    }
    return;
  }
  unwritten_.insert(job.job_id());
  SetTrouble(written);
  LogFailure(job.job_id(), written, now);
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
    absl::FunctionRef<absl::StatusOr<JobStatus>(const std::string&)> find,
    absl::Time now) {
  for (const std::string& job_id : std::exchange(revoked_, {})) {
    Revoke(job_id, now);
  }
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
