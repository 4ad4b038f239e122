#include "common/model/file_gaps.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/gradient_flow.h"
#include "common/model/graph/resize.h"
#include "common/model/graph/value_index.h"
#include "common/model/import/export_record.h"
#include "common/model/import/training_mode.h"

namespace syncline {
namespace {

constexpr size_t kNamesShown = 8;
constexpr size_t kRunningMean = 3;  // of BatchNormalization
constexpr char kExportInTraining[] =
    "export it with training=torch.onnx.TrainingMode.TRAINING and "
    "do_constant_folding=False";

class GapFinder {
 public:
  GapFinder(const Model& model, const TrainingGraph& training,
            const std::vector<bool>& reached)
      : graph_(model.graph()),
        record_(model.export_record()),
        training_(training),
        reached_(reached) {}

  std::vector<std::string> Find() {
    FindPaddingRows();
    FindScaledEmbeddings();
    FindBlocks();
    FindInferenceMode();
    FindExportersWeights();
    FindConstantWeights();
    FindCornersOfFractions();
    return std::move(lines_);
  }

 private:
  const std::string& NameOf(ValueId id) const { return graph_.values[id].name; }

  void FindPaddingRows() {
    for (const TrainingGraph::Parameter& parameter : training_.parameters) {
      // A rule fills it, and the row with it.
      TellPaddingRow(parameter.value, /*keeps_values=*/parameter.rule < 0);
    }
    for (const TrainingTable& table : training_.tables) {
      if (table.value != kNoValue) {
        TellPaddingRow(table.value, /*keeps_values=*/false);
      }
    }
  }

  void TellPaddingRow(ValueId id, bool keeps_values) {
    bool is_read = false;
    std::optional<int64_t> said;
    for (const Node& node : graph_.nodes) {
      if (node.op_type != "Gather" || node.inputs[0] != id ||
          node.Int("axis", 0) != 0 || node.outputs[0] == kNoValue ||
          !reached_[node.outputs[0]]) {
        continue;
      }
      is_read = true;
      const auto row = record_.padding_rows.find(NameOf(node.outputs[0]));
      if (row != record_.padding_rows.end()) said = row->second;
    }
    if (!is_read) return;
    std::string what;
    int64_t row = 0;
    if (said.has_value()) {
      row = *said;
      what = absl::StrCat("row ", row, " of ", Quote(NameOf(id)),
                          " is padding_idx of the program's embedding");
    } else if (const auto zero = ZeroRow(id); keeps_values && zero) {
      row = *zero;
      what = absl::StrCat("row ", row, " of ", Quote(NameOf(id)),
                          " is all zeros, as padding_idx leaves it");
    } else {
      return;
    }
    lines_.push_back(
        absl::StrCat("model: ", what,
                     ", but an ONNX file has no padding_idx: the row is "
                     "trained like others. Where it must stay, multiply the "
                     "rows by (ids != ",
                     row, ") in the model"));
  }

  // The first row that is all zeros, of a table that is not.
  std::optional<int64_t> ZeroRow(ValueId id) const {
    const int initializer = graph_.values[id].initializer;
    if (initializer < 0) return std::nullopt;
    const ConstantTensor& tensor = graph_.initializers[initializer].tensor;
    if (tensor.dtype != DType::kFloat32 || tensor.bytes.empty() ||
        tensor.dims.size() < 2 || tensor.dims[0] < 2) {
      return std::nullopt;
    }
    const absl::Span<const float> values = tensor.floats();
    const size_t width = values.size() / tensor.dims[0];
    std::optional<int64_t> first;
    bool has_others = false;
    for (int64_t r = 0; width > 0 && r < tensor.dims[0]; ++r) {
      const auto row = values.subspan(r * width, width);
      if (!absl::c_all_of(row, [](float x) { return x == 0; })) {
        has_others = true;
      } else if (!first.has_value()) {
        first = r;
      }
      if (has_others && first.has_value()) return first;
    }
    return std::nullopt;
  }

