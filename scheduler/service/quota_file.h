#ifndef SYNCLINE_SCHEDULER_SERVICE_QUOTA_FILE_H_
#define SYNCLINE_SCHEDULER_SERVICE_QUOTA_FILE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/reloaded_file.h"
#include "common/system/periodic_task.h"
#include "scheduler/core/cluster/tenant_quotas.h"

namespace syncline::scheduler {

// The file of --quota-file, which is read again within kLookPeriod of a change,
// as ReloadedFile says. Thread-compatible.
class QuotaFile {
 public:
  static constexpr absl::Duration kLookPeriod = absl::Seconds(2);

  // Errors: TenantQuotas::Parse's with the path; InvalidArgument: it is empty;
  // those of reading it.
  static absl::StatusOr<std::unique_ptr<QuotaFile>> Open(
      const std::string& path);

  // Hands over the quotas, now and after each change, from a thread of its own
  // until this is destroyed. Once.
  void Start(std::function<void(TenantQuotas)> on_quotas);

  // Whether the file could be used at the last look; else older quotas count.
  // Thread-safe.
  bool is_usable() const { return is_usable_; }

 private:
  explicit QuotaFile(const std::string& path);
  // The quotas, if the file has changed since it was read. Errors:
  // ReloadedFile's.
  absl::StatusOr<std::optional<TenantQuotas>> Read();
  void Look();

  ReloadedFile file_;
  std::atomic<bool> is_usable_{true};
  TenantQuotas first_;
  std::function<void(TenantQuotas)> on_quotas_;
  std::optional<PeriodicTask> looking_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_QUOTA_FILE_H_
