#include "common/model/import/inference_form.h"

#include <string>

#include "absl/container/flat_hash_set.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

constexpr int kDropoutInputs = 2;  // data and ratio; training_mode is the third

// Names that a node reads or the graph gives.
absl::flat_hash_set<std::string> NamesInUse(const onnx::GraphProto& graph) {
  absl::flat_hash_set<std::string> names;
  for (const onnx::NodeProto& node : graph.node()) {
    names.insert(node.input().begin(), node.input().end());
  }
  for (const onnx::ValueInfoProto& output : graph.output()) {
    names.insert(output.name());
  }
  return names;
}

void NormaliseByRunningValues(const absl::flat_hash_set<std::string>& in_use,
                              onnx::NodeProto* node) {
  for (int i = 1; i < node->output_size(); ++i) {
    if (in_use.contains(node->output(i))) return;
  }
  if (node->output_size() > 1) {
    node->mutable_output()->DeleteSubrange(1, node->output_size() - 1);
  }
  for (onnx::AttributeProto& attribute : *node->mutable_attribute()) {
    if (attribute.name() == "training_mode") attribute.set_i(0);
  }
}

}  // namespace

void MakeInferenceForm(onnx::GraphProto* graph) {
  const absl::flat_hash_set<std::string> in_use = NamesInUse(*graph);
  for (onnx::NodeProto& node : *graph->mutable_node()) {
    if (node.op_type() == "Dropout" && node.input_size() > kDropoutInputs) {
      node.mutable_input()->DeleteSubrange(kDropoutInputs,
                                           node.input_size() - kDropoutInputs);
    } else if (node.op_type() == "BatchNormalization") {
      NormaliseByRunningValues(in_use, &node);
    }
  }
}

}  // namespace syncline
