#ifndef SYNCLINE_SCHEDULER_CTL_CHECKPOINTS_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_CHECKPOINTS_COMMAND_H_

// `synctl checkpoints`: looks at checkpoints in folders of this machine, asks
// no scheduler and no ps. Each function returns the exit code.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/checkpoint.pb.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

// Code that reads checkpoints and writes results; synctl's main brings it.
struct CheckpointTools {
  using Rows =
      std::function<absl::Status(uint32_t table, absl::Span<const int64_t> keys,
                                 absl::Span<const float> values)>;
  // Reads every byte of the files; values by tensor, and rows; either may be
  // null.
  std::function<absl::Status(
      const std::string& path, const CheckpointManifest& manifest,
      std::vector<std::vector<float>>* values, const Rows& rows)>
      read = nullptr;
  // Writes the tensors of the manifest as a safetensors file.
  std::function<absl::Status(const std::string& path,
                             const CheckpointManifest& manifest,
                             const std::vector<std::vector<float>>& values)>
      write_tensors = nullptr;
  // Rows of one table on their way into a safetensors file.
  class RowsFile {
   public:
    virtual ~RowsFile() = default;
    virtual absl::Status Add(absl::Span<const int64_t> keys,
                             absl::Span<const float> values) = 0;
    virtual absl::Status Finish() = 0;
  };
  std::function<absl::StatusOr<std::unique_ptr<RowsFile>>(
      const std::string& path, const std::string& table, int64_t dim)>
      write_rows = nullptr;
};

// `folder`: a checkpoint directory, or a job's below it. Folders without a
// manifest are listed as such.
int RunCheckpointsList(const std::string& folder, const Console& console);
// The manifest. `path`: a checkpoint's folder, here and below.
int RunCheckpointsShow(const std::string& path, const Console& console);
// Reads every byte.
int RunCheckpointsVerify(const std::string& path, const CheckpointTools& tools,
                         const Console& console);

struct CheckpointExport {
  std::string path;
  std::string output;      // .safetensors, or .onnx with a model
  std::string model_file;  // as it was submitted; empty: none
};
// The values of tensors into `output`; rows of tables into a folder `tables`
// beside it, TABLE.safetensors, as `synctl download` brings them.
int RunCheckpointsExport(const CheckpointExport& options,
                         const CheckpointTools& tools, const Console& console);
// Deletes checkpoints. A folder that is none is refused.
int RunCheckpointsDelete(const std::vector<std::string>& paths,
                         const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_CHECKPOINTS_COMMAND_H_
