// He et al., CVPR 2016, with the stride of a bottleneck in its 3x3 convolution,
// as torchvision has it, whose names these are. The stem for small images is
// that of the paper's section 4.2.

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/model/zoo/graph_writer.h"
#include "common/model/zoo/zoo_models.h"

namespace syncline {
namespace {

struct Stages {
  absl::Span<const int> blocks;  // of each stage
  int64_t expansion;  // channels of a block's output to its width; 1: basic
};

class ResnetWriter {
 public:
  ResnetWriter(GraphWriter* graph, int64_t channels)
      : graph_(*graph), depth_(channels) {}

  std::string Stem(bool small_images, const std::string& image, int64_t width) {
    const int64_t kernel = small_images ? 3 : 7;
    const std::string x =
        Normalised("conv1", "bn1", image, width, kernel, small_images ? 1 : 2);
    const std::string y = graph_.Node("relu", "Relu", {x});
    if (small_images) return y;
    return graph_.Node("maxpool", "MaxPool", {y},
                       {{"kernel_shape", std::vector<int64_t>{3, 3}},
                        {"strides", std::vector<int64_t>{2, 2}},
                        {"pads", std::vector<int64_t>(4, 1)}});
  }

  // y = Relu(x + f(x)), where x goes through a convolution of its own if its
  // shape changes.
  std::string Block(const std::string& name, const std::string& x,
                    int64_t width, int64_t expansion, int64_t stride) {
    const int64_t depth = depth_;
    std::string y = x;
    const auto layer = [&](int i, int64_t outputs, int64_t kernel,
                           int64_t step) {
      y = Normalised(absl::StrCat(name, ".conv", i),
                     absl::StrCat(name, ".bn", i), y, outputs, kernel, step);
    };
    const auto relu = [&](int i) {
      y = graph_.Node(absl::StrCat(name, ".relu", i), "Relu", {y});
    };
    if (expansion == 1) {
      layer(1, width, 3, stride);
      relu(1);
      layer(2, width, 3, 1);
    } else {
      layer(1, width, 1, 1);
      relu(1);
      layer(2, width, 3, stride);
      relu(2);
      layer(3, width * expansion, 1, 1);
    }
    std::string shortcut = x;
    if (stride != 1 || depth != depth_) {
      depth_ = depth;
      shortcut = Normalised(name + ".downsample.0", name + ".downsample.1", x,
                            width * expansion, 1, stride);
    }
    const std::string sum = graph_.Node(name + ".sum", "Add", {y, shortcut});
    return graph_.Node(name + ".out", "Relu", {sum});
  }

  void Head(const std::string& x, int64_t classes) {
    const std::string pooled = graph_.Node("avgpool", "GlobalAveragePool", {x});
    const std::string flat = graph_.Node("features", "Flatten", {pooled});
    graph_.Node("logits", "Gemm",
                {flat, graph_.Normal("fc.weight", {depth_, classes}, 0.01f),
                 graph_.Filled("fc.bias", {classes}, 0)});
    graph_.Output("logits", {classes});
  }

 private:
  // A convolution without bias, and a batch normalisation.
  std::string Normalised(const std::string& conv, const std::string& norm,
                         const std::string& x, int64_t outputs, int64_t kernel,
                         int64_t stride) {
    const std::string weight =
        graph_.He(conv + ".weight", {outputs, depth_, kernel, kernel},
                  depth_ * kernel * kernel);
    depth_ = outputs;
    const std::string y =
        graph_.Node(conv, "Conv", {x, weight},
                    {{"strides", std::vector<int64_t>(2, stride)},
                     {"pads", std::vector<int64_t>(4, kernel / 2)}});
    return graph_.Node(norm, "BatchNormalization",
                       {y, graph_.Filled(norm + ".weight", {outputs}, 1),
                        graph_.Filled(norm + ".bias", {outputs}, 0),
                        graph_.Filled(norm + ".running_mean", {outputs}, 0),
                        graph_.Filled(norm + ".running_var", {outputs}, 1)});
  }

  GraphWriter& graph_;
  int64_t depth_;  // channels of what comes next
};

absl::StatusOr<std::string> WriteResnet(absl::string_view name,
                                        const Stages& stages,
                                        ZooSettings& settings) {
  const bool small_images =
      settings.Choice("stem", {"imagenet", "cifar"}) == "cifar";
  const int64_t side = settings.Int("side", small_images ? 32 : 224, 8, 4096);
  const int64_t channels = settings.Int("channels", 3, 1, 4096);
  const int64_t width = settings.Int("width", 64, 1, 4096);
  const int64_t classes =
      settings.Int("classes", small_images ? 10 : 1000, 1, kZooWidthMax);
  GraphWriter graph(name, kZooOpset, settings.Int("seed", 0, 0, INT64_MAX));
  SYNCLINE_RETURN_IF_ERROR(settings.Check());

  ResnetWriter writer(&graph, channels);
  std::string x = graph.Input("image", {channels, side, side});
  x = writer.Stem(small_images, x, width);
  for (size_t stage = 0; stage < stages.blocks.size(); ++stage) {
    for (int block = 0; block < stages.blocks[stage]; ++block) {
      x = writer.Block(absl::StrCat("layer", stage + 1, ".", block), x,
                       width << stage, stages.expansion,
                       stage > 0 && block == 0 ? 2 : 1);
    }
  }
  writer.Head(x, classes);
  return graph.Serialize();
}

}  // namespace

absl::StatusOr<std::string> WriteResnet18(ZooSettings& settings) {
  constexpr int kBlocks[] = {2, 2, 2, 2};
  return WriteResnet("resnet18", {kBlocks, /*expansion=*/1}, settings);
}

absl::StatusOr<std::string> WriteResnet50(ZooSettings& settings) {
  constexpr int kBlocks[] = {3, 4, 6, 3};
  return WriteResnet("resnet50", {kBlocks, /*expansion=*/4}, settings);
}

}  // namespace syncline
