// Goal: operators mean what ONNX says they mean. Method: ONNX's own node tests,
// each a model with inputs and outputs: every one whose operators, opset and
// types are ours is parsed, run forward and compared. A case that is refused,
// or differs, is listed with its reason in tests/README.md, and nothing else
// is. A case without a float32 output may be refused: nothing learns from it.
// Tests with random outputs are compared as far as they are determined.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/aligned_buffer.h"
#include "common/base/status_macros.h"
#include "common/model/graph/operator_list.h"
#include "tests/testing/onnx_node_case.h"
#include "tests/testing/op_device.h"
#include "worker/ops/op_table.h"

namespace syncline {
namespace {

using testing::KnownInputs;
using testing::OnnxNodeCase;

// The suite as ONNX's package has it (deploy/install-deps.sh).
std::vector<std::filesystem::path> PackageFolders() {
  std::vector<std::filesystem::path> folders;
  std::error_code none;
  for (const auto& python :
       std::filesystem::directory_iterator("build/python/lib", none)) {
    folders.push_back(python.path() /
                      "site-packages/onnx/backend/test/data/node");
  }
  std::erase_if(folders, [](const auto& f) { return !exists(f); });
  return folders;
}

// The package's folders, and the folder of older opsets among the data sets,
// which needs no package.
std::vector<std::filesystem::path> Folders() {
  std::vector<std::filesystem::path> folders = PackageFolders();
  const char* root = std::getenv("SYNCLINE_TEST_DATA");
  folders.push_back(
      std::filesystem::path(root != nullptr ? root : "../shared/data") /
      "onnx/node");
  if (!exists(folders.back())) folders.pop_back();
  return folders;
}

std::vector<std::string> AllCases() {
  std::vector<std::string> cases;
  for (const auto& folder : Folders()) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      cases.push_back(entry.path().string());
    }
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

std::string NameOf(const std::string& folder) {
  return std::filesystem::path(folder).filename().string();
}

// A model with a value for everything, computed node by node.
class NodeTest {
 public:
  NodeTest(const OnnxNodeCase& test, bool training)
      : test_(test), training_(training), graph_((*test.model)->graph()) {}

  absl::Status Run() {
    SYNCLINE_ASSIGN_OR_RETURN(const Model::Inference known,
                              (*test_.model)->Infer(Model::kAsWritten));
    shapes_ = known.dims;
    values_.resize(graph_.values.size());
    for (size_t i = 0; i < values_.size(); ++i) {
      if (known.constants[i] != nullptr) values_[i] = *known.constants[i];
    }
    for (const Initializer& i : graph_.initializers) {
      values_[i.value] = i.tensor;
    }
    for (const ValueId id : graph_.inputs) {
      values_[id] = test_.inputs.at(graph_.values[id].name);
    }
    for (const Node& node : graph_.nodes) {
      if (!IsKnown(node)) SYNCLINE_RETURN_IF_ERROR(RunNode(node));
    }
    return absl::OkStatus();
  }

  size_t output_count() const { return graph_.outputs.size(); }
  const ConstantTensor& output(size_t i) const {
    return values_[graph_.outputs[i]];
  }

 private:
  bool IsKnown(const Node& node) const {
    const ValueId first = node.outputs[0];
    return first != kNoValue && graph_.values[first].folded;
  }

  worker::TensorType TypeOf(ValueId v) const {
    if (v == kNoValue) return {};
    return {.present = true,
            .dtype = graph_.values[v].dtype,
            .dims = shapes_[v],
            .constant = values_[v].bytes.data()};
  }

  absl::Status RunNode(const Node& node) {
    worker::OpSpec spec = testing::HostSpec();
    spec.node = &node;
    spec.training = training_;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (ValueId v : node.inputs) {
      spec.inputs.push_back(TypeOf(v));
      inputs.push_back(v == kNoValue ? nullptr : values_[v].bytes.data());
    }
    if (node.op_type == "BatchNormalization") {
      // In these models nothing is an initializer: the values are not frozen.
      for (worker::TensorType& input : spec.inputs) input.constant = nullptr;
    }
    for (ValueId v : node.outputs) {
      spec.outputs.push_back(TypeOf(v));
      outputs.push_back(v == kNoValue ? nullptr : Allocate(v));
    }
    SYNCLINE_ASSIGN_OR_RETURN(const auto op, worker::CreateOp(spec));
    const worker::Op::Traits& traits = op->traits();
    AlignedFloats workspace(traits.workspace_bytes / sizeof(float) + 1);
    AlignedFloats scratch(traits.forward_scratch_bytes / sizeof(float) + 1);
    return testing::RunForward(*op, {.inputs = inputs,
                                     .outputs = outputs,
                                     .workspace = workspace.data(),
                                     .scratch = scratch.data()});
  }

  void* Allocate(ValueId v) {
    ConstantTensor& value = values_[v];
    value.dtype = graph_.values[v].dtype;
    value.dims = shapes_[v];
    value.bytes.assign(ElementCount(value.dims) * DTypeBytes(value.dtype), '?');
    return value.bytes.data();
  }

