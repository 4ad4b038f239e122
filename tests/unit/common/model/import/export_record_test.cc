// Goal: what PyTorch's exporter says of initializers is read, in both of its
// forms, and nothing else is taken for it. Method: messages with fields that
// libonnx does not know, as bytes.

#include "common/model/import/export_record.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = ExportRecord::Kind;

std::string Entry(const std::string& key, const std::string& value) {
  onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  return entry.SerializeAsString();
}

constexpr char kKind[] = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr char kSignature[] =
    "pkg.torch.export.ExportedProgram.graph_signature";

void AddKind(const std::string& kind, onnx::ValueInfoProto* info) {
  auto* fields = info->GetReflection()->MutableUnknownFields(info);
  fields->AddLengthDelimited(4,
                             Entry("pkg.torch.onnx.original_node_name", "p_x"));
  fields->AddLengthDelimited(4, Entry(kKind, kind));
}

TEST(ExportRecordTest, SaysWhatEachInitializerIs) {
  onnx::ModelProto file;
  file.set_producer_name("pytorch");
  const std::pair<const char*, const char*> table[] = {
      {"fc.weight", "PARAMETER"},
      {"inv_freq", "BUFFER"},
      {"c", "CONSTANT_TENSOR"}};
  for (const auto& [name, kind] : table) {
    auto* info = file.mutable_graph()->add_value_info();
    info->set_name(name);
    AddKind(kind, info);
  }
  file.mutable_graph()->add_value_info()->set_name("h");
  auto* input = file.mutable_graph()->add_input();
  input->set_name("listed");
  AddKind("PARAMETER", input);
  const ExportRecord record = ReadExportRecord(file);
  EXPECT_TRUE(record.is_pytorch);
  EXPECT_TRUE(record.says_kinds());
  EXPECT_EQ(record.KindOf("fc.weight"), Kind::kParameter);
  EXPECT_EQ(record.KindOf("listed"), Kind::kParameter);
  EXPECT_EQ(record.KindOf("inv_freq"), Kind::kBuffer);
  EXPECT_EQ(record.KindOf("c"), Kind::kConstant);
  EXPECT_EQ(record.KindOf("h"), Kind::kUnknown);
  EXPECT_THAT(record.parameters, IsEmpty());
}

TEST(ExportRecordTest, ListsTheParametersOfTheModel) {
  const char* forms[] = {
      "\n# inputs\np_w: PARAMETER target='fc.weight'\n"
      "p_b: PARAMETER target=\"it's\"\n"
      "b_m: BUFFER target='bn.running_mean' persistent=True\n"
      "x: USER_INPUT\n\n# outputs\ny: USER_OUTPUT\n",
      "ExportGraphSignature(input_specs=["
      "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_w'),"
      " target='fc.weight', persistent=None), "
      "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_b'),"
      " target=\"it's\", persistent=None), "
      "InputSpec(kind=<InputKind.BUFFER: 3>, arg=TensorArgument(name='b_m'), "
      "target='bn.running_mean', persistent=True)], output_specs=[OutputSpec("
      "kind=<OutputKind.USER_OUTPUT: 1>, arg=TensorArgument(name='y'), "
      "target=None)])"};
  for (const char* form : forms) {
    onnx::ModelProto in_graph;
    auto* graph = in_graph.mutable_graph();
    graph->GetReflection()->MutableUnknownFields(graph)->AddLengthDelimited(
        16, Entry(kSignature, form));
    EXPECT_THAT(ReadExportRecord(in_graph).parameters,
                ElementsAre("fc.weight", "it's"));
    onnx::ModelProto in_model;
    auto* entry = in_model.add_metadata_props();
    entry->set_key(kSignature);
    entry->set_value(form);
    EXPECT_THAT(ReadExportRecord(in_model).parameters,
                ElementsAre("fc.weight", "it's"));
  }
}

void AddNode(const std::string& output, const std::string& call,
             const std::string& trace, onnx::ModelProto* file) {
  auto* node = file->mutable_graph()->add_node();
  node->add_output(output);
  auto* fields = node->GetReflection()->MutableUnknownFields(node);
  fields->AddLengthDelimited(9, Entry("pkg.torch.onnx.fx_node", call));
  fields->AddLengthDelimited(9, Entry("pkg.torch.onnx.stack_trace", trace));
}

TEST(ExportRecordTest, SaysWhatNodesWereInTheProgram) {
  constexpr char kEmbedding[] =
      "%e : [num_users=1] = call_function[target=torch.ops.aten.embedding."
      "default](args = (%p_w, %ids";
  onnx::ModelProto file;
  AddNode("d",
          "%detach : [num_users=1] = call_function[target=torch.ops.aten."
          "detach.default](args = (%relu,), kwargs = {})",
          "File \"/home/me/m.py\", line 11, in forward\n    x.detach()", &file);
  AddNode("b", "%b = call_function[target=torch.ops.aten.relu.default]",
          "File \"<eval_with_key>.42\", line 5, in forward", &file);
  AddNode("e", absl::StrCat(kEmbedding, ", 3), kwargs = {})"), "", &file);
  AddNode("f", absl::StrCat(kEmbedding, ", -1, True), kwargs = {})"), "",
          &file);
  AddNode("g", absl::StrCat(kEmbedding, "), kwargs = {})"), "File", &file);
  const ExportRecord record = ReadExportRecord(file);
  ASSERT_EQ(record.detached.size(), 1u);
  EXPECT_EQ(record.detached[0].value, "d");
  EXPECT_EQ(record.detached[0].where, "m.py, line 11");
  ASSERT_EQ(record.in_blocks.size(), 1u);
  EXPECT_EQ(record.in_blocks[0].value, "b");
  EXPECT_EQ(record.in_blocks[0].where, "m.py, line 11");
  ASSERT_EQ(record.padding_rows.size(), 1u);
  EXPECT_EQ(record.padding_rows.at("e"), 3);
  ASSERT_EQ(record.scaled_by_frequency.size(), 1u);
  EXPECT_EQ(record.scaled_by_frequency[0].value, "f");
}

TEST(ExportRecordTest, WhatCannotBeReadSaysNothing) {
  onnx::ModelProto file;
  auto* info = file.mutable_graph()->add_value_info();
  info->set_name("w");
  auto* fields = info->GetReflection()->MutableUnknownFields(info);
  fields->AddLengthDelimited(4, "\xff\xff\xff");
  fields->AddVarint(4, 7);
  fields->AddLengthDelimited(5, Entry(kKind, "PARAMETER"));
  auto* entry = file.add_metadata_props();
  entry->set_key(kSignature);
  entry->set_value("p_w: PARAMETER target='open\np_v: PARAMETER target=v");
  const ExportRecord record = ReadExportRecord(file);
  EXPECT_FALSE(record.is_pytorch);
  EXPECT_FALSE(record.says_kinds());
  EXPECT_EQ(record.KindOf("w"), Kind::kUnknown);
  EXPECT_THAT(record.parameters, IsEmpty());
}

}  // namespace
}  // namespace syncline
