#ifndef SYNCLINE_SERVER_SHARD_SHARD_IMPORTER_H_
#define SYNCLINE_SERVER_SHARD_SHARD_IMPORTER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/state/block_state.h"
#include "common/state/row_chain.h"
#include "common/state/row_layout.h"
#include "common/state/shard_state_reader.h"
#include "proto/shard_state.pb.h"
#include "server/consistency/controller_state.h"
#include "server/shard/job_config.h"
#include "server/shard/lane_executor.h"
#include "server/shard/shard_layout.h"
#include "server/shard/shard_start.h"

namespace syncline::ps {

// The part of a table that an import is reading.
struct ImportedPart {
  uint32_t table = 0;          // of this job
  uint32_t former = 0;         // of the state
  std::vector<bool> slots;     // by the state's slot
  std::vector<uint32_t> mine;  // those of this shard
  uint64_t counters = 0;       // of the filter
  uint64_t sightings = 0;
  uint64_t next_counter = 0;
  bool filter_fits = true;
  std::optional<uint64_t> last_position;
  std::optional<uint64_t> last_gone;  // position of a key without a row
  bool changes_only = false;
};

// Fills a shard before its first call with states that ShardExporter has
// written: of one former shard, or of several at the same cut, whose blocks and
// slots together are this one's. Everything read is checked before it is used;
// memory is bounded by a record. After an error the shard has a part of the
// state and must not be used. Thread-compatible; runs in the caller's thread,
// because no lane knows the shard yet.
class ShardImporter {
 public:
  // `config`, `layout`, `executor` outlive it.
  ShardImporter(const JobConfig* config, const ShardLayout* layout,
                LaneExecutor* executor, const ShardImportOptions& options);

  // Takes one state, and of the older ones that it needs the rows that it
  // leaves out. Where others' blocks and slots are passed over, their bytes are
  // not read and not checked: that is for the shards that need them. Errors,
  // with the source's name and the record's number:
  //   DataLoss            damaged, cut off, out of order, or twice
  //   InvalidArgument     of another model, optimizer or cut, or a block or
  //                       slot of another shard
  //   ResourceExhausted   its rows find no room, or the tables' disk fails
  //   Unavailable         the source
  absl::Status Read(ShardStateSource* source, absl::Time now);
  // OK if all blocks and slots of the shard have come. Sets the counts.
  // Errors: DataLoss: names those that are missing.
  absl::Status Finish();

  // REQUIRES: Finish was OK.
  const ControllerState& controller() const { return *controller_; }
  int64_t total_clocks() const { return total_clocks_; }
  // Parts whose admission filter has another size here, so that sightings of
  // their keys start anew.
  uint64_t filters_left_out() const { return filters_left_out_; }

 private:
  // Reads the records behind a header.
  absl::Status ReadRecords(ShardStateReader* reader, absl::Time now);
  // Reads the states that `newest` needs, the newest of them first.
  absl::Status ReadOlder(const ShardStateSource& newest, absl::Time now);
  absl::Status ReadHeader(const ShardStateReader& reader,
                          const ShardStateReader::Record& record);
  // The header of an older state: of the same shard, tables and job.
  absl::Status CheckOlderHeader(const ShardStateReader& reader,
                                const ShardStateReader::Record& record,
                                uint64_t cut_id);
  absl::Status TakeWorkers(const ShardStateHeader& header);
  absl::Status TakeOtherWorkers(const ShardStateHeader& header);
  absl::Status ForgetWorkers(const ShardStateHeader& header);
  absl::Status TakeCounts(const ShardStateHeader& header);
  absl::Status TakeCuts(const ShardStateHeader& header);
  absl::Status TakeTables(const ShardStateHeader& header);
  absl::Status TakeSlots(uint32_t table, uint32_t former_slots);
  absl::Status ReadRecord(const ShardStateReader& reader,
                          const ShardStateReader::Record& record,
                          absl::Time now);
  absl::Status ReadDense(const ShardStateReader& reader,
                         const ShardStateReader::Record& record);
  absl::Status OpenTheBlock(const ShardStateReader& reader,
                            const BlockStateReader::Piece& piece);
  absl::Status ReadPart(const ShardStateReader& reader,
                        const ShardStateReader::Record& record);
  absl::Status OpenThePart(const ShardStateReader& reader,
                           const TablePart& part);
  absl::Status TakeSlot(const ShardStateReader& reader, uint32_t former_slot);
  // For the former job the row is not there at the cut, removed or not.
  bool HadExpired(const char* row) const;
  // Rows of the open part, as they are where a job begins with their values.
  const char* RowsThatBegin(const char* rows, size_t count);
  absl::Status ReadFilter(const ShardStateReader& reader,
                          const ShardStateReader::Record& record);
  absl::Status ReadRows(const ShardStateReader& reader,
                        const ShardStateReader::Record& record);
  absl::Status CheckRow(const ShardStateReader& reader, const char* row,
                        uint8_t place);
  // Keys without a row.
  absl::Status ReadGone(const ShardStateReader& reader, size_t count,
                        const char* keys);
  absl::Status ReadCounts(const ShardStateReader& reader,
                          const ShardStateReader::Record& record,
                          absl::Time now);
  absl::Status ReadTrailer(const ShardStateReader& reader,
                           const ShardStateReader::Record& record);
  // OK if the part that was being read is whole.
  absl::Status ClosePart(const ShardStateReader& reader);
  // The table of a state, of this job. Errors: DataLoss: it has no such table.
  absl::StatusOr<uint32_t> TableOf(const ShardStateReader& reader,
                                   uint32_t index) const;
  bool IsMine(uint32_t table, uint32_t slot) const;
  // True if something of a record's bulk is the shard's. `meta` is not checked.
  bool Needs(ShardStateKind kind, absl::string_view meta) const;
  absl::Status Refuse(absl::string_view problem) const;

  const JobConfig* const config_;
  const ShardLayout* const layout_;
  LaneExecutor* const executor_;
  ShardImportOptions options_;
  absl::flat_hash_map<uint32_t, BlockIndex> index_of_;  // by global id

  std::vector<bool> blocks_come_;              // by BlockIndex
  std::vector<std::vector<bool>> slots_come_;  // by table, see TakeSlots
  std::optional<ControllerState> controller_;
  std::vector<uint64_t> non_finite_;  // by rank
  uint64_t non_finite_total_ = 0;
  int64_t total_clocks_ = 0;
  int64_t clocks_ = 0;  // closed by the worker that has closed most
  // values_only: closed by each worker of the former job, and the tables'
  // rules.
  std::optional<int64_t> former_clock_;
  std::vector<RowExpiry> expiries_;
  uint64_t filters_left_out_ = 0;

  std::vector<std::string> sources_;  // that were read

  // Of the state that is being read.
  std::string source_;
  ShardStateHeader header_;
  std::vector<uint32_t> tables_;  // of this job, by the state's index
  struct FormerTable {
    TableMap map;
    RowLayout layout;
  };
  std::vector<FormerTable> former_;  // likewise
  std::vector<char> row_bytes_;      // scratch
  std::vector<char> taken_rows_;     // as are these
  std::vector<char> taken_places_;
  BlockStateReader blocks_;
  // The block whose pieces come; nothing: of another shard.
  std::optional<BlockIndex> block_;
  std::optional<ImportedPart> part_;
  uint64_t rows_read_ = 0;
  uint64_t gone_read_ = 0;

  // Of the state and the older ones that it needs.
  bool is_older_ = false;  // the state that is being read
  RowChain chain_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_SHARD_IMPORTER_H_
