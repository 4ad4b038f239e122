#ifndef SYNCLINE_COMMON_CHECKPOINT_RESIDUAL_CHECK_H_
#define SYNCLINE_COMMON_CHECKPOINT_RESIDUAL_CHECK_H_

// The files with what workers keep of compressed gradients, beside a
// checkpoint's own (ADR 104). The manifest does not name them. Functions block
// for as long as the disk does.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/checkpoint.pb.h"

namespace syncline {

// "residuals-00001-of-00004.state", of rank 1 of 4 workers.
std::string ResidualFileName(uint32_t rank, uint32_t ranks);

struct ResidualFile {
  uint32_t rank = 0;
  uint32_t ranks = 0;  // of the job when it was written
  uint64_t bytes = 0;
};

// Those in a checkpoint's folder, by rank; none where it cannot be read.
std::vector<ResidualFile> ListResiduals(const std::string& path);
uint64_t ResidualBytes(const std::vector<ResidualFile>& files);

// Reads every byte of the file of `file.rank` in the checkpoint's folder
// `path`. Errors, with the file's path: DataLoss: damaged, or of another
// checkpoint; FailedPrecondition: of another number of workers; others by
// errno.
absl::Status CheckResiduals(const std::string& path,
                            const CheckpointManifest& manifest,
                            const ResidualFile& file);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CHECKPOINT_RESIDUAL_CHECK_H_
