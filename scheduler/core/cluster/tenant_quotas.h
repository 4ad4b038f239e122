#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_TENANT_QUOTAS_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_TENANT_QUOTAS_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"
#include "scheduler/core/job/job.h"

namespace syncline::scheduler {

// The amounts that a tenant may have at a time, by kind.
enum class Quota {
  kWorkers,   // members that work for its jobs; the chief is one
  kPs,        // likewise
  kPsMemory,  // bytes of parameters, optimizer slots and tables on all ps
  kDisk,      // bytes of results and checkpoints that are kept
  kQueued,    // jobs that wait
};
inline constexpr size_t kQuotaCount = 5;

// An amount of each.
struct TenantAmounts {
  std::array<uint64_t, kQuotaCount> values = {};
  uint64_t& operator[](Quota quota) {
    return values[static_cast<size_t>(quota)];
  }
  uint64_t operator[](Quota quota) const {
    return values[static_cast<size_t>(quota)];
  }
};

// The amounts that a job takes while it runs; kDisk: its trained model, the
// least that it stores.
struct JobDemand {
  TenantAmounts amounts;
  // The first of its tables that does not say memory_bytes, so that nobody
  // knows what it takes; empty: none.
  std::string table_without_limit;
};
JobDemand DemandOf(const JobSpec& spec,
                   absl::Span<const ParameterInfo> parameters);

// The amounts that the jobs of each tenant have now. Of no tenant: under "".
std::map<std::string, TenantAmounts> UseOfTenants(
    absl::Span<const Job* const> jobs);

// The quotas of tenants, and what follows from them for a job. A job that is
// over its tenant's quota holds up nobody else's. Pure.
//
//   # TENANT QUOTA=AMOUNT ...    "*": each tenant without a line of its own
//   acme workers=8 ps=4 ps-memory=64GiB disk=1TiB queued=20
//   *    workers=2
//
// Amounts that a line omits have no limit. Jobs of no tenant have no quota.
class TenantQuotas {
 public:
  // Errors: InvalidArgument, naming the line.
  static absl::StatusOr<TenantQuotas> Parse(absl::string_view text);

  bool empty() const { return by_tenant_.empty(); }
  bool HasQuota(const std::string& tenant) const {
    return Find(tenant) != nullptr;
  }
  // OK: such a job can run some day. Errors: InvalidArgument: it takes more
  // than its tenant may ever have, or does not say how much.
  absl::Status CheckFits(const std::string& tenant,
                         const JobDemand& demand) const;
  // OK: one more job of the tenant may wait, while it has `use`. Errors:
  // ResourceExhausted.
  absl::Status CheckQueue(const std::string& tenant,
                          const TenantAmounts& use) const;
  // Why the job has to wait for its tenant's quota, for people; empty: it has
  // not.
  std::string WhyWaits(const std::string& tenant, const JobDemand& demand,
                       const TenantAmounts& use) const;

 private:
  using Limits = std::array<std::optional<uint64_t>, kQuotaCount>;
  const Limits* Find(const std::string& tenant) const;

  std::map<std::string, Limits> by_tenant_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_TENANT_QUOTAS_H_
