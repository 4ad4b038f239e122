#ifndef SYNCLINE_COMMON_MODEL_MODEL_H_
#define SYNCLINE_COMMON_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/graph/fusion.h"
#include "common/model/graph/graph.h"

namespace google::protobuf::io {
class ZeroCopyOutputStream;
}  // namespace google::protobuf::io

namespace syncline {

struct ExportRecord;

// An ONNX model as a user brings it: parsed, checked, and able to give its
// graph, its shapes for a batch size, and itself back with trained weights.
// Thread-safe but for ReleaseValues; what is const is shared.
//
// Batch dimension: the first dimension of a graph input is the batch size where
// the file leaves it open (a symbol, nothing, or a value < 1). Other open
// dimensions are refused, unless they bear the same symbol. A model whose
// inputs are all fixed works for exactly the batch size it was written for.
//
// Length: one more symbol may stand for a dimension of the inputs, for which
// the job knows which sizes it takes. The graph has the longest; InferShapes
// and Infer give the shapes of any.
//
// Nodes may come in any order. Constant nodes become initializers (never
// trained), so nothing behind this class sees one. Tensors have at most
// kRankMax dimensions and kElementsMax elements (describe.h).
//
// Declared parameters: a weight need not have values in the file. A float32
// graph input of fixed shape that matches a pattern of `initialize` is an
// initializer without values, to be filled by the job's rule; WithWeights turns
// it into a real one, so what is exported is self-contained. This is how a
// model of any size is written by hand in ONNX text syntax.
//
// Tables: a float32 graph input [rows, dim] that is named in `tables` is
// declared in the same way. Its number of rows may be open, for a vocabulary
// of unknown size; the initializer then has 0 rows.
class Model {
 public:
  // For InferShapes: all inputs are fixed; take them as the file has them.
  static constexpr int64_t kAsWritten = 0;

  // `bytes` is ONNX binary or ONNX text syntax (recognised by content). `label`
  // names the file in errors; `initialize` are the patterns of the job's rules
  // (ParseJobModel in training_graph.h passes them), `tables` the names of its
  // embedding tables, `length` the dimension that differs from batch to batch.
  // Treats the bytes as hostile.
  // Errors: InvalidArgument, one problem per line, each naming the node, its
  // operator and the opset: not ONNX, text syntax error with line, no graph,
  // unsupported operator or opset, a cycle, an undefined or doubly defined
  // name, a wrong attribute or type, external data, shapes that do not fit.
  static absl::StatusOr<std::shared_ptr<Model>> Parse(
      absl::string_view bytes, absl::string_view label,
      absl::Span<const std::string> initialize = {},
      absl::Span<const std::string> tables = {},
      const LengthDimension& length = {});
  // The same for a check that wants to find everything at once: appends the
  // problems and gives what could be understood, which is good for its graph
  // only; null if that is nothing.
  static std::shared_ptr<Model> ParseWithProblems(
      absl::string_view bytes, absl::string_view label,
      absl::Span<const std::string> initialize,
      absl::Span<const std::string> tables, std::vector<std::string>* problems,
      const LengthDimension& length = {});
  ~Model();

  // False only from ParseWithProblems.
  bool whole() const { return whole_; }
  const Graph& graph() const { return graph_; }
  // PyTorch's exporter's notes beside the graph (export_record.h).
  const ExportRecord& export_record() const;

  // Notes that the user must read before training, one line each: operations
  // that are computed otherwise than the file says (import_rewrites.h).
  const std::vector<std::string>& notes() const;

  // Values that the file has in place of the model's parameters, one line each
  // (older_export.h). Such a file would not train as the original does.
  const std::vector<std::string>& folded_parameters() const;

  // Concrete shape of every value, indexed by ValueId, with the batch dimension
  // set to `batch_size` (> 0, or kAsWritten) and the length to `length` (0: the
  // longest). A value that is constant for this
  // batch size (Reshape's shape input) has its dims too. Errors:
  // InvalidArgument: shapes that do not fit, naming the node; a graph input
  // with a fixed first dimension other than batch_size; kAsWritten where an
  // input has the batch dimension.
  absl::StatusOr<std::vector<Dims>> InferShapes(int64_t batch_size,
                                                int64_t length = 0) const;

  // The same, and the values that are known before training.
  struct Inference {
    std::vector<Dims> dims;  // by ValueId
    // By ValueId: of values that are folded, else null.
    std::vector<std::shared_ptr<const ConstantTensor>> constants;
  };
  absl::StatusOr<Inference> Infer(int64_t batch_size, int64_t length = 0) const;

  // The submitted file, with the named float32 initializers replaced, as ONNX
  // binary. Those named in `inputs` are graph inputs in it, without values,
  // whatever they were: tables whose rows go elsewhere. Nodes that say so are
  // for training no more (inference_form.h); everything else (names, metadata,
  // opset) is kept.
  // Errors: InvalidArgument: unknown name or wrong element count; a declared
  // parameter, or one whose values were released, that is in neither.
  absl::StatusOr<std::string> WithWeights(
      const absl::flat_hash_map<std::string, absl::Span<const float>>& weights,
      absl::Span<const std::string> inputs = {}) const;

  // The same, written to `path`, which it replaces: the weights are in memory
  // once. Errors: also the file system's, naming the path.
  absl::Status WriteWithWeights(
      const std::string& path,
      const absl::flat_hash_map<std::string, absl::Span<const float>>& weights,
      absl::Span<const std::string> inputs = {}) const;

  // Nodes around these initializers (indices into Graph::initializers) are
  // fused as around constants (fusion.h), where they are single numbers that
  // are not trained. Call it before any use of the graph. REQUIRES: whole().
  void FuseAround(absl::Span<const int> initializers);

  // Frees the values of these initializers (indices into Graph::initializers)
  // of the file, for a caller with a copy of its own. The graph keeps types and
  // shapes; WithWeights must then be given the values or find them in `inputs`.
  // Values small enough for shape rules to read are kept. Not while another
  // thread uses the model; no executor may be made of it afterwards that wants
  // the file's values.
  void ReleaseValues(absl::Span<const int> initializers);

 private:
  struct Proto;
  Model();
  // Completes graph_ with types and shapes of computed values. Returns those
  // that are always the same number.
  InvariantConstants SetComputedShapes(const LengthDimension& length,
                                       std::vector<std::string>* problems);
  absl::Status CheckWeights(
      const absl::flat_hash_map<std::string, absl::Span<const float>>& weights,
      absl::Span<const std::string> inputs) const;
  // REQUIRES: the weights fit.
  absl::Status Serialize(
      const absl::flat_hash_map<std::string, absl::Span<const float>>& weights,
      absl::Span<const std::string> inputs,
      google::protobuf::io::ZeroCopyOutputStream* out) const;

  std::unique_ptr<Proto> proto_;
  Graph graph_;
  bool whole_ = true;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_MODEL_H_
