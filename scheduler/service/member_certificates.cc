#include "scheduler/service/member_certificates.h"

#include <utility>
#include <vector>

namespace syncline::scheduler {

MemberCertificates::MemberCertificates(Check check, OnRevoked on_revoked)
    : check_(std::move(check)), on_revoked_(std::move(on_revoked)) {
  if (check_ == nullptr) return;
  looking_.emplace("member-certificates", kLookPeriod, [this] { Look(); });
}

void MemberCertificates::Add(SessionId session, std::string pem) {
  if (check_ == nullptr) return;
  MutexLock lock(&mu_);
  certificates_[session] = {.pem = std::move(pem)};
}

void MemberCertificates::Remove(SessionId session) {
  MutexLock lock(&mu_);
  certificates_.erase(session);
}

void MemberCertificates::Look() {
  std::vector<std::pair<SessionId, absl::Status>> revoked;
  {
    MutexLock lock(&mu_);
    for (auto& [session, certificate] : certificates_) {
      if (certificate.is_being_told) continue;
      absl::Status may = check_(certificate.pem);
      if (may.ok()) continue;
      certificate.is_being_told = true;
      revoked.emplace_back(session, std::move(may));
    }
  }
  for (const auto& [session, why] : revoked) {
    const bool is_told = on_revoked_(session, why);
    MutexLock lock(&mu_);
    const auto found = certificates_.find(session);
    if (found == certificates_.end()) continue;
    if (is_told) {
      certificates_.erase(found);
    } else {
      // The loop's queue is full: the next look tells it again.
      found->second.is_being_told = false;
    }
  }
}

}  // namespace syncline::scheduler
