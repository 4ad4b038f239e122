#include "common/model/zoo/transformer.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

constexpr float kNever = -1e9f;  // a score that softmax turns into 0

}  // namespace

TransformerShape ReadTransformerShape(const TransformerShape& defaults,
                                      ZooSettings* settings) {
  TransformerShape shape = defaults;
  shape.layers = settings->Int("layers", defaults.layers, 1, 1024);
  shape.width = settings->Int("width", defaults.width, 1, 65536);
  shape.heads = settings->Int("heads", defaults.heads, 1, 1024);
  shape.length = settings->Int("length", defaults.length, 1, 65536);
  shape.any_length = settings->SymbolicSequence();
  shape.vocabulary =
      settings->Int("vocabulary", defaults.vocabulary, 2, 1 << 20);
  shape.dropout = settings->Float("dropout", defaults.dropout, 0, 0.9f);
  shape.attention_operator =
      settings->Choice("attention", {"nodes", "operator"}) == "operator";
  if (shape.width % shape.heads != 0) {
    settings->Problem(absl::StrCat("width: ", shape.width,
                                   " is not a multiple of heads, which is ",
                                   shape.heads));
    shape.heads = 1;
  }
  return shape;
}

TransformerWriter::TransformerWriter(const TransformerShape& shape,
                                     GraphWriter* graph)
    : shape_(shape), graph_(graph) {
  if (shape.dropout > 0) ratio_ = graph->Scalar("dropout", shape.dropout);
  if (shape.attention_operator) return;
  const int64_t head = shape.width / shape.heads;
  scale_ = graph->Scalar("scale", 1 / std::sqrt(static_cast<float>(head)));
  // 0: as it was.
  const int64_t length = shape.any_length ? 0 : shape.length;
  to_heads_ = graph->Integers("to_heads", {0, length, shape.heads, head});
  to_width_ = graph->Integers("to_width", {0, length, shape.width});
}

std::string TransformerWriter::Embed(absl::string_view name, int64_t rows,
                                     const std::string& indices) {
  const std::string weight = graph_->Normal(absl::StrCat(name, ".weight"),
                                            {rows, shape_.width}, kDeviation);
  return graph_->Node(name, "Gather", {weight, indices});
}

std::string TransformerWriter::AddPositions(const std::string& x) {
  std::string rows = graph_->Normal("positions.weight",
                                    {shape_.length, shape_.width}, kDeviation);
  if (shape_.any_length) {
    length_ = graph_->Node("length", "Shape", {x},
                           {{"start", int64_t{1}}, {"end", int64_t{2}}});
    rows = graph_->Node("positions.first", "Slice",
                        {rows, graph_->Integers("begin", {0}), length_});
  }
  return graph_->Node("positions", "Add", {x, rows});
}

std::string TransformerWriter::Norm(absl::string_view name,
                                    const std::string& x) {
  return graph_->Node(
      name, "LayerNormalization",
      {x, graph_->Filled(absl::StrCat(name, ".weight"), {shape_.width}, 1),
       graph_->Filled(absl::StrCat(name, ".bias"), {shape_.width}, 0)});
}

std::string TransformerWriter::Dropout(absl::string_view name,
                                       const std::string& x) {
  return ratio_.empty() ? x : graph_->Node(name, "Dropout", {x, ratio_});
}

std::string TransformerWriter::Product(absl::string_view name,
                                       const std::string& x, int64_t inputs,
                                       int64_t width, float deviation) {
  const std::string weight =
      graph_->Normal(absl::StrCat(name, ".weight"), {inputs, width}, deviation);
  if (!shape_.biases) return graph_->Node(name, "MatMul", {x, weight});
  const std::string product =
      graph_->Node(absl::StrCat(name, ".product"), "MatMul", {x, weight});
  return graph_->Node(
      name, "Add",
      {product, graph_->Filled(absl::StrCat(name, ".bias"), {width}, 0)});
}

std::string TransformerWriter::CausalMask() {
  const std::string square =
      shape_.any_length
          ? graph_->Node("square", "Concat", {length_, length_},
                         {{"axis", int64_t{0}}})
          : graph_->Integers("square", {shape_.length, shape_.length});
  const std::string nevers = graph_->Node(
      "nevers", "Expand", {graph_->Scalar("never", kNever), square});
  return graph_->Node("causal", "Trilu",
                      {nevers, graph_->Node("above", "Constant", {},
                                            {{"value_int", int64_t{1}}})},
                      {{"upper", int64_t{1}}});
}

