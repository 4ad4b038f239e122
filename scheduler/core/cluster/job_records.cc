#include "scheduler/core/cluster/job_records.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/exit_codes.h"
#include "google/protobuf/util/message_differencer.h"
#include "scheduler/core/cluster/tenant_rules.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/repeated_fault.h"

namespace syncline::scheduler {
namespace {

constexpr size_t kDifferenceBytesMax = 1000;
constexpr absl::Duration kLookPeriod = absl::Seconds(10);

// Paths of the fields whose values are not the same; empty: none.
std::string SpecDifference(const JobSpec& a, const JobSpec& b) {
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(a, b)) return "";
  return absl::StrJoin(
      absl::StrSplit(absl::string_view(report).substr(0, kDifferenceBytesMax),
                     '\n', absl::SkipEmpty()),
      ", ");
}

}  // namespace

std::string JobRecords::NextId() {
  return absl::StrFormat("j-%04d", next_number_++);
}

void JobRecords::Reserve(const std::string& job_id) {
  ReserveNumber(JobNumber(job_id));
}

void JobRecords::ReserveNumber(uint64_t number) {
  next_number_ = std::max(next_number_, number + 1);
}

void JobRecords::Add(StoredJob stored) {
  const uint64_t number = JobNumber(stored.status.job_id());
  if (!stored.client_key.empty()) by_client_key_[stored.client_key] = number;
  jobs_[number] = std::make_unique<Job>(std::move(stored), options_);
}

Job* JobRecords::Find(const std::string& job_id) {
  const auto it = jobs_.find(JobNumber(job_id));
  return it == jobs_.end() || it->second->id() != job_id ? nullptr
                                                         : it->second.get();
}

absl::StatusOr<const Job*> JobRecords::Get(const std::string& job_id) const {
  const auto it = jobs_.find(JobNumber(job_id));
  if (it == jobs_.end() || it->second->id() != job_id) {
    return absl::NotFoundError(absl::StrCat("no job \"", job_id, "\""));
  }
  return it->second.get();
}

std::vector<Job*> JobRecords::All() {
  std::vector<Job*> jobs;
  jobs.reserve(jobs_.size());
  for (const auto& [number, job] : jobs_) jobs.push_back(job.get());
  return jobs;
}

std::vector<const Job*> JobRecords::NewestFirst() const {
  std::vector<const Job*> jobs;
  jobs.reserve(jobs_.size());
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    jobs.push_back(it->second.get());
  }
  return jobs;
}

absl::StatusOr<std::optional<std::string>> JobRecords::FindRepeated(
    const std::string& client_key, const JobSpec& spec,
    absl::Span<const Artifact> files) const {
  const auto known = by_client_key_.find(client_key);
  if (client_key.empty() || known == by_client_key_.end()) return std::nullopt;
  const JobStatus& first = jobs_.at(known->second)->status();
  std::string differs = SpecDifference(first.spec(), spec);
  for (const Artifact& artifact : first.artifacts()) {
    for (const Artifact& file : files) {
      if (artifact.name() != file.name() ||
          (artifact.size_bytes() == file.size_bytes() &&
           artifact.crc32c() == file.crc32c())) {
        continue;
      }
      absl::StrAppend(&differs, differs.empty() ? "" : ", ", "the ",
                      file.name() == "model.onnx" ? "model" : "weights",
                      " file");
    }
  }
  if (differs.empty()) return first.job_id();
  return absl::AlreadyExistsError(absl::StrCat(
      "client key \"", absl::Utf8SafeCHexEscape(KeyAsGiven(client_key)),
      "\" is that of job ", first.job_id(),
      ", which is another one; what differs: ", differs,
      ". Submit with another key"));
}

void JobRecords::NoteRepeatedFault(Job* failed) const {
  if (failed->status().exit_code() != kExitRetryable) return;
  const std::string fault = FaultOf(failed->status());
  if (fault.empty()) return;
  for (const Job* earlier : NewestFirst()) {
    if (JobNumber(earlier->id()) >= JobNumber(failed->id()) ||
        earlier->status().tenant() != failed->status().tenant() ||
        !IsSameWork(earlier->status(), failed->status())) {
      continue;
    }
    if (FaultOf(earlier->status()) == fault) {
      failed->MarkRepeated(earlier->id());
    }
    return;
  }
}

void JobRecords::DeleteOld(absl::Duration keep, absl::Time now,
                           ClusterActions* actions) {
  if (now < look_at_) return;
  look_at_ = now + kLookPeriod;
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    Job* job = it->second.get();
    const bool expired = job->IsOver() && now - job->since() >= keep;
    const bool newest = std::next(it) == jobs_.end();
    if (!expired || (newest && job->status().artifacts().empty())) {
      ++it;
      continue;
    }
    if (newest) job->ClearArtifacts(actions);
    if (!newest) {
      std::erase_if(by_client_key_, [&](const auto& entry) {
        return entry.second == it->first;
      });
    }
    actions->push_back(DeleteJob{job->id(), !newest});
    it = newest ? std::next(it) : jobs_.erase(it);
  }
}

}  // namespace syncline::scheduler
