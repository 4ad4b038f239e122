#ifndef SYNCLINE_COMMON_MODEL_SAFETENSORS_H_
#define SYNCLINE_COMMON_MODEL_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/graph/tensor.h"

namespace syncline {

// Reads safetensors files (https://github.com/huggingface/safetensors), as
// PyTorch's `safetensors.torch.save_file` writes them:
//
//   header bytes 8, little-endian | header, a JSON object | values
//
// Treats the bytes as hostile.

// More than any model needs: 100,000 tensors are about 12 MiB.
inline constexpr size_t kSafetensorsHeaderMax = 16 << 20;

// A tensor in a file.
struct FileTensor {
  std::string name;   // UTF-8
  std::string dtype;  // as the file has it: "F32", "BF16", "I64"
  Dims dims;
  uint64_t begin = 0;  // of its bytes, from the file's first byte
  uint64_t bytes = 0;
  // F32, F16 or BF16: ReadFileTensor reads it.
  bool is_float = false;
  // The file says that Syncline has written it: values lie as models have them.
  bool is_of_syncline = false;
};

// In a file's "__metadata__", {"writer":"syncline"}: Syncline has written it.
// ("format" is for the libraries that read it.)
inline constexpr char kSafetensorsWriter[] = "writer";
inline constexpr char kSafetensorsWriterIsSyncline[] = "syncline";

// The tensors that the header names, in the order of their values. `bytes`
// begins with the file's first bytes and has at least the whole header;
// `file_bytes` is the size of the file. Pure. Errors: InvalidArgument, with
// what is wrong: not such a file (of one of torch.save: what to do); a header
// that is too long, is not UTF-8, not JSON, or has more than 1.5 million
// values; a name that occurs twice or has more than 1,024 bytes; a type that is
// not known; a shape that does not have as many bytes as its place; places that
// overlap, leave a gap, or are not those of the file.
absl::StatusOr<std::vector<FileTensor>> ParseSafetensors(
    absl::string_view bytes, uint64_t file_bytes);

// The same of a file; reads its header alone. Errors also: those of the disk by
// errno, naming the path.
absl::StatusOr<std::vector<FileTensor>> ReadSafetensors(
    const std::string& path);

// Reads the values of one, widened to float32. REQUIRES: tensor.is_float, and
// `values` has as many as its shape. Blocks on the disk. Errors: the disk's,
// naming the path; DataLoss: the file has become shorter; FailedPrecondition: a
// value is not finite.
absl::Status ReadFileTensor(const std::string& path, const FileTensor& tensor,
                            absl::Span<float> values);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_SAFETENSORS_H_
