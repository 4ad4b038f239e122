// Goal: no file that says who may do what, whatever its bytes, crashes the
// scheduler, and what is taken of it is sound. Method: the first byte says what
// the rest is: tokens, quotas, an identity, a certificate, or an archive of the
// scheduler's state; what is taken is written again and read as it was.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/security/certificate.h"
#include "common/security/peer_identity.h"
#include "common/security/user_tokens.h"
#include "common/system/tar.h"
#include "scheduler/core/cluster/tenant_quotas.h"

namespace syncline {
namespace {

void CheckTokens(absl::string_view text) {
  const auto entries = ParseTokens(text);
  if (!entries.ok()) return;
  for (const TokenEntry& entry : *entries) {
    SYNCLINE_CHECK(!entry.name.empty() && entry.sha256.size() == 64);
    SYNCLINE_CHECK(entry.tenant.empty() || CheckTenantName(entry.tenant).ok());
    SYNCLINE_CHECK(entry.tenant.empty() || !entry.SeesAllJobs());
  }
  const auto again = ParseTokens(FormatTokens(*entries));
  SYNCLINE_CHECK(again.ok() && again->size() == entries->size());
  for (size_t i = 0; i < entries->size(); ++i) {
    SYNCLINE_CHECK((*again)[i].name == (*entries)[i].name &&
                   (*again)[i].role == (*entries)[i].role &&
                   (*again)[i].sha256 == (*entries)[i].sha256 &&
                   (*again)[i].tenant == (*entries)[i].tenant);
  }
}

void CheckQuotas(absl::string_view text) {
  const auto quotas = scheduler::TenantQuotas::Parse(text);
  if (!quotas.ok()) return;
  for (const std::string tenant : {"acme", "b", "*"}) {
    const bool has_quota = quotas->HasQuota(tenant);
    const bool fits = quotas->CheckFits(tenant, {}).ok() &&
                      quotas->CheckQueue(tenant, {}).ok();
    SYNCLINE_CHECK(has_quota || fits);
  }
}

void CheckUri(absl::string_view text) {
  const auto identity = ParseIdentityUri(text);
  if (!identity.ok()) return;
  const auto again = ParseIdentityUri(identity->ToUri());
  SYNCLINE_CHECK(again.ok() && *again == *identity);
  const auto short_form =
      ParseIdentity(identity->cluster, identity->ToString());
  SYNCLINE_CHECK(short_form.ok() && *short_form == *identity);
}

void CheckCertificate(absl::string_view pem) {
  const auto info = ReadCertificate(pem);
  const auto hashes = CertificateHashes(pem);
  SYNCLINE_CHECK(info.ok() || !hashes.ok());
  if (!info.ok() || !hashes.ok()) return;
  SYNCLINE_CHECK(!hashes->empty() && hashes->front() == info->sha256);
}

void CheckArchive(absl::string_view bytes) {
  const int file = memfd_create("archive", MFD_CLOEXEC);
  SYNCLINE_CHECK(file >= 0);
  SYNCLINE_CHECK(write(file, bytes.data(), bytes.size()) ==
                 static_cast<ssize_t>(bytes.size()));
  auto reader = TarReader::Open(absl::StrCat("/proc/self/fd/", file));
  SYNCLINE_CHECK(reader.ok());
  for (uint64_t read = 0;;) {
    const auto entry = (*reader)->Next();
    if (!entry.ok() || !entry->has_value()) break;
    SYNCLINE_CHECK(IsPathBelow((*entry)->name));
    const auto content = (*reader)->Read(1 << 16);
    if (!content.ok()) break;
    read += content->size();
    SYNCLINE_CHECK(read <= bytes.size());
  }
  close(file);
}

void Run(absl::string_view input) {
  if (input.empty()) return;
  const absl::string_view rest = input.substr(1);
  switch (input[0]) {
    case 't':
      return CheckTokens(rest);
    case 'q':
      return CheckQuotas(rest);
    case 'u':
      return CheckUri(rest);
    case 'c':
      return CheckCertificate(rest);
    case 'a':
      return CheckArchive(rest);
    default:
      return;
  }
}

}  // namespace
}  // namespace syncline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  syncline::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
