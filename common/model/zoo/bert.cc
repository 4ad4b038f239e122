// An encoder (Devlin et al., NAACL 2019): every position sees all others. Its
// head gives classes from the first position, or logits of the token at each.

#include "common/base/status_macros.h"
#include "common/model/zoo/transformer.h"
#include "common/model/zoo/zoo_models.h"

namespace syncline {
namespace {

// Attention leaves out positions that have the token `padding`.
std::string PaddingMask(const std::string& tokens, int64_t padding,
                        GraphWriter* graph) {
  const std::string is_padding = graph->Node(
      "is_padding", "Equal", {tokens, graph->Integers("padding", {padding})});
  const std::string as_number =
      graph->Node("is_padding.float", "Cast", {is_padding},
                  {{"to", int64_t{1}}});  // TensorProto.FLOAT
  const std::string never = graph->Node(
      "padding.never", "Mul", {as_number, graph->Scalar("never", -1e9f)});
  return graph->Node("padding.mask", "Unsqueeze",
                     {never, graph->Integers("for_heads", {1, 2})});
}

std::string ClassHead(const TransformerShape& shape, int64_t classes,
                      const std::string& x, TransformerWriter* writer,
                      GraphWriter* graph) {
  const std::string first =
      graph->Node("first", "Flatten",
                  {graph->Node("first.position", "Gather",
                               {x, graph->Integers("first.index", {0})},
                               {{"axis", int64_t{1}}})});
  const std::string pooled =
      graph->Node("pooler.tanh", "Tanh",
                  {writer->Product("pooler", first, shape.width, shape.width)});
  return writer->Product("logits", pooled, shape.width, classes);
}

std::string TokenHead(const TransformerShape& shape, const std::string& x,
                      TransformerWriter* writer, GraphWriter* graph) {
  const std::string transformed = writer->Norm(
      "head.norm",
      graph->Node("head.gelu", "Gelu",
                  {writer->Product("head", x, shape.width, shape.width)}));
  const std::string by_token =
      graph->Node("embedding.transposed", "Transpose", {"embedding.weight"},
                  {{"perm", std::vector<int64_t>{1, 0}}});
  return graph->Node(
      "logits", "Add",
      {graph->Node("logits.product", "MatMul", {transformed, by_token}),
       graph->Filled("logits.bias", {shape.vocabulary}, 0)});
}

}  // namespace

absl::StatusOr<std::string> WriteBert(ZooSettings& settings) {
  TransformerShape shape = ReadTransformerShape({.layers = 4,
                                                 .width = 128,
                                                 .heads = 4,
                                                 .length = 64,
                                                 .vocabulary = 256,
                                                 .biases = true},
                                                &settings);
  shape.norm_first = settings.Choice("norm", {"post", "pre"}) == "pre";
  const bool gives_classes =
      settings.Choice("head", {"classes", "tokens"}) == "classes";
  const int64_t classes = settings.Int("classes", 2, 2, kZooWidthMax);
  const int64_t types = settings.Int("types", 0, 0, 1024);
  const int64_t padding = settings.Int("padding", -1, -1, 1 << 20);
  GraphWriter graph("bert", shape.opset(),
                    settings.Int("seed", 0, 0, INT64_MAX));
  SYNCLINE_RETURN_IF_ERROR(settings.Check());

  TransformerWriter writer(shape, &graph);
  const std::string tokens =
      graph.Input("tokens", {shape.sequence()}, DType::kInt64);
  std::string x =
      writer.AddPositions(writer.Embed("embedding", shape.vocabulary, tokens));
  if (types > 0) {
    const std::string kinds =
        graph.Input("token_types", {shape.sequence()}, DType::kInt64);
    x = graph.Node("typed", "Add", {x, writer.Embed("types", types, kinds)});
  }
  x = writer.Dropout("embedding.dropout", writer.Norm("embedding.norm", x));
  const std::string mask =
      padding < 0 ? "" : PaddingMask(tokens, padding, &graph);
  x = writer.Layers(x, mask);
  if (shape.norm_first) x = writer.Norm("norm", x);
  if (gives_classes) {
    graph.Output(ClassHead(shape, classes, x, &writer, &graph), {classes});
  } else {
    graph.Output(TokenHead(shape, x, &writer, &graph),
                 {shape.sequence(), shape.vocabulary});
  }
  return graph.Serialize();
}

}  // namespace syncline
