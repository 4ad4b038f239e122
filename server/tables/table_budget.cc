#include "server/tables/table_budget.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline::ps {
namespace {

// Fills in the shares of one kind of bytes: what each table asks for, 0: open.
// The other parts are to get as much.
absl::Status Divide(absl::string_view kind, absl::string_view flag,
                    uint64_t limit, uint64_t reserved, uint64_t parts,
                    std::vector<uint64_t>* bytes) {
  uint64_t asked = 0;  // by all parts
  uint64_t open = 0;
  for (const uint64_t of_table : *bytes) {
    asked += of_table * parts;
    open += of_table == 0 ? 1 : 0;
  }
  const uint64_t left = limit - reserved;
  if (asked > left) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the job's tables ask for ", asked, " bytes of ", kind,
                     ", ", left, " of ", limit, " are left (", flag, ")"));
  }
  for (uint64_t& of_table : *bytes) {
    if (of_table == 0) of_table = (left - asked) / open / parts;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TableBudget::Reservation> TableBudget::Reserve(
    absl::Span<const Share> asked, uint32_t parts) {
  std::vector<uint64_t> memory;
  std::vector<uint64_t> disk;
  for (const Share& table : asked) {
    memory.push_back(table.memory_bytes);
    disk.push_back(table.disk_bytes);
  }
  MutexLock lock(&mu_);
  SYNCLINE_RETURN_IF_ERROR(Divide("memory", "--table-memory",
                                  limit_.memory_bytes, reserved_.memory_bytes,
                                  parts, &memory));
  SYNCLINE_RETURN_IF_ERROR(Divide("disk", "--table-disk", limit_.disk_bytes,
                                  reserved_.disk_bytes, parts, &disk));
  std::vector<Share> shares;
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
  }
  for (const Share& share : shares) {
    reserved_.memory_bytes += share.memory_bytes;
    reserved_.disk_bytes += share.disk_bytes;
  }
  Reservation reservation;
  reservation.budget_ = shared_from_this();
  reservation.shares_ = std::move(shares);
  return reservation;
}

void TableBudget::Release(absl::Span<const Share> shares) {
  MutexLock lock(&mu_);
  for (const Share& share : shares) {
    reserved_.memory_bytes -= share.memory_bytes;
    reserved_.disk_bytes -= share.disk_bytes;
  }
}

}  // namespace syncline::ps
