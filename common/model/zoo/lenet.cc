// In the manner of LeCun et al. 1998: convolution and pooling twice, then two
// layers.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/zoo/layers.h"
#include "common/model/zoo/zoo_models.h"

namespace syncline {

absl::StatusOr<std::string> WriteLenet(ZooSettings& settings) {
  const std::vector<int64_t> channels =
      settings.Ints("channels", {32, 64}, 1, 4096);
  const int64_t hidden = settings.Int("hidden", 128, 1, kZooWidthMax);
  const int64_t classes = settings.Int("classes", 10, 1, kZooWidthMax);
  GraphWriter graph("lenet", kZooOpset, settings.Int("seed", 0, 0, INT64_MAX));
  SYNCLINE_RETURN_IF_ERROR(settings.Check());

  constexpr int64_t kKernel = 5;
  const std::string image = graph.Input("image", {28, 28});
  std::string x = graph.Node("pixels", "Unsqueeze",
                             {image, graph.Integers("channel_axis", {1})});
  int64_t depth = 1;
  int64_t side = 28;
  for (size_t i = 0; i < channels.size() && side > 1; ++i, side /= 2) {
    const std::string layer = absl::StrCat("conv", i + 1);
    x = graph.Node(
        layer, "Conv",
        {x,
         graph.He(layer + ".weight", {channels[i], depth, kKernel, kKernel},
                  depth * kKernel * kKernel),
         graph.Filled(layer + ".bias", {channels[i]}, 0)},
        {{"pads", std::vector<int64_t>(4, kKernel / 2)}});
    x = graph.Node(absl::StrCat("relu", i + 1), "Relu", {x});
    x = graph.Node(absl::StrCat("pool", i + 1), "MaxPool", {x},
                   {{"kernel_shape", std::vector<int64_t>{2, 2}},
                    {"strides", std::vector<int64_t>{2, 2}}});
    depth = channels[i];
  }
  x = graph.Node("flat", "Flatten", {x});
  x = graph.Node("relu_fc", "Relu",
                 {Dense("fc", x, depth * side * side, hidden, &graph)});
  graph.Output(Dense("logits", x, hidden, classes, &graph), {classes});
  return graph.Serialize();
}

}  // namespace syncline
