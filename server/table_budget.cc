#include "server/table_budget.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

// Fills in the shares of one kind of bytes: `asked` of each table, 0: open.
absl::Status Divide(absl::string_view kind, absl::string_view flag,
                    uint64_t limit, uint64_t reserved,
                    std::vector<uint64_t>* bytes) {
  uint64_t asked = 0;
  uint64_t open = 0;
  for (const uint64_t of_table : *bytes) {
    asked += of_table;
    open += of_table == 0 ? 1 : 0;
  }
  const uint64_t left = limit - reserved;
  if (asked > left) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the job's tables ask for ", asked, " bytes of ", kind,
                     ", ", left, " of ", limit, " are left (", flag, ")"));
  }
  for (uint64_t& of_table : *bytes) {
    if (of_table == 0) of_table = (left - asked) / open;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TableBudget::Share>> TableBudget::Reserve(
    const std::string& job_id, absl::Span<const Share> asked) {
  std::vector<uint64_t> memory;
  std::vector<uint64_t> disk;
  for (const Share& table : asked) {
    memory.push_back(table.memory_bytes);
    disk.push_back(table.disk_bytes);
  }
  MutexLock lock(&mu_);
  Share reserved;
  for (const auto& [job, share] : reserved_) {
    reserved.memory_bytes += share.memory_bytes;
    reserved.disk_bytes += share.disk_bytes;
  }
  SYNCLINE_RETURN_IF_ERROR(Divide("memory", "--table-memory",
                                  limit_.memory_bytes, reserved.memory_bytes,
                                  &memory));
  SYNCLINE_RETURN_IF_ERROR(Divide("disk", "--table-disk", limit_.disk_bytes,
                                  reserved.disk_bytes, &disk));
  std::vector<Share> shares;
  Share sum;
  for (size_t i = 0; i < asked.size(); ++i) {
    if (memory[i] < kLeastBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          memory[i],
          " bytes of memory are left for each of the job's tables, "
          "the least is ",
          kLeastBytes, " (--table-memory)"));
    }
    if (disk[i] < kLeastBytes) disk[i] = 0;
    shares.push_back({memory[i], disk[i]});
    sum.memory_bytes += memory[i];
    sum.disk_bytes += disk[i];
  }
  reserved_[job_id] = sum;
  return shares;
}

void TableBudget::Release(const std::string& job_id) {
  MutexLock lock(&mu_);
  reserved_.erase(job_id);
}

}  // namespace syncline
