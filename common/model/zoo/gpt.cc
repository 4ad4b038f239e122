// Radford et al. 2019, as nanoGPT has it: normalisation before each part, GELU,
// learned positions, no biases in products, the embedding also makes the
// logits.

#include "common/base/status_macros.h"
#include "common/model/zoo/transformer.h"
#include "common/model/zoo/zoo_models.h"

namespace syncline {

absl::StatusOr<std::string> WriteGpt(ZooSettings& settings) {
  const TransformerShape shape = ReadTransformerShape({.layers = 4,
                                                       .width = 128,
                                                       .heads = 4,
                                                       .length = 64,
                                                       .vocabulary = 256,
                                                       .norm_first = true,
                                                       .causal = true},
                                                      &settings);
  GraphWriter graph("gpt", shape.opset(),
                    settings.Int("seed", 0, 0, INT64_MAX));
  SYNCLINE_RETURN_IF_ERROR(settings.Check());

  TransformerWriter writer(shape, &graph);
  const std::string tokens =
      graph.Input("tokens", {shape.sequence()}, DType::kInt64);
  std::string x =
      writer.AddPositions(writer.Embed("embedding", shape.vocabulary, tokens));
  x = writer.Layers(writer.Dropout("embedding.dropout", x), /*mask=*/"");
  const std::string by_token =
      graph.Node("embedding.transposed", "Transpose", {"embedding.weight"},
                 {{"perm", std::vector<int64_t>{1, 0}}});
  graph.Output(
      graph.Node("logits", "MatMul", {writer.Norm("norm", x), by_token}),
      {shape.sequence(), shape.vocabulary});
  return graph.Serialize();
}

}  // namespace syncline
