#include "scheduler/service/quota_file.h"

#include <utility>

#include "absl/memory/memory.h"
#include "common/base/status_macros.h"

namespace syncline::scheduler {
namespace {

constexpr size_t kBytesMax = 1 << 20;

}  // namespace

QuotaFile::QuotaFile(const std::string& path)
    : file_(path, kBytesMax, "quotas") {}

absl::StatusOr<std::unique_ptr<QuotaFile>> QuotaFile::Open(
    const std::string& path) {
  auto file = absl::WrapUnique(new QuotaFile(path));
  SYNCLINE_ASSIGN_OR_RETURN(auto first, file->Read());
  file->first_ = *std::move(first);
  return file;
}

absl::StatusOr<std::optional<TenantQuotas>> QuotaFile::Read() {
  std::optional<TenantQuotas> read;
  SYNCLINE_RETURN_IF_ERROR(
      file_.Look([&](absl::string_view text) -> absl::Status {
        SYNCLINE_RETURN_IF_ERROR(CheckHasText(text, "there are no limits"));
        SYNCLINE_ASSIGN_OR_RETURN(read, TenantQuotas::Parse(text));
        return absl::OkStatus();
      }));
  is_usable_ = file_.is_usable();
  return read;
}

void QuotaFile::Start(std::function<void(TenantQuotas)> on_quotas) {
  on_quotas_ = std::move(on_quotas);
  on_quotas_(first_);
  looking_.emplace("quota-file", kLookPeriod, [this] { Look(); });
}

void QuotaFile::Look() {
  auto quotas = Read();
  if (quotas.ok() && quotas->has_value()) on_quotas_(**std::move(quotas));
}

}  // namespace syncline::scheduler
