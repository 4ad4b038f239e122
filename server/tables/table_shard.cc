#include "server/tables/table_shard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline::ps {
namespace {

constexpr uint32_t kDimMost = 65536;
// A partition has at least so many rows, or there is one partition only: with
// fewer, what differs between partitions by chance would be much of them.
constexpr uint64_t kPartitionRows = 256;
constexpr size_t kSlabBytes = 16 << 10;
// Slabs of a partition are filled one after the other: an eighth of a slab's
// rows at most wait in the last one.
constexpr uint32_t kSlabsPerPartition = 8;
// Huge pages come two megabytes at a time.
constexpr uint64_t kHugePagesFrom = 64 << 20;

size_t RowBytes(const TableOptions& options) {
  return RowLayout(options.dim,
                   RowOptimizer(options.optimizer, options.dim).state_floats())
      .bytes();
}

uint64_t FilterBytes(const TableOptions& options) {
  return options.admission.min_sightings > 1 ? options.admission.filter_bytes
                                             : 0;
}

absl::Status Refuse(const TableOptions& options, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("table ", options.name, ": ", problem));
}

absl::Status CheckAdmission(const TableOptions& options) {
  const AdmissionOptions& rule = options.admission;
  if (rule.min_sightings > AdmissionFilter::kCountMax) {
    return Refuse(options, absl::StrCat("min_sightings is ", rule.min_sightings,
                                        ", expected at most ",
                                        AdmissionFilter::kCountMax));
  }
  if (!(rule.probability > 0 && rule.probability <= 1)) {
    return Refuse(options, absl::StrCat("admission probability is ",
                                        rule.probability, ", expected (0, 1]"));
  }
  if (rule.min_sightings > 1 && rule.probability < 1) {
    return Refuse(
        options, "min_sightings and probability are set, expected one of them");
  }
  return absl::OkStatus();
}

absl::Status CheckExpiry(const TableOptions& options) {
  const ExpiryOptions& rule = options.expiry;
  if (rule.unseen_clocks < 0 || rule.unseen_time < absl::ZeroDuration()) {
    return Refuse(options, "expiry after less than no time");
  }
  if (!(rule.min_score >= 0) || !std::isfinite(rule.min_score)) {
    return Refuse(options, absl::StrCat("expiry's min_score is ",
                                        rule.min_score, ", expected >= 0"));
  }
  if (rule.min_score > 0 &&
      !(rule.decay > 0 && rule.decay <= 1 && rule.decay_clocks > 0)) {
    return Refuse(options,
                  absl::StrCat("expiry's decay is ", rule.decay, " every ",
                               rule.decay_clocks,
                               " clocks, expected (0, 1] and at least 1"));
  }
  return absl::OkStatus();
}

}  // namespace

// How a table's memory is divided.
struct TableShard::Plan {
  uint32_t partitions = 1;
  uint32_t rows_per_slab = 1;
  uint32_t rows_max = 0;  // of a partition
  size_t filter_bytes = 0;
};

TableShard::Plan TableShard::PlanOf(const TableOptions& options,
                                    uint32_t slots) {
  Plan plan;
  const uint64_t filter = FilterBytes(options);
  if (options.memory_bytes <= filter) return plan;
  const uint64_t bytes = options.memory_bytes - filter;
  const size_t row_bytes = RowBytes(options);
  constexpr uint64_t kFixed = sizeof(TablePartition);
  const uint64_t least =
      kFixed + kPartitionRows * RowPartition::CostOf(row_bytes);
  uint64_t partitions = std::clamp<uint64_t>(bytes / least, 1, slots);
  if (filter > 0) {  // each has a part of it, a cache line at least
    partitions = std::clamp<uint64_t>(filter / kCacheLineBytes, 1, partitions);
  }
  plan.partitions = static_cast<uint32_t>(partitions);
  const uint64_t share = bytes / plan.partitions;
  if (share <= kFixed) return plan;
  const uint32_t rows = RowPartition::RowsFor(row_bytes, share - kFixed);
  if (rows == 0) return plan;
  plan.rows_per_slab = static_cast<uint32_t>(std::bit_floor(
      std::clamp<uint64_t>(kSlabBytes / row_bytes, 1,
                           std::max<uint32_t>(1, rows / kSlabsPerPartition))));
  // The rows of a slab share the bytes by which the pool rounds it up.
  const uint64_t slab_row_bytes =
      row_bytes + (kCacheLineBytes - 1) / plan.rows_per_slab + 1;
  plan.rows_max = RowPartition::RowsFor(slab_row_bytes, share - kFixed) /
                  plan.rows_per_slab * plan.rows_per_slab;
  plan.filter_bytes = filter / plan.partitions;
  return plan;
}

