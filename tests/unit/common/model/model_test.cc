// Goal: the public face of a model: the batch dimension, shapes per batch size,
// export with trained weights, declared parameters, and ONNX's own node tests.
// Method: small models in ONNX text, exported and parsed again; the node tests
// from the test data where present.

#include "common/model/model.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/graph/operator_list.h"
#include "common/model/graph/resize.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/checker.h"
#include "onnx/onnx_pb.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kMlp[] = R"(<
  ir_version: 8, opset_import: ["" : 13],
  producer_name: "a test", metadata_props: ["key" : "value"]
>
mlp (float[N,2,2] x) => (float[N,3] y)
<float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] b = {1,2,3},
 int64[2] s = {0, -1}>
{ f = Reshape(x, s)  h = Gemm(f, w, b)  y = Relu(h) })";

std::shared_ptr<const Model> Parse(
    absl::string_view text, const std::vector<std::string>& initialize = {}) {
  auto model = Model::Parse(text, "m", initialize);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : nullptr;
}

std::string ErrorOf(absl::string_view text) {
  const auto model = Model::Parse(text, "m");
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(model.status().message());
}

Dims DimsOf(const Model& model, absl::string_view name) {
  return model.graph().values[model.graph().FindValue(name)].dims;
}

TEST(ModelTest, ComputedValuesHaveSymbolicShapes) {
  const auto model = Parse(R"(<ir_version: 8, opset_import: ["" : 13]>
      g (float[N,4] x) => (y, z)
      <int64[1] flat = {-1}, int64[2] pairs = {-1, 2}>
      { y = Reshape(x, flat)  z = Reshape(x, pairs)
        r = Relu(x)  c = Constant <value_floats = [1.0, 2.0]> () })");
  EXPECT_EQ(DimsOf(*model, "r"), (Dims{kBatchDim, 4}));
  EXPECT_EQ(DimsOf(*model, "y"), (Dims{kDerivedDim}));
  EXPECT_EQ(DimsOf(*model, "z"), (Dims{kDerivedDim, 2}));
  EXPECT_EQ(DimsOf(*model, "c"), (Dims{2}));
}

TEST(ModelTest, ACastLikeIsACast) {
  const auto model = Parse(R"(<ir_version: 8, opset_import: ["" : 18]>
      g (float[N,4] x, int64[N,4] i) => (y, z)
      { c = Constant <value = double {0.5}> ()
        half = CastLike(c, x)
        j = CastLike(i, x)
        z = CastLike(x, half)
        y = Mul(j, half) })");
  const Graph& graph = model->graph();
  const Node& of_integers = graph.nodes[1];
  EXPECT_EQ(of_integers.op_type, "Cast");
  EXPECT_EQ(of_integers.since_version, 13);
  EXPECT_EQ(of_integers.inputs, (std::vector<ValueId>{graph.FindValue("i")}));
  EXPECT_EQ(of_integers.Int("to", 0), onnx::TensorProto::FLOAT);
  EXPECT_EQ(graph.nodes[2].op_type, "Identity");
  // A number that is cast is known before training.
  EXPECT_TRUE(graph.values[graph.FindValue("half")].folded);
  EXPECT_EQ(DimsOf(*model, "y"), (Dims{kBatchDim, 4}));
  // The export is the file as it was.
  onnx::ModelProto exported;
  ASSERT_TRUE(exported.ParseFromString(*model->WithWeights({})));
  EXPECT_EQ(exported.graph().node(1).op_type(), "CastLike");
}

TEST(ModelTest, ShapesPerBatchSize) {
  const auto model = Parse(kMlp);
  for (int64_t batch : {1, 7, 32}) {
    const auto shapes = model->InferShapes(batch);
    ASSERT_TRUE(shapes.ok()) << shapes.status();
    const auto shape = [&](absl::string_view name) {
      return (*shapes)[model->graph().FindValue(name)];
    };
    EXPECT_EQ(shape("x"), (Dims{batch, 2, 2}));
    EXPECT_EQ(shape("f"), (Dims{batch, 4}));
    EXPECT_EQ(shape("y"), (Dims{batch, 3}));
    EXPECT_EQ(shape("w"), (Dims{4, 3}));
    EXPECT_EQ(shape("s"), (Dims{2}));
  }
  EXPECT_EQ(model->InferShapes(Model::kAsWritten).status().message(),
            "m: graph input 'x' is [N,2,2], not fixed");
  EXPECT_FALSE(model->InferShapes(-1).ok());
  EXPECT_THAT(
      std::string(model->InferShapes(int64_t{1} << 50).status().message()),
      HasSubstr("too large"));
}

