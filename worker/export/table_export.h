#ifndef SYNCLINE_WORKER_EXPORT_TABLE_EXPORT_H_
#define SYNCLINE_WORKER_EXPORT_TABLE_EXPORT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace syncline::worker {

// The tables that are written into the model file have at most so many bytes
// together: an ONNX file has at most 2 GiB.
inline constexpr uint64_t kDenseTableBytesMax = 512 << 20;

// Where the rows of one trained table are read. Both block.
struct TableReader {
  using Sink = absl::FunctionRef<absl::Status(absl::Span<const int64_t> keys,
                                              absl::Span<const float> values)>;
  // Gives the sink every row there is, in any order.
  std::function<absl::Status(Sink)> scan;
  // Reads the rows of `keys`; those that are not there have their initial
  // values. At most keys_max keys, unique.
  size_t keys_max = 1;
  std::function<absl::Status(absl::Span<const int64_t> keys, float* values)>
      read;
};

// `reader`, which tells `on_rows` how many rows it has read so far, after each
// message of a scan and each read.
TableReader Counted(TableReader reader,
                    std::function<void(uint64_t rows)> on_rows);

// The table as a tensor [rows, dim]; a row that was never touched has its
// initial value, but is zeros where it is one of `padding`, rows in [0, rows)
// that the model has read as zeros. None if it cannot be a tensor: `rows` is 0
// (open), it would be larger than `bytes_max`, or there is a key outside
// [0, rows).
absl::StatusOr<std::optional<std::vector<float>>> ReadDenseTable(
    int64_t rows, int64_t dim, uint64_t bytes_max, const TableReader& reader,
    absl::Span<const int64_t> padding = {});

// The rows that there are, as a safetensors file (rows_file.h).
absl::Status WriteTableRows(const std::string& path, const std::string& name,
                            int64_t dim, const TableReader& reader);

// "tables/NAME.safetensors". Characters that an artifact's name cannot have are
// replaced, and `index`, the table's, then keeps it unique.
std::string TableArtifact(const std::string& name, size_t index);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXPORT_TABLE_EXPORT_H_