absl::Status TableShard::CheckOptions(const TableOptions& options) {
  if (options.dim == 0 || options.dim > kDimMost) {
    return Refuse(options, absl::StrCat("dim is ", options.dim,
                                        ", expected 1..", kDimMost));
  }
  if (!RowOptimizer::Supports(options.optimizer.kind)) {
    return Refuse(options, "its optimizer is not one for rows");
  }
  SYNCLINE_RETURN_IF_ERROR(CheckAdmission(options));
  SYNCLINE_RETURN_IF_ERROR(CheckExpiry(options));
  const Plan plan = PlanOf(options, 1);
  if (plan.rows_max == 0) {
    return Refuse(options,
                  absl::StrCat(options.memory_bytes,
                               " bytes of memory do not hold a filter of ",
                               FilterBytes(options), " bytes and a row of ",
                               RowBytes(options)));
  }
  if (options.admission.min_sightings > 1 &&
      FilterBytes(options) < kCacheLineBytes) {
    return Refuse(
        options, absl::StrCat("the admission filter has ", FilterBytes(options),
                              " bytes, expected at least ", kCacheLineBytes));
  }
  return absl::OkStatus();
}

uint64_t TableShard::MemoryRowBytes(const TableOptions& options) {
  return RowPartition::CostOf(RowBytes(options));
}

size_t TableShard::SpilledRowBytes(const TableOptions& options) {
  return RowBytes(options) - sizeof(int64_t);
}

TableShard::TableShard(const TableOptions& options, const TableMap& map,
                       uint32_t shard, int lanes,
                       std::unique_ptr<ColdStore> cold)
    : TableShard(options, map, shard, lanes, std::move(cold),
                 PlanOf(options, map.SlotCount(shard))) {}

TableShard::TableShard(const TableOptions& options, const TableMap& map,
                       uint32_t shard, int lanes,
                       std::unique_ptr<ColdStore> cold, const Plan& plan)
    : context_(options, plan.rows_per_slab * RowBytes(options),
               options.memory_bytes >= kHugePagesFrom, std::move(cold)),
      partition_of_(map, shard, plan.partitions) {
  for (int lane = 0; lane < lanes; ++lane) {
    lanes_.push_back(
        std::make_unique<TableLane>(&context_, map, &partition_of_));
  }
  for (uint32_t id = 0; id < plan.partitions; ++id) {
    lanes_[LaneOfPartition(id)]->AddPartition(id, plan.rows_per_slab,
                                              plan.rows_max, plan.filter_bytes);
  }
}

absl::Status TableShard::Scan(int64_t clock, size_t limit, ScanCursor* cursor,
                              std::vector<int64_t>* keys,
                              std::vector<float>* values) {
  bool more = false;
  SYNCLINE_RETURN_IF_ERROR(lanes_[ScanLane(*cursor)]->Scan(
      cursor->partition, clock, limit, &cursor->position, &more, keys, values));
  if (more) return absl::OkStatus();
  const uint32_t next = cursor->partition + 1;
  *cursor = ScanCursor();
  cursor->partition = next;
  return absl::OkStatus();
}

std::string ScanCursor::Encode() const {
  std::string text(sizeof(partition) + sizeof(position), '\0');
  std::memcpy(text.data(), &partition, sizeof(partition));
  std::memcpy(text.data() + sizeof(partition), &position, sizeof(position));
  return text;
}

absl::StatusOr<ScanCursor> ScanCursor::Decode(absl::string_view text) {
  ScanCursor cursor;
  if (text.size() != sizeof(cursor.partition) + sizeof(cursor.position)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a scan's cursor has ", text.size(), " bytes, expected 12"));
  }
  std::memcpy(&cursor.partition, text.data(), sizeof(cursor.partition));
  std::memcpy(&cursor.position, text.data() + sizeof(cursor.partition),
              sizeof(cursor.position));
  return cursor;
}

}  // namespace syncline::ps