TEST(ModelTest, AFixedBatchIsTakenAsItIs) {
  const auto model = Parse(R"(<ir_version: 8, opset_import: ["" : 13]>
      g (float[8,4] x) => (float[8,4] y) { y = Relu(x) })");
  EXPECT_EQ(DimsOf(*model, "y"), (Dims{8, 4}));
  EXPECT_TRUE(model->InferShapes(8).ok());
  EXPECT_TRUE(model->InferShapes(Model::kAsWritten).ok());
  EXPECT_EQ(model->InferShapes(9).status().message(),
            "m: graph input 'x' is [8,4]: it does not take batches of 9; "
            "export the model with a symbolic first dimension");
}

TEST(ModelTest, AModelThatFitsOneBatchSizeOnlyIsRefused) {
  EXPECT_EQ(ErrorOf(R"(<ir_version: 8, opset_import: ["" : 13]>
      g (float[N,4] x) => (y) <int64[2] s = {32, 4}> { y = Reshape(x, s) })"),
            "m: node 'Reshape#0' (Reshape, opset 13) with inputs "
            "float32[N,4], int64[2]: the result float32[32,4] has another "
            "number of elements");
}

TEST(ModelTest, TheNumberOfDimensionsMayNotDependOnTheBatchSize) {
  // 1 and 2 ones for the two that are tried, and the other way round.
  for (const char* left : {"Sub (n, low)", "Sub (high, n)"}) {
    EXPECT_THAT(
        ErrorOf(absl::StrCat(R"(<ir_version: 8, opset_import: ["" : 13]>
            g (float[N] x) => (y)
            <int64[1] low = {7911}, int64[1] high = {7935},
             int64[1] step = {8}> {
              n = Shape (x) left = )",
                             left,
                             R"( ones = Div (left, step)
              c = Constant <value_float = 1.0> ()
              shape = ConstantOfShape <value = int64[1] {1}> (ones)
              y = Expand (c, shape)
            })")),
        HasSubstr("'y' has more dimensions for some batch sizes than for "
                  "others"));
  }
}

TEST(ModelTest, ProblemsHaveALineEach) {
  EXPECT_EQ(ErrorOf(R"(<ir_version: 8, opset_import: ["" : 13]>
      g (float[N,4] x) => (y) { y = Relu(u)  z = Tanh(v) })"),
            "m: node 'Relu#0' (Relu, opset 13): input 'u' is not defined "
            "anywhere\nm: node 'Tanh#1' (Tanh, opset 13): input 'v' is not "
            "defined anywhere");
  std::string text = R"(<ir_version: 8, opset_import: ["" : 13]>
      g (float[N,4] x) => (y) { y = Relu(x) )";
  for (int i = 0; i < 60; ++i) absl::StrAppend(&text, "v", i, " = Tanh(u)\n");
  EXPECT_THAT(ErrorOf(text + "}"), HasSubstr("\nm: and 10 more problems"));
}

constexpr char kSequences[] = R"(<ir_version: 8, opset_import: ["" : 13]>
    g (float[N,S,2] x, float[N] n) => (float[N,S,3] y, float[N] z)
    <float[2,3] w = {1,2,3,4,5,6}>
    { y = MatMul(x, w)  z = Identity(n)  s = Shape(x)
      r = Reshape(y, s2)  s2 = Constant <value_ints = [0, -1]> () })";

TEST(ModelTest, WhatComesAfterAnUnknownOperatorIsCheckedToo) {
  // Exporters write down the shapes of all values: that of b.
  EXPECT_EQ(ErrorOf(R"(<ir_version: 8, opset_import: ["" : 18]>
      g (float[N,4] x, float[N,3] z) => (d, e)
      <float[4,2] v = {1,2,3,4,5,6,7,8}, float[2,2] u = {1,2,3,4},
       float[N,4] b> {
      a = Gelo(x)
      b = Det(a)
      c = Hardmax(b)
      d = MatMul(b, u)
      e = MatMul(z, v) })"),
            "m: node 'Gelo#0' (Gelo, opset 18): the operator is not supported; "
            "did you mean Gelu?\n"
            "m: node 'Det#1' (Det, opset 18): the operator is not supported\n"
            "m: node 'Hardmax#2' (Hardmax, opset 18): the operator is not "
            "supported\n"
            "m: node 'MatMul#3' (MatMul, opset 18) with inputs float32[N,4], "
            "float32[2,2]: Incompatible dimensions for matrix "
            "multiplication\n"
            "m: node 'MatMul#4' (MatMul, opset 18) with inputs float32[N,3], "
            "float32[4,2]: Incompatible dimensions for matrix "
            "multiplication");
}

