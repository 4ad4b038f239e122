#ifndef SYNCLINE_WORKER_EXPORT_TENSORS_FILE_H_
#define SYNCLINE_WORKER_EXPORT_TENSORS_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace syncline::worker {

// float32, row-major. Borrowed.
struct NamedTensor {
  absl::string_view name;
  absl::Span<const int64_t> dims;
  absl::Span<const float> values;
};

// Writes them as a safetensors file, which replaces `path` and says that
// Syncline has written it (common/model/safetensors.h). Names differ, are
// UTF-8 and none is __metadata__, as the format asks. Blocks on disk writes.
// Errors: the file system's, naming the path. Format:
// https://github.com/huggingface/safetensors
absl::Status WriteTensors(const std::string& path,
                          absl::Span<const NamedTensor> tensors);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXPORT_TENSORS_FILE_H_
