#include "worker/job/checkpoint_values.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
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

}  // namespace

absl::Status ReadCheckpointValues(const PreparedJob& job,
                                  const CheckpointInfo& checkpoint,
                                  const GoOnCheck& go_on) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto files,
      StartFiles::Open(ValuesOf(job, checkpoint),
                       absl::StrCat("job ", job.assignment.job_id(), ", ",
                                    job.task_name())));
  if (files->manifest_clock() != checkpoint.clock()) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", checkpoint.path(),
                     ": its manifest says clock ", files->manifest_clock(),
                     ", it is to be of clock ", checkpoint.clock()));
  }
  // Blocks do not depend on who has them.
  SYNCLINE_ASSIGN_OR_RETURN(
      const BlockMap blocks,
      BlockMap::Create(TensorSizesOf(job.training), /*shard_count=*/1));
  SYNCLINE_ASSIGN_OR_RETURN(const DenseUpdater::Options update,
                            ReadUpdate(job.spec(), job.regimes));
  return files
      ->Read(blocks, update.optimizer, go_on,
             [&](const BlockStateReader::Piece& piece) {
               const Block& block = blocks.blocks()[piece.block];
               const absl::Span<float> values =
                   job.executor->parameter(static_cast<int>(block.tensor));
               std::memcpy(values.data() + block.offset + piece.first,
                           piece.bytes.data(), piece.bytes.size());
             })
      .status();
}

}  // namespace syncline::worker