  void FindScaledEmbeddings() {
    if (record_.scaled_by_frequency.empty()) return;
    const ValueIndex index(graph_);
    for (const ExportRecord::Place& place : record_.scaled_by_frequency) {
      const ValueId id = index.Find(place.value);
      if (id == kNoValue || !reached_[id]) continue;
      lines_.push_back(absl::StrCat(
          "model: the program's embedding ", Quote(place.value), At(place),
          " has scale_grad_by_freq, which an ONNX file does not have: its "
          "gradient is not scaled"));
    }
  }

  static std::string At(const ExportRecord::Place& place) {
    return place.where.empty() ? "" : absl::StrCat(" (", place.where, ")");
  }

  // By ValueId: a trained parameter's gradient goes through it.
  std::vector<bool> Trained() const {
    std::vector<bool> trained(graph_.values.size(), false);
    for (const auto& parameter : training_.parameters) {
      if (!parameter.momentum.has_value()) trained[parameter.value] = true;
    }
    for (const TrainingTable& table : training_.tables) {
      if (table.value != kNoValue) trained[table.value] = true;
    }
    for (const Node& node : graph_.nodes) {
      const std::vector<bool> inputs = InputsWithGradient(graph_, node);
      bool any = false;
      for (size_t i = 0; i < inputs.size(); ++i) {
        any |= inputs[i] && trained[node.inputs[i]];
      }
      if (!any) continue;
      for (const ValueId v : OutputsWithGradient(graph_, node)) {
        trained[v] = true;
      }
    }
    return trained;
  }

  void FindBlocks() {
    if (record_.in_blocks.empty()) return;
    const std::vector<bool> trained = Trained();
    const ValueIndex index(graph_);
    std::vector<std::string> names;
    for (const ExportRecord::Place& place : record_.in_blocks) {
      const ValueId id = index.Find(place.value);
      if (id == kNoValue || !reached_[id] || !trained[id]) continue;
      if (names.size() == kNamesShown) {
        names.push_back("...");
        break;
      }
      names.push_back(absl::StrCat(
          Quote(place.value),
          place.where.empty() ? "" : absl::StrCat(" after ", place.where)));
    }
    if (names.empty()) return;
    lines_.push_back(absl::StrCat(
        "model: the program computes ", absl::StrJoin(names, ", "),
        " in a block under torch.no_grad() or torch.autocast; the file does "
        "not say which, and gradients flow through it. If it is no_grad(), "
        "write .detach() behind the block, or freeze all that comes before it "
        "(model.freeze)"));
  }

  void FindInferenceMode() {
    if (HasTrainingMode(graph_)) return;
    absl::flat_hash_set<ValueId> moving;
    for (const auto& parameter : training_.parameters) {
      if (parameter.momentum.has_value()) moving.insert(parameter.value);
    }
    int count = 0;
    std::string first;
    for (const Node& node : graph_.nodes) {
      if (node.op_type != "BatchNormalization" ||
          !moving.contains(node.inputs[kRunningMean])) {
        continue;
      }
      if (count++ == 0) first = NameOf(node.inputs[kRunningMean]);
    }
    if (count == 0) return;
    lines_.push_back(absl::StrCat(
        "model: the file is in inference mode, but its ", count,
        count == 1 ? " BatchNormalization normalises"
                   : " BatchNormalizations normalise",
        " by each batch while training, and the running statistics (",
        Quote(first), count == 1 ? "" : ", ...",
        ") follow. To keep them, as PyTorch's eval() does, name them in "
        "model.freeze"));
  }

  // Weights of operators whose weights the exporter moves in every model. Other
  // weights under its names are refused (import/older_export.h).
  void FindExportersWeights() {
    std::vector<std::string> names;
    for (const TrainingGraph::Parameter& parameter : training_.parameters) {
      const std::string& name = NameOf(parameter.value);
      if (absl::StartsWith(name, "onnx::")) names.push_back(Quote(name));
    }
    if (names.empty()) return;
    const size_t count = names.size();
    if (count > kNamesShown) {
      names.resize(kNamesShown);
      names.push_back("...");
    }
    lines_.push_back(absl::StrCat(
        "model: PyTorch's exporter has stored ", count,
        count == 1 ? " weight" : " weights", " under names of its own (",
        absl::StrJoin(names, ", "),
        "): it has transposed or reordered them, or computed them from others "
        "(weight_norm, a mask, a product), and the file does not say which. "
        "What it has computed is trained as if it were a weight itself, which "
        "is not what the program trains. If the model computes weights, ",
        kExportInTraining));
  }

