// Graves 2013: layers of long short-term memory over the embeddings of tokens,
// and from each position's state the logits of what follows. The bias of the
// gate that forgets starts with 1, so that states last (Jozefowicz et al., ICML
// 2015).

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/zoo/graph_writer.h"
#include "common/model/zoo/zoo_models.h"

namespace syncline {
namespace {

// Normal with a variance of 1 / fan_in, which keeps that of the sums.
std::string Scaled(GraphWriter* graph, const std::string& name,
                   const Dims& dims, int64_t fan_in) {
  return graph->Normal(name, dims,
                       1.0f / std::sqrt(static_cast<float>(fan_in)));
}

// x [length, N, width] to [length, N, hidden].
std::string Layer(GraphWriter* graph, const std::string& name,
                  const std::string& x, int64_t width, int64_t hidden,
                  float forget_bias) {
  // Of the input's and then the state's sums: input, output, forget, cell.
  const std::vector<float> biases = {0, 0, forget_bias, 0, 0, 0, 0, 0};
  const std::string states = graph->Node(
      name + ".states", "LSTM",
      {x, Scaled(graph, name + ".input_weight", {1, 4 * hidden, width}, width),
       Scaled(graph, name + ".state_weight", {1, 4 * hidden, hidden}, hidden),
       graph->FilledInParts(name + ".bias", {1, 8 * hidden}, biases)},
      {{"hidden_size", hidden}});
  return graph->Node(name, "Squeeze",
                     {states, graph->Integers(name + ".direction", {1})});
}

}  // namespace

absl::StatusOr<std::string> WriteLstm(ZooSettings& settings) {
  const int64_t vocabulary = settings.Int("vocabulary", 256, 2, 1 << 20);
  const int64_t length = settings.Int("length", 64, 1, 1 << 16);
  const int64_t embedded = settings.Int("width", 128, 1, kZooWidthMax);
  const int64_t hidden = settings.Int("hidden", 256, 1, kZooWidthMax);
  const int64_t layers = settings.Int("layers", 2, 1, 64);
  const int64_t sequence =
      settings.SymbolicSequence() ? GraphWriter::kSequence : length;
  const float forget_bias = settings.Float("forget_bias", 1, -100, 100);
  GraphWriter graph("lstm", kZooOpset, settings.Int("seed", 0, 0, INT64_MAX));
  SYNCLINE_RETURN_IF_ERROR(settings.Check());

  const std::string tokens = graph.Input("tokens", {sequence}, DType::kInt64);
  std::string x = graph.Node(
      "embedding", "Gather",
      {graph.Normal("embedding.weight", {vocabulary, embedded}, 1), tokens});
  const std::map<std::string, Attribute> swap = {
      {"perm", std::vector<int64_t>{1, 0, 2}}};
  x = graph.Node("by_time", "Transpose", {x}, swap);
  int64_t width = embedded;
  for (int64_t i = 1; i <= layers; ++i, width = hidden) {
    x = Layer(&graph, absl::StrCat("lstm", i), x, width, hidden, forget_bias);
  }
  x = graph.Node("by_sample", "Transpose", {x}, swap);
  x = graph.Node(
      "scores", "MatMul",
      {x, Scaled(&graph, "logits.weight", {hidden, vocabulary}, hidden)});
  graph.Node("logits", "Add",
             {x, graph.Filled("logits.bias", {vocabulary}, 0)});
  graph.Output("logits", {sequence, vocabulary});
  return graph.Serialize();
}

}  // namespace syncline
