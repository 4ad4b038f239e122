#include "worker/job/checkpoint_values.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_contents.h"
#include "common/checkpoint/checkpoint_start.h"
#include "common/update/update_spec.h"
#include "common/wire/block_map.h"
#include "worker/peers/start_files.h"

namespace syncline::worker {
namespace {

// The assignment of an attempt that would take the values alone.
JobAssignment ValuesOf(const PreparedJob& job,
                       const CheckpointInfo& checkpoint) {
  JobAssignment assignment = job.assignment;
  StartSpec* const start = assignment.mutable_spec()->mutable_start();
  start->Clear();
  start->set_checkpoint(checkpoint.path());
  start->set_manifest_crc32c(checkpoint.manifest_crc32c());
  start->set_weights_only(true);
  *assignment.mutable_start_from() = checkpoint;
  assignment.set_start_clock(0);
  return assignment;
}

absl::StatusOr<std::shared_ptr<const StartFiles>> OpenFiles(
    const PreparedJob& job, const CheckpointInfo& checkpoint,
    const GoOnCheck& go_on) {
  SYNCLINE_ASSIGN_OR_RETURN(
      auto files, StartFiles::Open(ValuesOf(job, checkpoint),
                                   absl::StrCat("job ", job.assignment.job_id(),
                                                ", ", job.task_name()),
                                   go_on));
  if (files->manifest().clock() == checkpoint.clock()) return files;
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", checkpoint.path(),
                   ": its manifest says clock ", files->manifest().clock(),
                   ", it is to be of clock ", checkpoint.clock()));
}

// The files of a job with tables, values and rows in one pass.
absl::Status Visit(const PreparedJob& job, const CheckpointInfo& checkpoint,
                   const StartFiles& files, const ValueVisitor& values,
                   const RowVisitor& rows, const KeyFilter& wants,
                   const GoOnCheck& go_on, uint64_t* read) {
  const absl::Status visited = VisitCheckpoint(
      checkpoint.path(), files.manifest(), values, rows, wants, go_on, read);
  if (visited.ok() || absl::IsCancelled(visited)) return visited;
  return WithStartTrouble(
      Annotate(visited, absl::StrCat("job ", job.assignment.job_id(), ", ",
                                     job.task_name(), ": checkpoint ",
                                     checkpoint.path())),
      ValuesOf(job, checkpoint));
}

absl::Status ReadValues(const PreparedJob& job, const StartFiles& files,
                        const GoOnCheck& go_on, uint64_t* read) {
  // Blocks do not depend on who has them.
  SYNCLINE_ASSIGN_OR_RETURN(
      const BlockMap blocks,
      BlockMap::Create(TensorSizesOf(job.training), /*shard_count=*/1));
  SYNCLINE_ASSIGN_OR_RETURN(const DenseUpdater::Options update,
                            ReadUpdate(job.spec(), job.regimes));
  return files
      .Read(
          blocks, update.optimizer, go_on,
          [&](const BlockStateReader::Piece& piece) {
            const Block& block = blocks.blocks()[piece.block];
            const absl::Span<float> values =
                job.executor->parameter(static_cast<int>(block.tensor));
            std::memcpy(values.data() + block.offset + piece.first,
                        piece.bytes.data(), piece.bytes.size());
          },
          read)
      .status();
}

}  // namespace

absl::Status ReadCheckpointValues(const PreparedJob& job,
                                  const CheckpointInfo& checkpoint,
                                  const GoOnCheck& go_on, uint64_t* read) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto files,
                            OpenFiles(job, checkpoint, go_on));
  if (job.rows == nullptr) return ReadValues(job, *files, go_on, read);
  SYNCLINE_RETURN_IF_ERROR(job.checkpoint_rows->Begin());
  return Visit(
      job, checkpoint, *files,
      [&](uint32_t parameter, int64_t first, absl::Span<const float> values) {
        std::copy(values.begin(), values.end(),
                  job.executor->parameter(static_cast<int>(parameter)).begin() +
                      first);
      },
      [&](uint32_t table, absl::Span<const int64_t> keys,
          absl::Span<const float> values) {
        job.checkpoint_rows->Put(table, keys, values);
        return absl::OkStatus();
      },
      [&](uint32_t table, int64_t key) {
        return job.checkpoint_rows->Has(table, key);
      },
      go_on, read);
}

absl::Status ScanCheckpointTable(
    const PreparedJob& job, const CheckpointInfo& checkpoint, uint32_t table,
    absl::FunctionRef<absl::Status(absl::Span<const int64_t> keys,
                                   absl::Span<const float> values)>
        sink,
    const GoOnCheck& go_on, uint64_t* read) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto files,
                            OpenFiles(job, checkpoint, go_on));
  return Visit(
      job, checkpoint, *files, /*values=*/nullptr,
      [&](uint32_t, absl::Span<const int64_t> keys,
          absl::Span<const float> values) { return sink(keys, values); },
      [&](uint32_t of, int64_t) { return of == table; }, go_on, read);
}

}  // namespace syncline::worker
