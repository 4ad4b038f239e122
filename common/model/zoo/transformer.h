#ifndef SYNCLINE_COMMON_MODEL_ZOO_TRANSFORMER_H_
#define SYNCLINE_COMMON_MODEL_ZOO_TRANSFORMER_H_

// The part that language models of the zoo share (Vaswani et al., NIPS 2017).
// Internal to this folder.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/model/zoo/graph_writer.h"
#include "common/model/zoo/zoo_settings.h"

namespace syncline {

// The oldest that has Gelu, and the oldest that has Attention.
inline constexpr int kGeluOpset = 20;
inline constexpr int kAttentionOpset = 23;

struct TransformerShape {
  int64_t layers = 0, width = 0, heads = 0, length = 0, vocabulary = 0;
  // Of embeddings and of what is added to the residual, in training.
  float dropout = 0;
  // Attention as one operator, which fewer programs know.
  bool attention_operator = false;

  // The length is at most `length`, and a dimension that stays open.
  bool any_length = false;

  // The model's own:
  bool biases = false;      // in products
  bool norm_first = false;  // before each part, else after its sum
  bool causal = false;      // a position sees itself and what came before

  // Of inputs and outputs.
  int64_t sequence() const {
    return any_length ? GraphWriter::kSequence : length;
  }
  int opset() const {
    return attention_operator ? kAttentionOpset : kGeluOpset;
  }
};

// The settings that are in all of them, with these defaults.
TransformerShape ReadTransformerShape(const TransformerShape& defaults,
                                      ZooSettings* settings);

// Writes values [N, length, width]. Borrows the graph. Thread-compatible.
class TransformerWriter {
 public:
  // Of initial weights.
  static constexpr float kDeviation = 0.02f;

  TransformerWriter(const TransformerShape& shape, GraphWriter* graph);

  // Rows of NAME.weight [rows, width], by index.
  std::string Embed(absl::string_view name, int64_t rows,
                    const std::string& indices);
  // x plus a row of its own for each position. Call it before Layers.
  std::string AddPositions(const std::string& x);
  std::string Norm(absl::string_view name, const std::string& x);
  // Nothing where there is no dropout.
  std::string Dropout(absl::string_view name, const std::string& x);
  // To `width` from `inputs`, with a bias where the shape says so.
  std::string Product(absl::string_view name, const std::string& x,
                      int64_t inputs, int64_t width,
                      float deviation = kDeviation);
  // All layers. `mask` is added to what attention weighs by, float32 that
  // broadcasts to [N, heads, length, length]; empty: none.
  std::string Layers(std::string x, const std::string& mask);

 private:
  std::string Attention(const std::string& layer, const std::string& qkv,
                        const std::string& mask);
  std::string AttentionNodes(const std::string& layer, const std::string& q,
                             const std::string& k, const std::string& v,
                             const std::string& mask);
  std::string Heads(const std::string& name, const std::string& x,
                    const std::vector<int64_t>& order);
  // The mask that attention adds so that no position sees those after it.
  std::string CausalMask();
  std::string SelfAttention(const std::string& layer, const std::string& x,
                            const std::string& mask);
  std::string FeedForward(const std::string& layer, const std::string& x);

  const TransformerShape shape_;
  GraphWriter* const graph_;
  std::string to_heads_, to_width_, scale_, ratio_;  // as they are needed
  std::string length_;  // [1], of an x of any length
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_ZOO_TRANSFORMER_H_