TEST(ModelTest, ShapesPerLength) {
  const auto model = Model::Parse(kSequences, "m", {}, {}, {"S", 9});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(DimsOf(**model, "y"), (Dims{kBatchDim, 9, 3}));
  for (const int64_t length : {0, 1, 4, 9}) {
    const int64_t want = length == 0 ? 9 : length;
    const auto inferred = (*model)->Infer(5, length);
    ASSERT_TRUE(inferred.ok()) << inferred.status();
    const Graph& graph = (*model)->graph();
    EXPECT_EQ(inferred->dims[graph.FindValue("y")], (Dims{5, want, 3}));
    EXPECT_EQ(inferred->dims[graph.FindValue("r")], (Dims{5, want * 3}));
    EXPECT_EQ(inferred->constants[graph.FindValue("s")]->ints()[1], want);
  }
}

TEST(ModelTest, RunningVariancesOfPyTorchAreItsOwn) {
  const auto attribute_of = [](const std::string& producer) {
    const auto model = Parse(absl::StrCat(
        R"(<ir_version: 8, opset_import: ["" : 15], producer_name: ")",
        producer,
        R"(">
        g (float[N,2] x) => (float[N,2] y)
        <float[2] s = {1,1}, float[2] b = {0,0}, float[2] m = {0,0},
         float[2] v = {1,1}>
        { y = BatchNormalization(x, s, b, m, v) })"));
    const std::string file = *model->WithWeights({});
    EXPECT_EQ(file.find(kSampleVariance), std::string::npos);
    return model->graph().nodes[0].Int(kSampleVariance, 0);
  };
  EXPECT_EQ(attribute_of("pytorch"), 1);
  EXPECT_EQ(attribute_of("another"), 0);
}

TEST(ModelTest, CornersOfPyTorchsResizeAreItsOwn) {
  const auto attribute_of = [](const std::string& producer) {
    const auto model = Parse(absl::StrCat(
        R"(<ir_version: 8, opset_import: ["" : 15], producer_name: ")",
        producer,
        R"(">
        g (float[N,5] x) => (float[N,7] y)
        <float[2] s = {1, 1.5}>
        { y = Resize<coordinate_transformation_mode = "align_corners",
                     mode = "linear">(x, , s) })"));
    return model->graph().nodes[0].Int(kWholeSizes, 0);
  };
  EXPECT_EQ(attribute_of("pytorch"), 1);
  EXPECT_EQ(attribute_of("another"), 0);
}

TEST(ModelTest, ExportKeepsTheSymbolOfTheLength) {
  const auto model = Model::Parse(kSequences, "m", {}, {}, {"S", 9});
  ASSERT_TRUE(model.ok()) << model.status();
  onnx::ModelProto file;
  ASSERT_TRUE(file.ParseFromString(*(*model)->WithWeights({})));
  const auto& shape = file.graph().input(0).type().tensor_type().shape();
  EXPECT_EQ(shape.dim(1).dim_param(), "S");
  EXPECT_FALSE(shape.dim(1).has_dim_value());
}

// --- Export ---

