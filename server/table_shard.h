#ifndef SYNCLINE_SERVER_TABLE_SHARD_H_
#define SYNCLINE_SERVER_TABLE_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/wire/table_map.h"
#include "kernels/optimizer.h"
#include "kernels/row_initializer.h"
#include "server/cold_store.h"
#include "server/dense_shard.h"

namespace syncline {

// Gradients that one worker sent, of one or more of this shard's slots.
struct GradientRows {
  absl::Span<const int64_t> keys;       // ascending by (slot, key), unique
  const FloatSource* values = nullptr;  // of the summed loss, keys x dim floats
  size_t first = 0;                     // element where they begin
};

// What is the same for all rows of one Push.
struct RowStep {
  int64_t clock = 0;
  float learning_rate = 0;
  // Turns the gradient of the summed loss into that of the mean: 1 / samples of
  // all ranks, times the norm's scale where the global norm is clipped.
  float gradient_scale = 1;
};

// When a key gets a row. See AdmissionSpec in proto/job_spec.proto.
struct AdmissionOptions {
  uint32_t min_sightings = 1;  // 1..255; above 1 needs filter_bytes
  double probability = 1;      // (0, 1]
  uint64_t filter_bytes = 0;   // of the table's memory
};

// When a row goes. See ExpirySpec.
struct ExpiryOptions {
  int64_t unseen_clocks = 0;                          // 0: never
  absl::Duration unseen_time = absl::ZeroDuration();  // zero: never
  float min_score = 0;                                // 0: never
  float decay = 0.98f;
  int64_t decay_clocks = 1;  // > 0
};

struct TableOptions {
  std::string name;   // for messages
  uint32_t dim = 0;   // 1..65,536
  uint64_t seed = 0;  // the job's; admission draws from it
  RowInitializer initializer{RowInitializer::Scheme::kZeros, 0, 0, ""};
  OptimizerParams optimizer;
  AdmissionOptions admission;
  ExpiryOptions expiry;
  // Hard limit for rows, slots, index and filter; what the cold store needs in
  // memory comes on top and is bounded by the store's own options.
  uint64_t memory_bytes = 0;
};

// Counts since the shard was made; sizes as they are.
struct TableStats {
  uint64_t rows_in_memory = 0;
  uint64_t rows_on_disk = 0;  // and nowhere else
  uint64_t memory_bytes = 0;
  uint64_t memory_limit_bytes = 0;
  uint64_t disk_bytes = 0;
  uint64_t disk_limit_bytes = 0;
  // Rows that Read was asked for, by where they were found.
  uint64_t read_from_memory = 0;
  uint64_t read_from_disk = 0;
  uint64_t read_absent = 0;
  // Rows that Push was given (after merging), and those without effect.
  uint64_t pushed_rows = 0;
  uint64_t refused_by_sightings = 0;
  uint64_t refused_by_probability = 0;
  uint64_t refused_by_budget = 0;
  // Rows that went.
  uint64_t expired_by_age = 0;
  uint64_t expired_by_score = 0;
  uint64_t spilled_rows = 0;  // written to disk
  uint64_t loaded_rows = 0;   // back into memory
  struct HotKey {
    int64_t key = 0;
    uint64_t pushes = 0;
  };
  std::vector<HotKey> hot_keys;  // most pushes first

  // Sums counts and sizes of rows, keeps the hottest keys of both. Limits and
  // disk_bytes are the shard's, the same in every lane: not summed.
  void Add(const TableStats& other);
};

// Where a scan continues: after `key` of `partition`, or at its beginning.
struct ScanCursor {
  uint32_t partition = 0;
  bool inside = false;  // `key` counts
  int64_t key = 0;

