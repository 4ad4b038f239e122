#include "worker/data/kept_data.h"

#include <utility>

namespace syncline::worker {

KeptData::Sources KeptData::Take(absl::string_view next_job_id) {
  job_id_ = std::string(next_job_id);
  return std::exchange(sources_, {});
}

void KeptData::Begin(absl::string_view job_id) {
  Sources forgotten;
  MutexLock lock(&mu_);
  if (job_id_ != job_id) forgotten = Take(job_id);
}

void KeptData::Forget(absl::string_view job_id) {
  Sources forgotten;
  MutexLock lock(&mu_);
  if (job_id_ == job_id) forgotten = Take("");
}

void KeptData::ForgetAll() {
  Sources forgotten;
  MutexLock lock(&mu_);
  forgotten = Take("");
}

void KeptData::Keep(absl::string_view job_id, const std::string& field,
                    const std::string& version, Source source) {
  Versioned kept = {version, std::move(source)};
  MutexLock lock(&mu_);
  if (job_id_.empty() || job_id_ != job_id) return;
  std::swap(sources_[field], kept);
}

std::optional<KeptData::Source> KeptData::Find(absl::string_view job_id,
                                               const std::string& field,
                                               absl::string_view version) {
  Sources::node_type forgotten;
  MutexLock lock(&mu_);
  if (job_id_ != job_id) return std::nullopt;
  const auto found = sources_.find(field);
  if (found == sources_.end()) return std::nullopt;
  if (found->second.version == version) return found->second.source;
  forgotten = sources_.extract(found);
  return std::nullopt;
}

void KeptData::KeepOnly(absl::string_view job_id,
                        absl::Span<const std::string> fields) {
  Sources forgotten;
  MutexLock lock(&mu_);
  if (job_id_ != job_id) return;
  forgotten.swap(sources_);
  for (const std::string& field : fields) {
    if (auto used = forgotten.extract(field); !used.empty()) {
      sources_.insert(std::move(used));
    }
  }
}

}  // namespace syncline::worker