TEST(ModelTest, ExportReplacesWeightsAndKeepsTheRest) {
  const auto model = Parse(kMlp);
  const std::vector<float> w = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.5};
  const auto bytes = model->WithWeights({{"w", w}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto again = Parse(*bytes);
  const Graph& graph = again->graph();
  EXPECT_EQ(graph.name, "mlp");
  EXPECT_EQ(graph.opset_version, 13);
  ASSERT_EQ(graph.initializers.size(), 3u);
  EXPECT_EQ(graph.values[graph.initializers[0].value].name, "w");
  EXPECT_EQ(graph.initializers[0].tensor.floats(), absl::MakeConstSpan(w));
  EXPECT_EQ(graph.initializers[0].tensor.dims, (Dims{4, 3}));
  EXPECT_THAT(graph.initializers[1].tensor.floats(), ElementsAre(1, 2, 3));
  EXPECT_THAT(graph.initializers[2].tensor.ints(), ElementsAre(0, -1));
  EXPECT_THAT(*bytes, HasSubstr("a test"));
  EXPECT_THAT(*bytes, HasSubstr("value"));
  const TempDir dir;
  ASSERT_TRUE(model->WriteWithWeights(dir.path() + "/m.onnx", {{"w", w}}).ok());
  EXPECT_EQ(*ReadFile(dir.path() + "/m.onnx", 1 << 20), *bytes);
  EXPECT_THAT(
      std::string(model->WriteWithWeights("/nowhere/m", {{"w", w}}).message()),
      HasSubstr("/nowhere/m"));
  // The same weights give the same file.
  EXPECT_EQ(*again->WithWeights({}), *bytes);
  EXPECT_EQ(*model->WithWeights({{"w", w}}), *bytes);
}

TEST(ModelTest, ExportMakesDeclaredParametersReal) {
  const auto model = Parse(R"(<ir_version: 8, opset_import: ["" : 13]>
      g (float[N,2] x, float[2,1] w, float[1] b) => (float[N,1] y)
      { y = Gemm(x, w, b) })",
                           {"w", "b"});
  const std::vector<float> w = {1, 2};
  const std::vector<float> b = {3};
  EXPECT_EQ(model->WithWeights({{"w", w}}).status().message(),
            "m: no weights for 'b', which has none in the file");
  const auto bytes = model->WithWeights({{"w", w}, {"b", b}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto again = Parse(*bytes);  // without any rule
  const Graph& graph = again->graph();
  EXPECT_THAT(graph.inputs, ElementsAre(graph.FindValue("x")));
  ASSERT_EQ(graph.initializers.size(), 2u);
  EXPECT_EQ(graph.initializers[0].origin, Initializer::Origin::kFile);
  EXPECT_THAT(graph.initializers[0].tensor.floats(), ElementsAre(1, 2));
  EXPECT_THAT(graph.initializers[1].tensor.floats(), ElementsAre(3));
}

TEST(ModelTest, ExportRefusesWhatDoesNotFit) {
  const auto model = Parse(kMlp);
  const std::vector<float> two = {1, 2};
  EXPECT_EQ(model->WithWeights({{"w", two}}).status().message(),
            "m: initializer 'w' is [4,3], but got 2 values");
  for (const char* name : {"v", "s", "x"}) {
    EXPECT_EQ(
        model->WithWeights({{name, two}}).status().message(),
        absl::StrCat("m: the model has no float32 initializer '", name, "'"));
  }
}

TEST(ModelTest, ExportedFilesPassOnnxOwnChecker) {
  const std::vector<float> w(8, 0.5f);
  const std::vector<float> b = {1, 2};
  for (const char* ir_version : {"3", "4", "8"}) {
    const auto model =
        Parse(absl::StrCat("<ir_version: ", ir_version,
                           ", opset_import: [\"\" : 13]>"
                           "g (float[N,4] x, float[4,2] w, float[2] b)"
                           " => (float[N,2] y) { y = Gemm(x, w, b) }"),
              {"?"});
    const auto bytes = model->WithWeights({{"w", w}, {"b", b}});
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    onnx::ModelProto proto;
    ASSERT_TRUE(proto.ParseFromString(*bytes));
    EXPECT_NO_THROW(onnx::checker::check_model(proto)) << ir_version;
    // An initializer that the job filled is no input any more, as far as ONNX
    // allows.
    EXPECT_EQ(proto.graph().input_size(), ir_version[0] == '3' ? 3 : 1);
  }
}

// --- ONNX's node tests ---

TEST(ModelTest, OnnxNodeTestsOfSupportedOperatorsParse) {
  const char* root = std::getenv("SYNCLINE_TEST_DATA");
  const std::filesystem::path folder =
      std::filesystem::path(root != nullptr ? root : "../shared/data") /
      "onnx/node";
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << "no ONNX node tests at " << folder;
  }
  int parsed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path() / "model.onnx", std::ios::binary);
    std::stringstream content;
    content << file.rdbuf();
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    const auto model = Model::Parse(content.str(), name);
    if (!model.ok()) {
      // Training operators import their own operator set only.
      EXPECT_THAT(std::string(model.status().message()),
                  testing::AnyOf(HasSubstr("the operator is not supported"),
                                 HasSubstr("operator set 0 times"),
                                 HasSubstr("element type")));
      continue;
    }
    ++parsed;
    const auto shapes = (*model)->InferShapes(Model::kAsWritten);
    // Its input without elements counts as one of open size.
    if (name == "test_reduce_sum_default_axes_keepdims_example") {
      EXPECT_FALSE(shapes.ok());
      continue;
    }
    ASSERT_TRUE(shapes.ok()) << shapes.status();
    for (size_t id = 0; id < shapes->size(); ++id) {
      EXPECT_EQ((*shapes)[id], (*model)->graph().values[id].dims);
      EXPECT_THAT((*shapes)[id], Each(testing::Ge(0)));
    }
  }
  EXPECT_GE(parsed, 89);
}

