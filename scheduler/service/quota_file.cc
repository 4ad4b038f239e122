#include "scheduler/service/quota_file.h"

#include <utility>

#include "absl/memory/memory.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "common/system/file_version.h"
#include "common/system/log.h"

namespace syncline::scheduler {
namespace {

constexpr size_t kBytesMax = 1 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<QuotaFile>> QuotaFile::Open(
    const std::string& path) {
  auto file = absl::WrapUnique(new QuotaFile(path));
  SYNCLINE_ASSIGN_OR_RETURN(file->first_, file->Read());
  return file;
}

absl::StatusOr<TenantQuotas> QuotaFile::Read() {
  version_ = FileVersion(path_);
  const auto text = ReadFile(path_, kBytesMax);
  if (!text.ok()) {
    // The next read of the same file may go well.
    version_.clear();
    return text.status();
  }
  auto quotas = TenantQuotas::Parse(*text);
  if (!quotas.ok()) return Annotate(quotas.status(), path_);
  return quotas;
}

void QuotaFile::Start(std::function<void(TenantQuotas)> on_quotas) {
  on_quotas_ = std::move(on_quotas);
  on_quotas_(first_);
  looking_.emplace("quota-file", kLookPeriod, [this] { Look(); });
}

void QuotaFile::Look() {
  const std::string version = FileVersion(path_);
  if (version == version_) return;
  auto quotas = Read();
  if (!quotas.ok()) {
    if (std::exchange(logged_version_, version) == version) return;
    LogError("the quotas stay as they were: their file cannot be used")
        .Status(quotas.status());
    return;
  }
  logged_version_.clear();
  LogInfo("quotas read").Field("file", path_);
  on_quotas_(*std::move(quotas));
}

}  // namespace syncline::scheduler
