#ifndef SYNCLINE_COMMON_MODEL_IMPORT_EXPORT_RECORD_H_
#define SYNCLINE_COMMON_MODEL_IMPORT_EXPORT_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace onnx {
class ModelProto;
}  // namespace onnx

namespace syncline {

// Notes that PyTorch's exporter writes beside the graph: what each initializer
// was in the model, and which parameters the model had.
struct ExportRecord {
  enum class Kind {
    kUnknown,    // nothing is said
    kParameter,  // PARAMETER: what its optimizer would train
    kBuffer,     // BUFFER: running statistics, tables, constants
    kConstant,   // CONSTANT_TENSOR and whatever else there may be
  };
  bool is_pytorch = false;  // the producer
  // Initializers of which something is said.
  absl::flat_hash_map<std::string, Kind> kinds;
  // Names of the model's parameters, in its order; empty: nothing is said.
  std::vector<std::string> parameters;
  // Entries about nodes; `value` is the name of the node's first output.
  struct Place {
    std::string value;
    std::string where;  // "model.py, line 12"; empty: not said
  };
  // Results of detach(), through which PyTorch has no gradient.
  std::vector<Place> detached;
  // Results of a block under torch.no_grad() or torch.autocast; the exporter
  // does not record which of the two. `where` is the line before the block.
  std::vector<Place> in_blocks;
  // Rows of embeddings that PyTorch does not train (padding_idx).
  absl::flat_hash_map<std::string, int64_t> padding_rows;
  // Embeddings with scale_grad_by_freq.
  std::vector<Place> scaled_by_frequency;

  Kind KindOf(absl::string_view name) const;
  // True if the file says what its initializers are: without a parameter among
  // them it would say that nothing is to be trained.
  bool says_kinds() const;
};

// The record in `file`, which may be hostile: entries that cannot be read are
// left out.
ExportRecord ReadExportRecord(const onnx::ModelProto& file);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_IMPORT_EXPORT_RECORD_H_