std::string TransformerWriter::Heads(const std::string& name,
                                     const std::string& x,
                                     const std::vector<int64_t>& order) {
  return graph_->Node(
      name, "Transpose",
      {graph_->Node(name + ".heads", "Reshape", {x, to_heads_})},
      {{"perm", order}});
}

std::string TransformerWriter::AttentionNodes(const std::string& layer,
                                              const std::string& q,
                                              const std::string& k,
                                              const std::string& v,
                                              const std::string& mask) {
  const std::string scaled =
      graph_->Node(layer + ".q_scaled", "Mul",
                   {Heads(layer + ".q_by_head", q, {0, 2, 1, 3}), scale_});
  std::string scores =
      graph_->Node(layer + ".scores", "MatMul",
                   {scaled, Heads(layer + ".k_by_head", k, {0, 2, 3, 1})});
  if (!mask.empty()) {
    scores = graph_->Node(layer + ".masked", "Add", {scores, mask});
  }
  const std::string mixed =
      graph_->Node(layer + ".mixed", "MatMul",
                   {graph_->Node(layer + ".weights", "Softmax", {scores},
                                 {{"axis", int64_t{-1}}}),
                    Heads(layer + ".v_by_head", v, {0, 2, 1, 3})});
  return graph_->Node(
      layer + ".attention", "Reshape",
      {graph_->Node(layer + ".mixed_by_position", "Transpose", {mixed},
                    {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}),
       to_width_});
}

std::string TransformerWriter::Attention(const std::string& layer,
                                         const std::string& qkv,
                                         const std::string& mask) {
  const std::string q = layer + ".q", k = layer + ".k", v = layer + ".v";
  graph_->Node(layer + ".split", "Split", {qkv}, {q, k, v},
               {{"axis", int64_t{2}}, {"num_outputs", int64_t{3}}});
  if (!shape_.attention_operator) return AttentionNodes(layer, q, k, v, mask);
  std::vector<std::string> inputs = {q, k, v};
  if (!mask.empty()) inputs.push_back(mask);
  return graph_->Node(layer + ".attention", "Attention", inputs,
                      {{"is_causal", int64_t{shape_.causal}},
                       {"q_num_heads", shape_.heads},
                       {"kv_num_heads", shape_.heads}});
}

// The weights of a layer that adds to the residual start smaller, by sqrt(2
// layers) (Radford et al. 2019).
std::string TransformerWriter::SelfAttention(const std::string& layer,
                                             const std::string& x,
                                             const std::string& mask) {
  const int64_t width = shape_.width;
  const std::string mixed =
      Attention(layer, Product(layer + ".qkv", x, width, 3 * width), mask);
  const float smaller = kDeviation / std::sqrt(2.0f * shape_.layers);
  return Dropout(layer + ".out.dropout",
                 Product(layer + ".out", mixed, width, width, smaller));
}

std::string TransformerWriter::FeedForward(const std::string& layer,
                                           const std::string& x) {
  const int64_t width = shape_.width;
  const std::string hidden = graph_->Node(
      layer + ".gelu", "Gelu", {Product(layer + ".up", x, width, 4 * width)});
  const float smaller = kDeviation / std::sqrt(2.0f * shape_.layers);
  return Dropout(layer + ".down.dropout",
                 Product(layer + ".down", hidden, 4 * width, width, smaller));
}

std::string TransformerWriter::Layers(std::string x, const std::string& mask) {
  // The operator masks what comes after by itself.
  const bool masks_causally = shape_.causal && !shape_.attention_operator;
  const std::string all = masks_causally ? CausalMask() : mask;
  for (int64_t i = 0; i < shape_.layers; ++i) {
    const std::string layer = absl::StrCat("h", i);
    const std::string norm1 = layer + ".norm1", norm2 = layer + ".norm2";
    const std::string sum1 = layer + ".sum1", sum2 = layer + ".sum2";
    if (shape_.norm_first) {
      x = graph_->Node(sum1, "Add",
                       {x, SelfAttention(layer, Norm(norm1, x), all)});
      x = graph_->Node(sum2, "Add", {x, FeedForward(layer, Norm(norm2, x))});
    } else {
      x = Norm(norm1,
               graph_->Node(sum1, "Add", {x, SelfAttention(layer, x, all)}));
      x = Norm(norm2, graph_->Node(sum2, "Add", {x, FeedForward(layer, x)}));
    }
  }
  return x;
}

}  // namespace syncline
