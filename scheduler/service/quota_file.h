#ifndef SYNCLINE_SCHEDULER_SERVICE_QUOTA_FILE_H_
#define SYNCLINE_SCHEDULER_SERVICE_QUOTA_FILE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/system/periodic_task.h"
#include "scheduler/core/cluster/tenant_quotas.h"

namespace syncline::scheduler {

// The file of --quota-file, which is read again within kLookPeriod of a change.
// One that cannot be used any more is logged, and what it said before stays in
// force. Thread-compatible.
class QuotaFile {
 public:
  static constexpr absl::Duration kLookPeriod = absl::Seconds(2);

  // Errors: TenantQuotas::Parse's with the path, and those of reading it.
  static absl::StatusOr<std::unique_ptr<QuotaFile>> Open(
      const std::string& path);

  // Hands over the quotas, now and after each change, from a thread of its own
  // until this is destroyed. Once.
  void Start(std::function<void(TenantQuotas)> on_quotas);

 private:
  explicit QuotaFile(std::string path) : path_(std::move(path)) {}
  absl::StatusOr<TenantQuotas> Read();
  void Look();

  const std::string path_;
  std::string version_;         // of what was read; empty: reading failed
  std::string logged_version_;  // that cannot be used
  TenantQuotas first_;
  std::function<void(TenantQuotas)> on_quotas_;
  std::optional<PeriodicTask> looking_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_QUOTA_FILE_H_