  std::string Encode() const;
  // Errors: InvalidArgument: not what Encode wrote.
  static absl::StatusOr<ScanCursor> Decode(absl::string_view text);
};

// The rows of one embedding table on one ps. Says where rows live, when they
// come and go, and how gradients change them; whose gradients those are and
// when they count is the consistency controller's business. Pure but for the
// cold store: no clock, no thread.
//
// Slots are grouped into partitions, contiguous and each of one lane. A call
// touches slots of one lane, calls for different lanes may run at the same
// time, calls for one lane may not. Which partitions there are depends on the
// options and not on the number of lanes, nor do results.
//
// A row's value is a function of its pushes alone: spilling and reading back
// loses nothing, a row that expired is as if it had never been, and whether one
// has expired depends on the clocks that calls name, not on when Maintain ran.
// (By `unseen_time` it depends on the time that Maintain was told.)
class TableShard {
 public:
  // `cold`: null: rows that find no room in memory are refused.
  // REQUIRES: CheckOptions; lanes >= 1.
  TableShard(const TableOptions& options, const TableMap& map, uint32_t shard,
             int lanes, std::unique_ptr<ColdStore> cold);
  ~TableShard();
  TableShard(const TableShard&) = delete;
  TableShard& operator=(const TableShard&) = delete;

  // Errors: InvalidArgument, saying which value and its range: dim, an
  // optimizer that is not one for rows, memory_bytes below the filter and a few
  // rows.
  static absl::Status CheckOptions(const TableOptions& options);
  // Bytes of one row with slots and bookkeeping: what the cold store keeps.
  static size_t RowBytes(const TableOptions& options);

  // Which lane has a slot of this shard. Ascends with the slot, so a message's
  // rows fall into one piece per lane.
  int LaneOf(uint32_t slot) const;
  int lanes() const;

  // One optimizer step for every key in `ranks`: gradients of the same key are
  // summed in the order of `ranks`. Keys without a row get one first, if they
  // are admitted.
  // Errors: ResourceExhausted: some rows found no room, neither in memory nor
  // on disk; they are as they were (new ones: absent), counted in
  // refused_by_budget. DataLoss, Unavailable: the cold store failed; rows that
  // needed it are as they were. All other rows are updated in every case.
  absl::Status Push(int lane, absl::Span<const GradientRows> ranks,
                    const RowStep& step);

  // Sum of squares of the mean gradient of these rows, added to `sum` in fp64
  // in (slot, key, element) order: what Push with this step would apply.
  double AddSquares(int lane, absl::Span<const GradientRows> ranks,
                    float gradient_scale, double sum);

  // Writes keys.size() x dim floats. Keys ascend by (slot, key). Absent keys
  // give their initial values; none is created.
  // Errors: DataLoss, Unavailable: from the cold store; then `out` is
  // unspecified for the rows that are there.
  absl::Status Read(int lane, absl::Span<const int64_t> keys, int64_t clock,
                    float* out);

  // Removes expired rows of a lane, a bounded number of rows a call. `clock`:
  // no call will name a smaller one, or may find a row expired that it thought
  // was not. Call it about once a second, from every lane.
  absl::Status Maintain(int lane, int64_t clock, absl::Time now);

  // Appends rows from `cursor` on, at most `limit`, spilled ones included, and
  // moves the cursor. Rows come in order of (partition, key): those that are
  // there throughout come exactly once, whatever else happens between calls.
  // Called in the lane that ScanLane names; fewer rows than `limit`, even none,
  // do not mean the end: ScanDone does.
  absl::Status Scan(int64_t clock, size_t limit, ScanCursor* cursor,
                    std::vector<int64_t>* keys, std::vector<float>* values);
  int ScanLane(const ScanCursor& cursor) const;
  bool ScanDone(const ScanCursor& cursor) const;

  // Whether pushes should be taken at all; thread-safe, one relaxed load.
  // Errors: ResourceExhausted: memory and disk are full, or the disk failed
  // when it was last asked to make room; the message says how full each is.
  // Refuse with it before accepting a push: what was accepted may still find
  // room in a reserve. It clears when rows expire or the disk takes rows again.
  absl::Status AcceptsPushes() const;

  // Of one lane, in that lane.
  TableStats Stats(int lane) const;

 private:
  class Lane;
  class Shared;
  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace syncline

#endif  // SYNCLINE_SERVER_TABLE_SHARD_H_
