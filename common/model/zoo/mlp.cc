#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/zoo/graph_writer.h"
#include "common/model/zoo/zoo_models.h"

namespace syncline {

absl::StatusOr<std::string> WriteMlp(ZooSettings& settings) {
  const int64_t inputs = settings.Int("inputs", 784, 1, 1 << 20);
  const std::vector<int64_t> hidden =
      settings.Ints("hidden", {1024, 1024}, 1, kZooWidthMax);
  const int64_t classes = settings.Int("classes", 10, 1, kZooWidthMax);
  GraphWriter graph("mlp", kZooOpset, settings.Int("seed", 0, 0, INT64_MAX));
  SYNCLINE_RETURN_IF_ERROR(settings.Check());

  std::string x = graph.Input("x", {inputs});
  int64_t width = inputs;
  for (size_t i = 0; i < hidden.size(); ++i) {
    const std::string layer = absl::StrCat("fc", i + 1);
    x = graph.Node(layer, "Gemm",
                   {x, graph.He(layer + ".weight", {width, hidden[i]}, width),
                    graph.Filled(layer + ".bias", {hidden[i]}, 0)});
    x = graph.Node(absl::StrCat("relu", i + 1), "Relu", {x});
    width = hidden[i];
  }
  graph.Node("logits", "Gemm",
             {x, graph.He("logits.weight", {width, classes}, width),
              graph.Filled("logits.bias", {classes}, 0)});
  graph.Output("logits", {classes});
  return graph.Serialize();
}

}  // namespace syncline
