// Goal: names are resolved, and what is wrong with a graph apart from shapes is
// reported once, naming the node, its operator and the opset.
// Method: small models in ONNX text; a table of bad ones and their reports.

#include "common/model/graph/graph_builder.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/graph/onnx_file.h"
#include "common/model/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr char kHeader[] = "<ir_version: 8, opset_import: [\"\" : 13]>\n";

onnx::ModelProto FromText(const std::string& graph) {
  onnx::ModelProto model;
  const absl::Status status = ReadOnnxFile(kHeader + graph, &model);
  EXPECT_TRUE(status.ok()) << status;
  return model;
}

BuiltGraph Build(const std::string& text,
                 const std::vector<std::string>& initialize = {}) {
  onnx::ModelProto model = FromText(text);
  std::vector<std::string> problems;
  BuiltGraph built = BuildGraph(initialize, &model, &problems);
  EXPECT_THAT(problems, IsEmpty());
  return built;
}

std::vector<std::string> ProblemsOf(onnx::ModelProto model) {
  std::vector<std::string> problems;
  BuildGraph({}, &model, &problems);
  return problems;
}

std::vector<std::string> NodeNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.name);
  return names;
}

TEST(GraphBuilderTest, OneMoreSymbolMayBeTheLengthOfSamples) {
  onnx::ModelProto model = FromText(R"(
      g (int64[N,S] x, float[N,1,S] y, float[S,4] w) => (int64[N,S] z)
      { z = Identity(x) })");
  std::vector<std::string> problems;
  const Graph graph =
      BuildGraph({"w"}, &model, &problems, {"w"}, {"S", 12}).graph;
  // A tensor whose shape depends on the length is neither a parameter nor a
  // table.
  EXPECT_THAT(problems,
              ElementsAre("graph input 'w': its first dimension is the batch, "
                          "but 'S' is the length of samples"));
  const Value& x = graph.values[graph.FindValue("x")];
  EXPECT_EQ(x.dims, (Dims{kBatchDim, 12}));
  EXPECT_EQ(x.length_mask, 0b10u);
  const Value& y = graph.values[graph.FindValue("y")];
  EXPECT_EQ(y.dims, (Dims{kBatchDim, 1, 12}));
  EXPECT_EQ(y.length_mask, 0b100u);

  for (const char* dims : {"[N,3,S]", "[N,S,S]"}) {
    onnx::ModelProto inner = FromText(absl::StrCat(
        "g (float", dims, " x) => (float", dims, " y) { y = Identity(x) }"));
    problems.clear();
    BuildGraph({}, &inner, &problems, {}, {"S", 12});
    EXPECT_THAT(problems,
                ElementsAre("graph input 'x': 'S', the length of samples, is "
                            "its dimension 2, and must be the first behind the "
                            "batch: samples are padded at their end. Transpose "
                            "inside the model"));
  }

  onnx::ModelProto other =
      FromText("g (float[N,S,T] x) => (float[N,S,T] y) { y = Identity(x) }");
  problems.clear();
  BuildGraph({}, &other, &problems, {}, {"S", 12});
  EXPECT_THAT(problems,
              ElementsAre("graph input 'x': dimension 2 is open ('T'); only "
                          "the first, the batch, may be, and 'S', the length "
                          "of samples"));
}

TEST(GraphBuilderTest, TablesAreDeclaredByName) {
  onnx::ModelProto model = FromText(R"(
      g (float[R,4] emb, float[N,2] x, float[5,2] b) => (float[N,2] y)
      { y = Identity(x) })");
  std::vector<std::string> problems;
  const Graph graph = BuildGraph({}, &model, &problems, {"emb", "b"}).graph;
  EXPECT_THAT(problems, IsEmpty());
  ASSERT_EQ(graph.initializers.size(), 2u);
  // The symbol of its rows is not the batch.
  EXPECT_EQ(graph.initializers[0].tensor.dims, (Dims{0, 4}));
  EXPECT_EQ(graph.initializers[0].origin, Initializer::Origin::kDeclared);
  EXPECT_EQ(graph.initializers[1].tensor.dims, (Dims{5, 2}));
  ASSERT_EQ(graph.inputs.size(), 1u);
  EXPECT_EQ(graph.values[graph.inputs[0]].dims, (Dims{kBatchDim, 2}));
}