  // Outputs of Constant nodes in the place of weights.
  void FindConstantWeights() {
    std::vector<ValueId> weights;
    for (const Node& node : graph_.nodes) {
      if (!MultipliesByWeights(node.op_type) || node.inputs.size() < 2 ||
          !absl::c_any_of(node.outputs, [&](ValueId output) {
            return output != kNoValue && reached_[output];
          })) {
        continue;
      }
      const ValueId id = node.inputs[1];
      if (id == kNoValue || absl::c_linear_search(weights, id)) continue;
      const Value& value = graph_.values[id];
      if (value.initializer < 0 || value.dtype != DType::kFloat32 ||
          value.dims.size() < 2 ||
          graph_.initializers[value.initializer].origin !=
              Initializer::Origin::kConstant) {
        continue;
      }
      weights.push_back(id);
    }
    if (weights.empty()) return;
    lines_.push_back(absl::StrCat(
        "model: not trained: ", weights.size(),
        weights.size() == 1 ? " weight is" : " weights are",
        " in Constant nodes ", DescribeNames(graph_, weights),
        ", which are constants to every reader of the file; to train what they "
        "have, store it as initializers"));
  }

  // Its second input are weights, as a rule.
  static bool MultipliesByWeights(absl::string_view op_type) {
    return absl::c_linear_search(
        std::initializer_list<absl::string_view>{
            "MatMul", "Gemm", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN"},
        op_type);
  }

  void FindCornersOfFractions() {
    for (const Node& node : graph_.nodes) {
      if (node.op_type != "Resize" || node.Int(kWholeSizes, 0) != 0 ||
          node.String("coordinate_transformation_mode", "half_pixel") !=
              "align_corners") {
        continue;
      }
      for (const auto& [axis, scale] : ScalesOf(node)) {
        const int64_t in = graph_.values[node.inputs[0]].dims[axis];
        const int64_t out = graph_.values[node.outputs[0]].dims[axis];
        const double size = static_cast<double>(in) * scale;
        if (in <= 0 || out <= 0 || std::abs(size - out) < 1e-4 * size) continue;
        lines_.push_back(absl::StrCat(
            "model: ",
            DescribeNode(node.name, node.op_type, graph_.opset_version),
            " scales dimension ", axis, " by ", scale, ", from ", in, " to ",
            out, ", with align_corners: its last place is at ", scale, " x ",
            in, " - 1 here, as in ONNX's own tests, and at ", out,
            " - 1 in ONNX Runtime, which computes other values. With sizes in "
            "place of scales both agree"));
        break;
      }
    }
  }

  // A Resize node's scales by axis; none where the file has no constant ones.
  std::vector<std::pair<size_t, float>> ScalesOf(const Node& node) const {
    constexpr size_t kScales = 2;
    std::vector<std::pair<size_t, float>> scales;
    if (node.inputs.size() <= kScales || node.inputs[kScales] == kNoValue) {
      return scales;
    }
    const int initializer = graph_.values[node.inputs[kScales]].initializer;
    if (initializer < 0) return scales;
    const ConstantTensor& tensor = graph_.initializers[initializer].tensor;
    if (tensor.dtype != DType::kFloat32 || tensor.bytes.empty()) return scales;
    const auto rank =
        static_cast<int64_t>(graph_.values[node.inputs[0]].dims.size());
    const std::vector<int64_t> axes = node.Ints("axes");
    for (size_t i = 0; i < tensor.floats().size(); ++i) {
      int64_t axis = static_cast<int64_t>(i);
      if (!axes.empty()) axis = i < axes.size() ? axes[i] : rank;
      if (axis < 0) axis += rank;
      if (axis < 0 || axis >= rank) continue;
      scales.emplace_back(static_cast<size_t>(axis), tensor.floats()[i]);
    }
    return scales;
  }

  const Graph& graph_;
  const ExportRecord& record_;
  const TrainingGraph& training_;
  const std::vector<bool>& reached_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> DescribeFileGaps(const Model& model,
                                          const TrainingGraph& training,
                                          const std::vector<bool>& reached) {
  return GapFinder(model, training, reached).Find();
}

}  // namespace syncline
