#include "common/model/zoo/layers.h"

#include "absl/strings/str_cat.h"

namespace syncline {

std::string Dense(absl::string_view name, const std::string& x, int64_t inputs,
                  int64_t outputs, GraphWriter* graph) {
  return graph->Node(
      name, "Gemm",
      {x, graph->He(absl::StrCat(name, ".weight"), {inputs, outputs}, inputs),
       graph->Filled(absl::StrCat(name, ".bias"), {outputs}, 0)});
}

std::string DenseRelus(absl::string_view name, std::string x,
                       const std::vector<int64_t>& widths, int64_t* width,
                       GraphWriter* graph) {
  for (size_t i = 0; i < widths.size(); ++i) {
    const std::string layer = absl::StrCat(name, i + 1);
    x = graph->Node(absl::StrCat(layer, ".relu"), "Relu",
                    {Dense(layer, x, *width, widths[i], graph)});
    *width = widths[i];
  }
  return x;
}

}  // namespace syncline