TEST(GraphBuilderTest, NamesBecomeNumbers) {
  const Graph graph = Build(R"(
      g (float[N,2] x) => (float[N,3] y)
      <float[2,3] w = {1,2,3,4,5,6}, float[3] b = {0,0,0}>
      { y = Gemm <alpha = 0.5, transA = 0> (x, w, b) })")
                          .graph;
  EXPECT_EQ(graph.name, "g");
  EXPECT_EQ(graph.opset_version, 13);
  ASSERT_EQ(graph.nodes.size(), 1u);
  const Node& gemm = graph.nodes[0];
  EXPECT_EQ(gemm.name, "Gemm#0");
  EXPECT_EQ(gemm.since_version, 13);
  EXPECT_EQ(gemm.Float("alpha", 1), 0.5f);
  EXPECT_TRUE(gemm.Has("transA"));
  EXPECT_THAT(gemm.inputs,
              ElementsAre(graph.FindValue("x"), graph.FindValue("w"),
                          graph.FindValue("b")));
  EXPECT_THAT(gemm.outputs, ElementsAre(graph.FindValue("y")));
  EXPECT_THAT(graph.inputs, ElementsAre(graph.FindValue("x")));
  EXPECT_THAT(graph.outputs, ElementsAre(graph.FindValue("y")));
  EXPECT_EQ(graph.values[graph.FindValue("x")].dims, (Dims{kBatchDim, 2}));
  EXPECT_EQ(graph.values[graph.FindValue("y")].producer, 0);
  ASSERT_EQ(graph.initializers.size(), 2u);
  EXPECT_EQ(graph.initializers[0].value, graph.FindValue("w"));
  EXPECT_THAT(graph.initializers[0].tensor.floats(),
              ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(GraphBuilderTest, NodesAreSorted) {
  const BuiltGraph built = Build(R"(
      g (float[N,2] x) => (float[N,2] y)
      { y = Tanh(b)  b = Relu(a)  a = Sigmoid(x) })");
  EXPECT_THAT(NodeNames(built.graph),
              ElementsAre("Sigmoid#2", "Relu#1", "Tanh#0"));
  EXPECT_THAT(built.file_nodes, ElementsAre(2, 1, 0));
  EXPECT_EQ(built.graph.values[built.graph.FindValue("y")].producer, 2);
}

TEST(GraphBuilderTest, OmittedInputsHaveNoValue) {
  onnx::ModelProto model =
      FromText("g (float[N,2] x) => (float[N,2] y) { y = Dropout(x) }");
  model.mutable_graph()->mutable_node(0)->add_input("");
  model.mutable_graph()->mutable_node(0)->add_output("");
  std::vector<std::string> problems;
  const Graph graph = BuildGraph({}, &model, &problems).graph;
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_THAT(graph.nodes[0].inputs,
              ElementsAre(graph.FindValue("x"), kNoValue));
  EXPECT_THAT(graph.nodes[0].outputs,
              ElementsAre(graph.FindValue("y"), kNoValue));
}

TEST(GraphBuilderTest, ConstantsBecomeInitializers) {
  const Graph graph = Build(R"(
      g (float[N,4] x) => (float[2,6] y)
      { s = Constant <value_ints = [2, 6]> ()  z = Reshape(x, s)
        f = Constant <value = float[2] {1, 2}> ()
        c = Constant <value_float = 3.0> ()  w = Mul(z, c)  y = Add(w, c) })")
                          .graph;
  EXPECT_THAT(NodeNames(graph), ElementsAre("Reshape#1", "Mul#4", "Add#5"));
  ASSERT_EQ(graph.initializers.size(), 3u);
  EXPECT_EQ(graph.initializers[0].origin, Initializer::Origin::kConstant);
  EXPECT_THAT(graph.initializers[0].tensor.ints(), ElementsAre(2, 6));
  EXPECT_THAT(graph.initializers[1].tensor.floats(), ElementsAre(1, 2));
  EXPECT_THAT(graph.initializers[2].tensor.floats(), ElementsAre(3));
  EXPECT_EQ(graph.initializers[2].tensor.dims, Dims{});
  EXPECT_EQ(graph.values[graph.FindValue("s")].kind, Value::Kind::kInitializer);
}

TEST(GraphBuilderTest, DeclaredParameters) {
  constexpr char kText[] = R"(
      g (float[N,4] x, float[4,2] w, float[2] b, int64[2] i, float s)
        => (float[N,2] y) { y = Gemm(x, w, b) })";
  const Graph graph = Build(kText, {"w", "?"}).graph;
  // x is open and i is no float32.
  EXPECT_THAT(graph.inputs,
              ElementsAre(graph.FindValue("x"), graph.FindValue("i")));
  ASSERT_EQ(graph.initializers.size(), 3u);
  const Initializer& w = graph.initializers[0];
  EXPECT_EQ(w.origin, Initializer::Origin::kDeclared);
  EXPECT_EQ(w.value, graph.FindValue("w"));
  EXPECT_EQ(w.tensor.dims, (Dims{4, 2}));
  EXPECT_TRUE(w.tensor.bytes.empty());
  EXPECT_EQ(graph.values[w.value].initializer, 0);
  // Without rules they are inputs like any other.
  EXPECT_EQ(Build(kText).graph.inputs.size(), 5u);
}

TEST(GraphBuilderTest, DeclaredParametersAreDefinedOnce) {
  onnx::ModelProto model = FromText(
      "g (float[N,2] x, float[2] w, float[2] w) => (float[N,2] y) "
      "{ y = Add(x, w) }");
  const std::vector<std::string> initialize = {"w"};
  std::vector<std::string> problems;
  BuildGraph(initialize, &model, &problems);
  EXPECT_THAT(problems, ElementsAre("'w' is defined twice, by graph input 'w' "
                                    "and by graph input 'w'"));
}

TEST(GraphBuilderTest, InitializersMayBeListedAsInputs) {
  onnx::ModelProto model = FromText(R"(
      g (float[N,2] x, float[2] b = {1, 2}) => (float[N,2] y) { y = Add(x, b) })");
  model.set_ir_version(3);
  std::vector<std::string> problems;
  const Graph graph = BuildGraph({}, &model, &problems).graph;
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_THAT(graph.inputs, ElementsAre(graph.FindValue("x")));
  EXPECT_EQ(graph.initializers.size(), 1u);
  model = FromText(R"(
      g (float[N,2] x, float[2] b = {1, 2}) => (float[N,2] y) { y = Add(x, b) })");
  model.mutable_graph()->mutable_initializer(0)->set_dims(0, 1);
  model.mutable_graph()->mutable_initializer(0)->mutable_float_data()->Truncate(
      1);
  EXPECT_THAT(ProblemsOf(model),
              ElementsAre("graph input 'b' has another type or shape than its "
                          "initializer, float32[1]"));
}

TEST(GraphBuilderTest, BadGraphs) {
  const std::pair<const char*, std::vector<std::string>> table[] = {
      {"g (float[N,2] x) => (float[N,2] y) { y = Relu(z) }",
       {"node 'Relu#0' (Relu, opset 13): input 'z' is not defined anywhere"}},
      {"g (float[N,2] x) => (float[N,2] z) { y = Relu(x) }",
       {"graph output 'z' is not defined anywhere"}},
      {"g (float[N,2] x) => (float[N,2] y) { y = Relu(x) y = Tanh(x) }",
       {"'y' is defined twice, by node 'Relu#0' (Relu, opset 13) and by node "
        "'Tanh#1' (Tanh, opset 13)"}},
      {"g (float[N,2] x, float[N,2] x) => (float[N,2] y) { y = Relu(x) }",
       {"'x' is defined twice, by graph input 'x' and by graph input 'x'"}},
      {"g (float[N,2] x) => (float[N,2] x) { x = Relu(x) }",
       {"'x' is defined twice, by graph input 'x' and by node 'Relu#0' (Relu, "
        "opset 13)"}},
      {"g (float[N,2] x) => (float[N,2] c) "
       "{ a = Add(x, c) b = Relu(a) c = Tanh(b) d = Tanh(c) }",
       {"the graph has a cycle: 'Add#0' -> 'Relu#1' -> 'Tanh#2' -> 'Add#0'"}},
      {"g (float[N,2] x) => (float[N,2] y) { y = Gelu(x) }",
       {"node 'Gelu#0' (Gelu, opset 13): the operator is not supported at "
        "this opset; ONNX has it from opset 20 on"}},
      {"g (float[N,2] x) => (float[N,2] y) { y = Gelo(x) }",
       {"node 'Gelo#0' (Gelo, opset 13): the operator is not supported; did "
        "you mean Gelu?"}},
      {"g (float[N,2] x) => (float[N,2] y) { y = BatchNorm(x) }",
       {"node 'BatchNorm#0' (BatchNorm, opset 13): the operator is not "
        "supported; did you mean BatchNormalization?"}},
      {"g (float[N,2] x) => (float[N,2] y) { y = relu(x) }",
       {"node 'relu#0' (relu, opset 13): the operator is not supported; did "
        "you mean Relu?"}},
      {"g (float[N,2] x) => (float[N,2] y) "
       "{ a = Det(x) b = Det(a) c = Det(b) y = NonZero(c) }",
       {"node 'Det#0' (Det, opset 13): the operator is not supported (and 2 "
        "more nodes of it)",
        "node 'NonZero#3' (NonZero, opset 13): the operator is not "
        "supported"}},
      {"g (float[N,2] x) => (float[N,2] y) { y = Relu <zz = 1> (x) }",
       {"node 'Relu#0' (Relu, opset 13): Unrecognized attribute: zz for "
        "operator Relu"}},
      {"g (float[N,2] x) => (float[N,2] y) { y = Flatten <axis = 1.5> (x) }",
       {"node 'Flatten#0' (Flatten, opset 13): Mismatched attribute type in ' "
        ": axis'"}},
      {"g (float[N,2] x) => (float[N,2] y) { y = Flatten <axis=1, axis=2> (x) "
       "}",
       {"node 'Flatten#0' (Flatten, opset 13): attribute 'axis' is given "
        "twice"}},
      {"g (float[N,2] x) => (float[N,2] y) { y = Add(x) }",
       {"node 'Add#0' (Add, opset 13): Node () has input size 1 not in range "
        "[min=2, max=2]."}},
      {"g (float[N,2] x) => () { y = Relu(x) }", {"the graph has no output"}},
      {"g (float[N,M] x) => (float[N,2] y) { y = Relu(x) }",
       {"graph input 'x': dimension 1 is open ('M'); only the first, the "
        "batch, may be, and one that data.buckets names"}},
      {"g (float x) => (float[N,2] y) { y = Relu(x) }", {}},
      {"g (float16[N,2] x) => (float[N,2] y) { y = Relu(x) }",
       {"graph input 'x': element type FLOAT16 is not built yet; export the "
        "model in float32: in PyTorch, call model.float() before "
        "torch.onnx.export, and give it float32 inputs"}},
      {"g (int8[N,2] x) => (float[N,2] y) { y = Relu(x) }",
       {"graph input 'x': element type INT8 is not built yet; use FLOAT, "
        "DOUBLE, INT32, INT64, BOOL or UINT8"}},
      {"g (float[N,1,1,1,1,1,1,1,1] x) => (float[N,2] y) { y = Relu(x) }",
       {"graph input 'x': shape [N,1,1,1,1,1,1,1,1] is too large"}},
      {"g (float[N,2] x) => (float[N,2] y) <float[3] w = {1, 2}> "
       "{ y = Add(x, w) }",
       {"initializer 'w': float32[3] needs 12 bytes, but the file has 8"}},
      {"g (float[N,2] x) => (float[N,2] y) "
       "{ c = Constant <value_string = \"a\"> () y = Relu(x) }",
       {"node 'Constant#0' (Constant, opset 13): attribute 'value_string' is "
        "not supported"}},
      {"g (float[N,2] x) => (float[N,2] y) { c = Constant() y = Relu(x) }",
       {"node 'Constant#0' (Constant, opset 13): needs exactly one value "
        "attribute"}},
  };
  for (const auto& [text, problems] : table) {
    EXPECT_EQ(ProblemsOf(FromText(text)), problems) << text;
  }
}

TEST(GraphBuilderTest, WeightsInHalfPrecisionAreOneProblem) {
  onnx::ModelProto model = FromText(
      "g (float[N,2] x) => (float[N,2] y) <float[2] w = {1, 2}, "
      "float[2] b = {3, 4}> { a = Mul(x, w) y = Add(a, b) }");
  for (auto& tensor : *model.mutable_graph()->mutable_initializer()) {
    tensor.set_data_type(onnx::TensorProto::BFLOAT16);
  }
  EXPECT_THAT(ProblemsOf(model),
              ElementsAre(AllOf(
                  HasSubstr("initializer 'w' and 1 more: element type BFLOAT16 "
                            "is not built yet"),
                  HasSubstr("call model.float() before torch.onnx.export"))));
}

TEST(GraphBuilderTest, AllProblemsComeAtOnce) {
  EXPECT_THAT(
      ProblemsOf(FromText("g (float[N,M] x) => (float[N] q) "
                          "{ a = Relu <zz=1> (x) b = Add(a) c = Det(b, u) }")),
      ElementsAre(
          HasSubstr("dimension 1 is open"),
          HasSubstr("Unrecognized attribute: zz"), HasSubstr("input size 1"),
          HasSubstr("'Det#2' (Det, opset 13)"), HasSubstr("'u' is not defined"),
          HasSubstr("'q' is not defined")));
}

TEST(GraphBuilderTest, ValuesInAnotherFileAreOneProblem) {
  onnx::ModelProto model = FromText(
      "g (float[N,2] x) => (float[N,2] y) <float[2] a = {1,2}, "
      "float[2] b = {1,2}, float[2] c = {1,2}> "
      "{ y = Sum(x, a, b, c) }");
  for (auto& tensor : *model.mutable_graph()->mutable_initializer()) {
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    auto* const entry = tensor.add_external_data();
    entry->set_key("location");
    entry->set_value("m.onnx.data");
  }
  EXPECT_THAT(ProblemsOf(model),
              ElementsAre("initializer 'a' and 2 more have their values in "
                          "another file, 'm.onnx.data'; export with "
                          "external_data=False, or save the model with all "
                          "weights inside"));
}

TEST(GraphBuilderTest, AConstantMayBeAnEmptyList) {
  onnx::ModelProto model = FromText(
      "g (float[N,2] x) => (float[N,2] y) "
      "{ c = Constant <value_ints = [1]> () y = Relu(x) }");
  model.mutable_graph()->mutable_node(0)->mutable_attribute(0)->clear_ints();
  std::vector<std::string> problems;
  const Graph graph = BuildGraph({}, &model, &problems).graph;
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_EQ(graph.values[graph.FindValue("c")].dims, (Dims{0}));
  EXPECT_EQ(graph.values[graph.FindValue("c")].dtype, DType::kInt64);
}

TEST(GraphBuilderTest, VersionsAndThingsThatAreNotBuilt) {
  const onnx::ModelProto good =
      FromText("g (float[N,2] x) => (float[N,2] y) { y = Relu(x) }");
  EXPECT_THAT(ProblemsOf(good), IsEmpty());

  onnx::ModelProto model = good;
  model.set_ir_version(2);
  EXPECT_THAT(ProblemsOf(model), ElementsAre("ir_version 2 is outside 3..13"));
  model.set_ir_version(14);
  EXPECT_THAT(ProblemsOf(model), ElementsAre("ir_version 14 is outside 3..13"));
  for (int opset : {10, 26}) {
    model = good;
    model.mutable_opset_import(0)->set_version(opset);
    EXPECT_THAT(ProblemsOf(model),
                ElementsAre(absl::StrCat("opset ", opset,
                                         " is outside 11..25; "
                                         "export the model with one of "
                                         "these")));
  }
  model = good;
  model.add_opset_import()->set_domain("ai.onnx");
  EXPECT_THAT(ProblemsOf(model),
              ElementsAre("the file imports ONNX's operator set 2 times, must "
                          "be once"));
  model = good;
  model.clear_graph();
  EXPECT_THAT(ProblemsOf(model), ElementsAre("the file has no graph"));
  model = good;
  model.mutable_graph()->add_sparse_initializer();
  model.add_functions()->set_name("Swoosh");
  model.mutable_functions(0)->set_domain("own");
  *model.mutable_graph()->add_node() = model.graph().node(0);
  model.mutable_graph()->mutable_node(1)->set_domain("own");
  model.mutable_graph()->mutable_node(1)->set_op_type("Swoosh");
  model.mutable_graph()->mutable_node(1)->set_output(0, "z");
  EXPECT_THAT(
      ProblemsOf(model),
      UnorderedElementsAre(
          "the file has functions of its own, 'own.Swoosh', which are not "
          "supported; inline them (onnx.inliner.inline_local_functions) or "
          "export with optimize=True",
          HasSubstr("sparse initializers")));
  model = good;
  model.mutable_graph()->mutable_node(0)->set_domain("com.example");
  EXPECT_THAT(ProblemsOf(model),
              ElementsAre("node 'Relu#0' (Relu, opset 13): the operator is not "
                          "supported (domain 'com.example')"));
  model = good;  // what an exporter imports besides, and its version
  model.add_opset_import()->set_domain("pkg.onnxscript.torch_lib");
  model.mutable_opset_import(1)->set_version(1);
  EXPECT_THAT(ProblemsOf(model), IsEmpty());
  model = good;
  model.mutable_graph()->mutable_node(0)->set_op_type("If");
  model.mutable_graph()->mutable_node(0)->add_attribute()->mutable_g();
  EXPECT_THAT(ProblemsOf(model),
              ElementsAre("node 'If#0' (If, opset 13): the operator is not "
                          "supported: a node with a graph inside is not "
                          "trained; PyTorch's exporter writes fewer of them "
                          "with dynamo=True, and none where an index or "
                          "flatten() stands in place of squeeze(dim)"));
  model = good;
  model.mutable_graph()->mutable_node(0)->set_input(0, "");
  EXPECT_THAT(ProblemsOf(model), ElementsAre(HasSubstr("empty string")));
  model = good;
  model.mutable_graph()->mutable_node(0)->set_output(0, "");
  EXPECT_THAT(ProblemsOf(model),
              ElementsAre(HasSubstr("empty string"),
                          "graph output 'y' is not defined anywhere"));
  model = good;
  model.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->clear_shape();
  EXPECT_THAT(ProblemsOf(model), ElementsAre("graph input 'x' has no shape"));
  model = good;
  auto* attribute = model.mutable_graph()->mutable_node(0)->add_attribute();
  attribute->set_name("axis");
  attribute->set_type(onnx::AttributeProto::GRAPH);
  EXPECT_THAT(ProblemsOf(model),
              ElementsAre("node 'Relu#0' (Relu, opset 13): attribute 'axis' is "
                          "of a type that is not supported"));
  model = good;
  model.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_sequence_type();
  EXPECT_THAT(ProblemsOf(model),
              ElementsAre("graph input 'x' is not a tensor"));
}

TEST(GraphBuilderTest, TheFirstDimensionIsOpenInManyWays) {
  for (int64_t fixed : {0, -1}) {
    onnx::ModelProto model =
        FromText("g (float[N,2] x) => (float[N,2] y) { y = Relu(x) }");
    auto* dim = model.mutable_graph()
                    ->mutable_input(0)
                    ->mutable_type()
                    ->mutable_tensor_type()
                    ->mutable_shape()
                    ->mutable_dim(0);
    dim->set_dim_value(fixed);
    std::vector<std::string> problems;
    const Graph graph = BuildGraph({}, &model, &problems).graph;
    EXPECT_THAT(problems, IsEmpty());
    EXPECT_EQ(graph.values[graph.inputs[0]].dims, (Dims{kBatchDim, 2}));
    dim->clear_value();
    EXPECT_THAT(ProblemsOf(model), IsEmpty());
  }
  // The batch's symbol may come again.
  EXPECT_EQ(Build("g (float[N,2,N] x) => (float[N,2,N] y) { y = Relu(x) }")
                .graph.values[0]
                .dims,
            (Dims{kBatchDim, 2, kBatchDim}));
}

}  // namespace
}  // namespace syncline
