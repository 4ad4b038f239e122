#include "common/base/status_macros.h"
#include "common/model/zoo/layers.h"
#include "common/model/zoo/zoo_models.h"

namespace syncline {

absl::StatusOr<std::string> WriteMlp(ZooSettings& settings) {
  int64_t width = settings.Int("inputs", 784, 1, 1 << 20);
  const std::vector<int64_t> hidden =
      settings.Ints("hidden", {1024, 1024}, 1, kZooWidthMax);
  const int64_t classes = settings.Int("classes", 10, 1, kZooWidthMax);
  GraphWriter graph("mlp", kZooOpset, settings.Int("seed", 0, 0, INT64_MAX));
  SYNCLINE_RETURN_IF_ERROR(settings.Check());

  const std::string x =
      DenseRelus("fc", graph.Input("x", {width}), hidden, &width, &graph);
  graph.Output(Dense("logits", x, width, classes, &graph), {classes});
  return graph.Serialize();
}

}  // namespace syncline
