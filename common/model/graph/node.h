#ifndef SYNCLINE_COMMON_MODEL_GRAPH_NODE_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_NODE_H_

// A node of graph.h with its attributes: an operator needs no more of a graph.

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/model/graph/tensor.h"

namespace syncline {

using Attribute =
    std::variant<int64_t, float, std::string, std::vector<int64_t>,
                 std::vector<float>, std::vector<std::string>, ConstantTensor>;

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an omitted optional input or output

struct Node {
  std::string name;       // never empty: "op_type#index" if the file has none
  std::string op_type;    // "Gemm"
  std::string domain;     // "" is ONNX's own
  int since_version = 0;  // the schema version the opset selects
  std::vector<ValueId> inputs;   // kNoValue where omitted
  std::vector<ValueId> outputs;  // kNoValue where omitted
  std::map<std::string, Attribute> attributes;
  bool is_fused = false;  // stands for several of the file's (fusion.h)

  // Attribute access with the operator's default.
  int64_t Int(absl::string_view name, int64_t fallback) const;
  float Float(absl::string_view name, float fallback) const;
  std::string String(absl::string_view name, absl::string_view fallback) const;
  std::vector<int64_t> Ints(absl::string_view name) const;
  bool Has(absl::string_view name) const;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_NODE_H_
