// Models of whether an ad is clicked: a logit from numbers and categories.

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/zoo/click_features.h"
#include "common/model/zoo/layers.h"
#include "common/model/zoo/zoo_models.h"

namespace syncline {
namespace {

// The numbers beside the flattened embeddings, through a perceptron to a logit.
std::string DeepLogit(const ClickFeatures& features, const std::string& rows,
                      int64_t dim, const std::vector<int64_t>& hidden,
                      GraphWriter* graph) {
  int64_t width = features.dense() + features.categories() * dim;
  const std::string input = graph->Node(
      "deep.input", "Concat",
      {features.dense_input(), graph->Node("deep.flat", "Flatten", {rows})},
      {{"axis", int64_t{1}}});
  const std::string x = DenseRelus("fc", input, hidden, &width, graph);
  return Dense("deep.logit", x, width, 1, graph);
}

// Half of the square of the sum minus the sum of the squares: the inner
// products of all pairs (Rendle, ICDM 2010).
std::string PairLogit(const std::string& rows, GraphWriter* graph) {
  const std::string sum = SumOfRows("sum", rows, graph);
  const std::string square = graph->Node("sum.square", "Mul", {sum, sum});
  const std::string squares = SumOfRows(
      "squares.sum", graph->Node("squares", "Mul", {rows, rows}), graph);
  const std::string products =
      graph->Node("pairs.sum", "ReduceSum",
                  {graph->Node("pairs", "Sub", {square, squares}),
                   graph->Integers("elements", {1})});
  return graph->Node("pairs.logit", "Mul",
                     {products, graph->Scalar("half", 0.5f)});
}

// The inner products of all pairs of vectors [N, vectors, dim], each once:
// [N, vectors (vectors - 1) / 2].
std::string PairProducts(const std::string& all, int64_t vectors,
                         GraphWriter* graph) {
  const std::string products = graph->Node(
      "products", "MatMul",
      {all, graph->Node("all.transposed", "Transpose", {all},
                        {{"perm", std::vector<int64_t>{0, 2, 1}}})});
  std::vector<int64_t> below_diagonal;
  for (int64_t i = 0; i < vectors; ++i) {
    for (int64_t j = 0; j < i; ++j) below_diagonal.push_back(i * vectors + j);
  }
  return graph->Node("interactions", "Gather",
                     {graph->Node("products.flat", "Flatten", {products}),
                      graph->Integers("pairs", below_diagonal)},
                     {{"axis", int64_t{1}}});
}

}  // namespace

// Cheng et al., DLRS 2016: a logistic regression on the categories, which
// remembers, beside a perceptron, which generalises.
absl::StatusOr<std::string> WriteWideAndDeep(ZooSettings& settings) {
  ClickFeatures features(&settings);
  const int64_t dim = settings.Int("dim", 8, 1, 4096);
  const std::vector<int64_t> hidden =
      settings.Ints("hidden", {64, 32}, 1, kZooWidthMax);
  features.CheckSize(dim + 1, &settings);
  GraphWriter graph("wide_and_deep", kZooOpset,
                    settings.Int("seed", 0, 0, INT64_MAX));
  SYNCLINE_RETURN_IF_ERROR(settings.Check());

  features.WriteInputs(&graph);
  const std::string wide =
      SumOfRows("wide.logit", features.Rows("wide", 1, &graph), &graph);
  const std::string deep = DeepLogit(
      features, features.Rows("deep", dim, &graph), dim, hidden, &graph);
  graph.Output(graph.Node("logit", "Add", {wide, deep}), {1});
  return graph.Serialize();
}

// Guo et al., IJCAI 2017: a factorisation machine and a perceptron on the same
// embeddings.
absl::StatusOr<std::string> WriteDeepFm(ZooSettings& settings) {
  ClickFeatures features(&settings);
  const int64_t dim = settings.Int("dim", 8, 1, 4096);
  const std::vector<int64_t> hidden =
      settings.Ints("hidden", {64, 32}, 1, kZooWidthMax);
  features.CheckSize(dim + 1, &settings);
  GraphWriter graph("deepfm", kZooOpset, settings.Int("seed", 0, 0, INT64_MAX));
  SYNCLINE_RETURN_IF_ERROR(settings.Check());

  features.WriteInputs(&graph);
  const std::string rows = features.Rows("embedding", dim, &graph);
  const std::string linear =
      SumOfRows("linear.logit", features.Rows("linear", 1, &graph), &graph);
  const std::string machine =
      graph.Node("machine", "Add", {linear, PairLogit(rows, &graph)});
  const std::string deep = DeepLogit(features, rows, dim, hidden, &graph);
  graph.Output(graph.Node("logit", "Add", {machine, deep}), {1});
  return graph.Serialize();
}

// Naumov et al. 2019: the numbers become one more embedding, and the inner
// products of all pairs go, with it, into a perceptron. Unlike there, so does
// the sum of the embeddings: what a single value says then need not be learned
// through a product.
absl::StatusOr<std::string> WriteDlrm(ZooSettings& settings) {
  ClickFeatures features(&settings);
  const int64_t dim = settings.Int("dim", 8, 1, 4096);
  std::vector<int64_t> bottom_widths =
      settings.Ints("bottom", {32}, 1, kZooWidthMax);
  const std::vector<int64_t> top_widths =
      settings.Ints("top", {64}, 1, kZooWidthMax);
  features.CheckSize(dim, &settings);
  GraphWriter graph("dlrm", kZooOpset, settings.Int("seed", 0, 0, INT64_MAX));
  SYNCLINE_RETURN_IF_ERROR(settings.Check());

  features.WriteInputs(&graph);
  bottom_widths.push_back(dim);
  int64_t width = features.dense();
  const std::string bottom = DenseRelus("bottom", features.dense_input(),
                                        bottom_widths, &width, &graph);
  const std::string rows = features.Rows("embedding", dim, &graph);
  const std::string all =
      graph.Node("all", "Concat",
                 {graph.Node("bottom.row", "Unsqueeze",
                             {bottom, graph.Integers("bottom.axis", {1})}),
                  rows},
                 {{"axis", int64_t{1}}});
  const int64_t vectors = features.categories() + 1;
  const std::string input = graph.Node("top.input", "Concat",
                                       {bottom, SumOfRows("sum", rows, &graph),
                                        PairProducts(all, vectors, &graph)},
                                       {{"axis", int64_t{1}}});
  width = 2 * dim + vectors * (vectors - 1) / 2;
  const std::string x = DenseRelus("top", input, top_widths, &width, &graph);
  graph.Output(Dense("logit", x, width, 1, &graph), {1});
  return graph.Serialize();
}

}  // namespace syncline