  const OnnxNodeCase& test_;
  const bool training_;
  const Graph& graph_;
  std::vector<Dims> shapes_;
  std::vector<ConstantTensor> values_;  // by ValueId
};

template <typename T>
absl::Status CompareElements(const ConstantTensor& got,
                             const ConstantTensor& want, double tolerance) {
  const auto* const g = reinterpret_cast<const T*>(got.bytes.data());
  const auto* const w = reinterpret_cast<const T*>(want.bytes.data());
  for (size_t i = 0; i < want.bytes.size() / sizeof(T); ++i) {
    const bool same =
        g[i] == w[i] || (std::isnan(g[i]) && std::isnan(w[i])) ||
        std::fabs(g[i] - w[i]) <=
            tolerance * std::max(1.0, std::fabs(static_cast<double>(w[i])));
    if (same) continue;
    return absl::InternalError(
        absl::StrCat("element ", i, " is ", g[i], ", not ", w[i]));
  }
  return absl::OkStatus();
}

absl::Status Compare(const ConstantTensor& got, const ConstantTensor& want) {
  if (got.dtype != want.dtype || got.dims != want.dims) {
    return absl::InternalError(
        absl::StrCat("it is ", DTypeName(got.dtype), DimsToString(got.dims),
                     ", not ", DTypeName(want.dtype), DimsToString(want.dims)));
  }
  if (got.dtype == DType::kFloat64) {
    return CompareElements<double>(got, want, 1e-9);
  }
  if (got.dtype == DType::kFloat32) {
    return CompareElements<float>(got, want, 1e-4);  // some have four digits
  }
  if (got.bytes == want.bytes) return absl::OkStatus();
  return absl::InternalError("its elements differ");
}

// Checks the known facts of a random Dropout: each element is 0 or scaled up,
// and a mask says which.
absl::Status CheckDropped(const OnnxNodeCase& test, const NodeTest& run) {
  const float ratio = test.inputs.at("r").floats()[0];
  const auto x = test.inputs.at("x").floats();
  const auto y = run.output(0).floats();
  for (size_t i = 0; i < y.size(); ++i) {
    const bool kept = y[i] != 0;
    const bool scaled = std::fabs(y[i] - x[i] / (1 - ratio)) < 1e-5f;
    const bool masked =
        run.output_count() < 2 || run.output(1).bytes[i] == (kept ? 1 : 0);
    if ((scaled || !kept) && masked) continue;
    return absl::InternalError(absl::StrCat("element ", i, " is ", y[i]));
  }
  return absl::OkStatus();
}

// Dropout's masks are drawn.
bool IsRandom(const std::string& name) {
  return absl::StartsWith(name, "test_training_dropout") &&
         !absl::StrContains(name, "zero_ratio");
}

absl::Status RunCase(const std::string& name, const OnnxNodeCase& test) {
  SYNCLINE_RETURN_IF_ERROR(test.model.status());
  NodeTest run(test, absl::StrContains(name, "training"));
  SYNCLINE_RETURN_IF_ERROR(run.Run());
  if (IsRandom(name)) return CheckDropped(test, run);
  for (size_t i = 0; i < run.output_count(); ++i) {
    SYNCLINE_RETURN_IF_ERROR(Annotate(Compare(run.output(i), test.outputs[i]),
                                      absl::StrCat("output ", i)));
  }
  return absl::OkStatus();
}

bool GivesFloats(const OnnxNodeCase& test) {
  return std::any_of(
      test.outputs.begin(), test.outputs.end(),
      [](const ConstantTensor& y) { return y.dtype == DType::kFloat32; });
}

// As it is fed; where that is refused, with inputs as a user's file has them.
// Unimplemented: it need not pass. Adds to `operators` those
// of its nodes.
absl::Status RunCase(const std::string& folder,
                     std::set<std::string>* operators) {
  absl::Status refusal;
  bool gives_floats = false;
  for (const KnownInputs known : {KnownInputs::kNone, KnownInputs::kIntegers,
                                  KnownInputs::kWeights, KnownInputs::kAll}) {
    SYNCLINE_ASSIGN_OR_RETURN(const OnnxNodeCase test,
                              testing::ReadOnnxNodeCase(folder, known));
    absl::Status status = RunCase(NameOf(folder), test);
    if (status.ok()) {
      for (const Node& node : (*test.model)->graph().nodes) {
        operators->insert(node.op_type);
      }
    }
    if (!absl::IsInvalidArgument(status)) return status;
    if (refusal.ok()) refusal = std::move(status);
    gives_floats = GivesFloats(test);
  }
  return gives_floats ? refusal : absl::UnimplementedError(refusal.message());
}

// The first cells of a table's rows in tests/README.md.
std::set<std::string> Listed() {
  std::ifstream readme("tests/README.md");
  std::set<std::string> names;
  for (std::string line; std::getline(readme, line);) {
    absl::string_view name = line;
    if (!absl::ConsumePrefix(&name, "| `test_")) continue;
    names.insert(absl::StrCat("test_", name.substr(0, name.find('`'))));
  }
  return names;
}

TEST(OnnxNodeTest, EveryCaseOfOurOperatorsPassesOrIsListed) {
  const std::vector<std::string> cases = AllCases();
  if (cases.empty()) GTEST_SKIP() << "no ONNX node tests";
  const std::set<std::string> listed = Listed();
  std::set<std::string> unused = listed, operators;
  int passed = 0;
  for (const std::string& folder : cases) {
    const absl::Status status = RunCase(folder, &operators);
    if (absl::IsUnimplemented(status)) continue;
    const std::string name = NameOf(folder);
    unused.erase(name);
    passed += status.ok();
    if (listed.count(name) == 0) {
      EXPECT_TRUE(status.ok()) << folder << ": " << status;
    } else {
      EXPECT_FALSE(status.ok()) << folder << " passes, but is listed";
    }
  }
  std::cout << passed << " cases passed\n";
  if (PackageFolders().empty()) return;
  // So that neither the list nor the suite can go out of date unnoticed.
  EXPECT_THAT(unused, ::testing::IsEmpty());
  // Operators whose cases are of opset 7 or 9.
  operators.insert({"And", "Not", "Shrink", "Xor"});
  for (const std::string& op : SupportedOperators()) {
    EXPECT_EQ(operators.count(op), 1u) << "no case of " << op << " passes";
  }
}

}  // namespace
}  // namespace syncline