// A table is exported with its rows where they are given, else as an input.
TEST(ModelTest, ATableWithoutRowsIsAnInputOfTheExport) {
  constexpr char kText[] = R"(<ir_version: 8, opset_import: ["" : 13]>
      g (int64[N,2] ids, float[rows,2] open, float[3,2] declared) =>
        (float[N,2,2] y)
      <float[1,2] filled = {5, 6}>
      {
        a = Gather(open, ids)
        b = Gather(declared, ids)
        c = Gather(filled, ids)
        d = Add(a, b)
        y = Add(c, d)
      })";
  const std::vector<std::string> tables = {"open", "declared", "filled"};
  const auto model = Model::Parse(kText, "m", {}, tables);
  ASSERT_TRUE(model.ok()) << model.status();

  const auto bare = (*model)->WithWeights({}, tables);
  ASSERT_TRUE(bare.ok()) << bare.status();
  const auto inputs = Model::Parse(*bare, "bare", {}, tables);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  ASSERT_EQ((*inputs)->graph().initializers.size(), 3u);
  for (const Initializer& initializer : (*inputs)->graph().initializers) {
    EXPECT_EQ(initializer.origin, Initializer::Origin::kDeclared);
  }

  const std::vector<float> six = {1, 2, 3, 4, 5, 6};
  const std::vector<std::string> open = {"open"};
  const auto with = (*model)->WithWeights(
      {{"declared", six}, {"filled", absl::MakeSpan(six).first(2)}}, open);
  ASSERT_TRUE(with.ok()) << with.status();
  const auto full = Model::Parse(*with, "full", {}, tables);
  ASSERT_TRUE(full.ok()) << full.status();
  const Graph& graph = (*full)->graph();
  for (const char* name : {"declared", "filled"}) {
    const Initializer& rows =
        graph.initializers[graph.values[graph.FindValue(name)].initializer];
    EXPECT_EQ(rows.origin, Initializer::Origin::kFile);
    EXPECT_EQ(rows.tensor.floats()[1], 2.0f);
  }
  EXPECT_FALSE((*model)->WithWeights({{"open", six}}).ok());
}

TEST(ModelTest, ReleasedValuesMustBeGivenForExport) {
  const std::vector<float> hundred(100, 1.0f);
  const std::vector<float> one = {2};
  const auto declared = Parse(R"(<ir_version: 8, opset_import: ["" : 13]>
      g (float[N,1] x, float[1,100] w, float[1] b) => (float[N,100] y)
      { a = MatMul(x, w)  y = Add(a, b) })",
                              {"w", "b"});
  const auto file = declared->WithWeights({{"w", hundred}, {"b", one}});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto model = *Model::Parse(*file, "m");
  const Graph& graph = model->graph();
  ASSERT_EQ(graph.initializers.size(), 2u);

  model->ReleaseValues({0, 1});
  EXPECT_EQ(graph.initializers[0].tensor.bytes.capacity(),
            std::string().capacity());
  // A shape may depend on one that is small.
  EXPECT_THAT(graph.initializers[1].tensor.floats(), ElementsAre(2));
  EXPECT_EQ(DimsOf(*model, "w"), (Dims{1, 100}));
  EXPECT_TRUE(model->InferShapes(5).ok());
  EXPECT_EQ(model->WithWeights({}).status().message(),
            "m: no weights for 'w', whose values were released");
  EXPECT_EQ(*model->WithWeights({{"w", hundred}}), *file);
  const std::vector<std::string> open = {"w"};
  EXPECT_TRUE(model->WithWeights({}, open).ok());
}

}  // namespace
}  // namespace syncline
