#ifndef SYNCLINE_WORKER_EMBEDDING_JOB_ROWS_H_
#define SYNCLINE_WORKER_EMBEDDING_JOB_ROWS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model.h"
#include "common/model/training_graph.h"
#include "common/wire/routing_table.h"
#include "proto/job.pb.h"
#include "worker/embedding/row_batch.h"
#include "worker/embedding/row_cache.h"

namespace syncline::worker {

// Memory for the rows that a rank has of its job's tables at a time: those of
// the batch it trains on, of the next one, and of the one it evaluates. Spans
// are by table. Thread-compatible.
class JobRows {
 public:
  // Errors: InvalidArgument: the tables of the assignment are not those of the
  // model; ResourceExhausted: rows of batches this large do not fit into
  // memory.
  static absl::StatusOr<std::shared_ptr<JobRows>> Create(
      const JobAssignment& assignment, const Model& model,
      const TrainingGraph& training, bool evaluates);

  // Rows that the current step reads and pushes.
  absl::Span<RowBatch* const> current() const { return current_; }
  // Rows that the next step will.
  absl::Span<RowBatch* const> next() const { return next_; }
  // Empty where nothing is evaluated.
  absl::Span<RowBatch* const> evaluated() const { return evaluated_; }
  // Of the rows that are evaluated, those that one state of the tables keeps
  // for the batches that follow (TableSpec.cache_rows); null: none.
  RowCache* cache(size_t table) const { return caches_[table].get(); }
  // For reading any keys: room for lookup_max() keys of each table, which are
  // the int_feeds of a batch by table, one id a sample. Made when it is asked
  // for.
  absl::Span<RowBatch* const> lookup();
  size_t lookup_max(size_t table) const;
  // Assigns all rows to the shards of a later routing of the job.
  void UseRouting(const RoutingTable& routing);
  // The next step begins: `next` and `current` change places.
  void Advance() { current_.swap(next_); }

 private:
  friend absl::StatusOr<uint64_t> JobRowsBytes(const JobSpec& spec,
                                               const Model& model,
                                               const TrainingGraph& training,
                                               bool evaluates);
  JobRows() = default;
  RowBatch* Add(uint32_t table, const RowBatch::Options& options,
                const TableMap& map);
  struct Sizes;
  // Sizes of each table of a job.
  static absl::StatusOr<std::vector<Sizes>> SizesOf(
      const JobSpec& spec, const Model& model, const TrainingGraph& training,
      bool evaluates);
  // Makes all batches of a table.
  absl::Status AddTable(uint32_t table, const Sizes& sizes,
                        const TableMap& map);

  std::vector<std::unique_ptr<RowBatch>> owned_;
  std::vector<uint32_t> tables_;  // of each of owned_
  std::vector<RowBatch*> current_;
  std::vector<RowBatch*> next_;
  std::vector<RowBatch*> evaluated_;
  std::vector<RowBatch*> lookup_;
  std::vector<std::unique_ptr<RowCache>> caches_;  // by table
};

// The id that stands for none in the samples of a feed of ids; unset: each
// sample has as many ids as the others.
std::optional<int64_t> PaddingOf(const JobSpec& spec, int feed,
                                 int64_t ids_per_sample);

// Bytes that JobRows::Create takes for a job whose spec has its defaults.
// Errors: InvalidArgument: the model's shapes.
absl::StatusOr<uint64_t> JobRowsBytes(const JobSpec& spec, const Model& model,
                                      const TrainingGraph& training,
                                      bool evaluates);

// Takes the keys of `batch` for each of `rows`.
void Collect(const Batch& batch, absl::Span<RowBatch* const> rows);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EMBEDDING_JOB_ROWS_H_
