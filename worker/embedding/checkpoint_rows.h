#ifndef SYNCLINE_WORKER_EMBEDDING_CHECKPOINT_ROWS_H_
#define SYNCLINE_WORKER_EMBEDDING_CHECKPOINT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/system/available_memory.h"
#include "kernels/optimizer/row_initializer.h"
#include "worker/embedding/row_batch.h"

namespace syncline::worker {

// The rows that an evaluation reads of one checkpoint after the other, without
// ps: those of the keys that its data has, however large the tables are. First
// the keys of all batches are added, once; then, for each checkpoint, Begin,
// Put what its files have, and Read batch by batch. A key without a row in the
// checkpoint has its initial values, as a ps would answer. Tables are numbered
// as JobSpec.tables. Thread-compatible.
class CheckpointRows {
 public:
  struct Table {
    std::string name;
    size_t dim = 0;
    RowInitializer initializer;
  };
  // `available`: the memory that there is, in bytes.
  explicit CheckpointRows(
      std::vector<Table> tables,
      std::function<uint64_t()> available = AvailableMemoryBytes);

  // Adds the keys that `batches`, by table, have collected. Errors:
  // ResourceExhausted: there is no memory for the keys of a table.
  absl::Status AddKeys(absl::Span<RowBatch* const> batches);
  // Gives each key its initial values. Errors: as above, for rows.
  absl::Status Begin();
  // True if the key was added.
  bool Has(uint32_t table, int64_t key) const {
    return tables_[table].row_of.contains(key);
  }
  // Keeps the rows of those of `keys` that were added: values [n, dim].
  void Put(uint32_t table, absl::Span<const int64_t> keys,
           absl::Span<const float> values);
  // Fills in all rows of `batches`, whose keys were added. REQUIRES: Begin.
  void Read(absl::Span<RowBatch* const> batches) const;

  // The values that rows of these keys begin with: [n, dim].
  void FillInitial(uint32_t table, absl::Span<const int64_t> keys,
                   float* values) const;

  // Keys of all tables.
  uint64_t keys() const;

 private:
  struct Kept {
    Table table;
    absl::flat_hash_map<int64_t, uint32_t> row_of;
    std::vector<float> values;  // [rows, dim]
  };
  absl::Status CheckRoom(const Kept& kept, const char* what,
                         uint64_t bytes) const;

  const std::function<uint64_t()> available_;
  std::vector<Kept> tables_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EMBEDDING_CHECKPOINT_ROWS_H_
