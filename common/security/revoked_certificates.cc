#include "common/security/revoked_certificates.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/security/certificate.h"
#include "common/system/log.h"

namespace syncline {
namespace {

constexpr size_t kFileBytesMax = 16 << 20;
// Twice the members that a cluster may have: each look of the scheduler at all
// of them parses none again.
constexpr size_t kSeenMax = 8192;
constexpr size_t kSeenBytesMax = 8 << 10;

using Hashes = absl::flat_hash_set<std::string>;

// Errors: InvalidArgument, naming the line.
absl::StatusOr<Hashes> Parse(absl::string_view text) {
  Hashes hashes;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    std::string hash =
        absl::AsciiStrToLower(absl::StrReplaceAll(line, {{":", ""}}));
    const bool is_hash =
        hash.size() == 64 && absl::c_all_of(hash, [](char c) {
          return absl::ascii_isxdigit(static_cast<unsigned char>(c));
        });
    if (!is_hash) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, ": \"", Printable(line.substr(0, 100)),
          "\" is no SHA-256 of a certificate: 64 hex digits, as `synctl certs "
          "show` prints them"));
    }
    hashes.insert(std::move(hash));
  }
  return hashes;
}

}  // namespace

RevokedCertificates::RevokedCertificates(const std::string& path)
    : file_(path, kFileBytesMax, "revoked certificates") {}

absl::StatusOr<std::shared_ptr<RevokedCertificates>> RevokedCertificates::Open(
    const std::string& path) {
  auto revoked =
      std::shared_ptr<RevokedCertificates>(new RevokedCertificates(path));
  MutexLock lock(&revoked->mu_);
  SYNCLINE_RETURN_IF_ERROR(revoked->Read());
  return revoked;
}

absl::Status RevokedCertificates::Read() {
  std::optional<Hashes> read;
  SYNCLINE_RETURN_IF_ERROR(
      file_.Look([&](absl::string_view text) -> absl::Status {
        SYNCLINE_ASSIGN_OR_RETURN(read, Parse(text));
        return absl::OkStatus();
      }));
  if (!read.has_value()) return absl::OkStatus();
  const auto gone = absl::c_count_if(
      hashes_, [&](const std::string& hash) { return !read->contains(hash); });
  if (gone > 0) {
    LogWarning("certificates are revoked no more: their lines are gone")
        .Field("file", file_.path())
        .Field("certificates", gone)
        .Field("still_revoked", read->size());
  }
  hashes_ = *std::move(read);
  return absl::OkStatus();
}

bool RevokedCertificates::IsFileUsable() {
  MutexLock lock(&mu_);
  return Read().ok() && file_.is_usable();
}

absl::Status RevokedCertificates::Check(absl::string_view pem, absl::Time now) {
  MutexLock lock(&mu_);
  if (now >= looked_at_ + kLookPeriod) {
    looked_at_ = now;
    SYNCLINE_RETURN_IF_ERROR(Read());
  }
  if (hashes_.empty()) return absl::OkStatus();
  std::vector<std::string> parsed;
  const std::vector<std::string>* hashes = &parsed;
  if (const auto known = seen_.find(pem); known != seen_.end()) {
    hashes = &known->second;
  } else {
    auto read = CertificateHashes(pem);
    if (!read.ok()) {
      return absl::UnauthenticatedError(
          absl::StrCat("the peer's certificate: ", read.status().message()));
    }
    parsed = *std::move(read);
    if (pem.size() <= kSeenBytesMax) {
      if (seen_.size() >= kSeenMax) seen_.clear();
      seen_.emplace(std::string(pem), parsed);
    }
  }
  for (const std::string& hash : *hashes) {
    if (!hashes_.contains(hash)) continue;
    return absl::UnauthenticatedError(
        absl::StrCat("the peer's certificate is revoked (SHA-256 ", hash, ")"));
  }
  return absl::OkStatus();
}

}  // namespace syncline
