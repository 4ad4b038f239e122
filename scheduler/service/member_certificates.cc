#include "scheduler/service/member_certificates.h"

#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/security/certificate.h"

namespace syncline::scheduler {

MemberCertificates::MemberCertificates(Check check, OnRevoked on_revoked,
                                       OnEnded on_ended)
    : check_(std::move(check)),
      on_revoked_(std::move(on_revoked)),
      on_ended_(std::move(on_ended)) {
  if (check_ == nullptr && on_ended_ == nullptr) return;
  looking_.emplace("member-certificates", kLookPeriod,
                   [this] { Look(absl::Now()); });
}

void MemberCertificates::Add(SessionId session, std::string pem) {
  if (check_ == nullptr && on_ended_ == nullptr) return;
  Certificate certificate;
  if (on_ended_ != nullptr) {
    const auto info = ReadCertificate(pem);
    if (info.ok()) certificate.end = info->not_after;
  }
  certificate.pem = std::move(pem);
  MutexLock lock(&mu_);
  certificates_[session] = std::move(certificate);
}

void MemberCertificates::Remove(SessionId session) {
  MutexLock lock(&mu_);
  certificates_.erase(session);
}

void MemberCertificates::Look(absl::Time now) {
  if (check_ != nullptr) LookForRevoked();
  if (on_ended_ != nullptr) LookForEnded(now);
}

void MemberCertificates::LookForEnded(absl::Time now) {
  std::vector<std::pair<SessionId, absl::Time>> ended;
  {
    MutexLock lock(&mu_);
    for (auto& [session, certificate] : certificates_) {
      if (now < certificate.end) continue;
      ended.emplace_back(
          session, std::exchange(certificate.end, absl::InfiniteFuture()));
    }
  }
  for (const auto& [session, end] : ended) on_ended_(session, end);
}

void MemberCertificates::LookForRevoked() {
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
