#include "scheduler/core/job/ps_reports.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "scheduler/core/message_sizes.h"

namespace syncline::scheduler {

void PsReports::OnReport(uint32_t rank, const PsReport& report,
                         absl::Time now) {
  by_rank_[rank] = {now, report};
}

uint64_t PsReports::SkippedClocks() const {
  uint64_t clocks = 0;
  for (const auto& [rank, received] : by_rank_) {
    clocks = std::max(clocks, received.report.skipped_clocks());
  }
  return clocks;
}

uint64_t PsReports::DroppedBlocks() const {
  uint64_t blocks = 0;
  for (const auto& [rank, received] : by_rank_) {
    blocks += received.report.dropped_blocks();
  }
  return blocks;
}

absl::StatusOr<JobTableStatus> PsReports::TableStatus(const std::string& job_id,
                                                      absl::Time now) const {
  std::vector<const PsReport*> reports;
  for (const auto& [rank, received] : by_rank_) {
    reports.push_back(&received.report);
  }
  const absl::StatusOr<int> hot_keys = HotKeysThatFit(reports);
  if (!hot_keys.ok()) {
    return Annotate(hot_keys.status(), absl::StrCat("job ", job_id));
  }
  JobTableStatus status;
  status.set_job_id(job_id);
  for (const auto& [rank, received] : by_rank_) {
    if (received.report.tables().empty()) continue;
    JobTableStatus::Ps* ps = status.add_ps();
    ps->set_rank(rank);
    ps->set_age_seconds(absl::ToDoubleSeconds(now - received.time));
    *ps->mutable_tables() = received.report.tables();
    for (ShardStatus::Table& table : *ps->mutable_tables()) {
      if (table.hot_keys_size() <= *hot_keys) continue;
      table.mutable_hot_keys()->DeleteSubrange(
          *hot_keys, table.hot_keys_size() - *hot_keys);
    }
  }
  return status;
}

}  // namespace syncline::scheduler
