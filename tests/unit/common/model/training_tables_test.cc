// Goal: a table is found in the model where it can be one, and everything that
// keeps it from being one is said with its field path.
// Method: graphs built by hand, one edit each, and the exact reports.

#include "common/model/training_tables.h"

#include <functional>
#include <string>
#include <vector>

#include "common/model/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

enum : ValueId { kIds, kEmb, kRows, kOut };

// out = Identity(Gather(emb, ids))
Graph MakeGraph() {
  Graph graph;
  graph.values.resize(4);
  graph.values[kIds] = {.name = "ids",
                        .kind = Value::Kind::kInput,
                        .dtype = DType::kInt64,
                        .dims = {kBatchDim}};
  graph.values[kEmb] = {.name = "emb",
                        .kind = Value::Kind::kInitializer,
                        .dims = {1000, 16},
                        .initializer = 0};
  graph.values[kRows] = {.name = "rows", .dims = {kBatchDim, 16}};
  graph.values[kOut] = {.name = "out", .dims = {kBatchDim, 16}};
  graph.initializers.resize(1);
  graph.initializers[0].value = kEmb;
  graph.inputs = {kIds};
  graph.outputs = {kOut};
  graph.nodes.resize(2);
  graph.nodes[0].name = "Gather#0";
  graph.nodes[0].op_type = "Gather";
  graph.nodes[0].inputs = {kEmb, kIds};
  graph.nodes[0].outputs = {kRows};
  graph.nodes[1].name = "Identity#1";
  graph.nodes[1].op_type = "Identity";
  graph.nodes[1].inputs = {kRows};
  graph.nodes[1].outputs = {kOut};
  return graph;
}

JobSpec OneTable() {
  JobSpec spec;
  TableSpec* table = spec.add_tables();
  table->set_name("emb");
  table->mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  return spec;
}

TEST(TrainingTablesTest, ATableIsFound) {
  std::vector<std::string> problems;
  const auto tables = ResolveTables(OneTable(), MakeGraph(), {kIds}, &problems);
  EXPECT_THAT(problems, IsEmpty());
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].name, "emb");
  EXPECT_EQ(tables[0].value, kEmb);
  EXPECT_EQ(tables[0].initializer, 0);
  EXPECT_EQ(tables[0].rows, 1000);
  EXPECT_EQ(tables[0].dim, 16u);
  ASSERT_EQ(tables[0].lookups.size(), 1u);
  EXPECT_EQ(tables[0].lookups[0].node, 0);
  EXPECT_EQ(tables[0].lookups[0].feed, 0);
}

// The exported model has no key that stands for none.
TEST(TrainingTablesTest, APaddingThatCountsFromTheEndIsWarnedOf) {
  Graph graph = MakeGraph();
  graph.values[kIds].dims = {kBatchDim, 5};
  graph.values[kRows].dims = graph.values[kOut].dims = {kBatchDim, 5, 16};
  JobSpec spec = OneTable();
  spec.mutable_data()->mutable_train()->mutable_csv()->set_list_delimiter("|");
  Feed* const feed = spec.mutable_data()->add_feeds();
  feed->set_field("3");
  const auto lines = [&] {
    std::vector<std::string> problems;
    const auto tables = ResolveTables(spec, graph, {kIds}, &problems);
    EXPECT_THAT(problems, IsEmpty());
    return DescribePaddingRows(spec, graph, {kIds}, tables);
  };
  EXPECT_THAT(lines(), IsEmpty()) << "0 is exported as zeros";
  feed->set_padding(-1);
  EXPECT_THAT(lines(),
              ElementsAre(::testing::StartsWith(
                  "data.feeds[0].padding: -1 stands for no row of table "
                  "'emb' in this job; Gather, in the exported model, takes "
                  "it for row 999 of 1000, so")));
  for (const int64_t padding : {-1001, 1000}) {  // Gather refuses them
    feed->set_padding(padding);
    EXPECT_THAT(lines(),
                ElementsAre(::testing::HasSubstr(
                    "Gather, in the exported model, has 1000 rows, and fails "
                    "on batches that are padded with it. A number from 0")));
  }
  feed->set_padding(-1);
  feed->set_field("3:8");  // no list
  EXPECT_THAT(lines(), IsEmpty());
  feed->set_field("3");
  graph.values[kIds].dims = {kBatchDim, 1};
  EXPECT_THAT(lines(), IsEmpty());
  graph.values[kIds].dims = {kBatchDim, 5};
  graph.values[kEmb].dims[0] = 0;  // any number of rows
  EXPECT_THAT(lines(), IsEmpty());
}

TEST(TrainingTablesTest, IdsMayHaveAnotherShape) {
  Graph graph = MakeGraph();
  const auto add = [&](const char* op, ValueId from) {
    Value value = {.name = op, .dtype = DType::kInt64, .dims = {kBatchDim}};
    value.producer = static_cast<int>(graph.nodes.size());
    graph.values.push_back(value);
    Node node;
    node.name = op;
    node.op_type = op;
    node.inputs = {from};
    node.outputs = {static_cast<ValueId>(graph.values.size() - 1)};
    graph.nodes.push_back(node);
    return node.outputs[0];
  };
  const ValueId viewed = add("Reshape", add("Unsqueeze", kIds));
  graph.nodes[0].inputs[1] = viewed;
  std::vector<std::string> problems;
  const auto tables = ResolveTables(OneTable(), graph, {kOut, kIds}, &problems);
  EXPECT_THAT(problems, IsEmpty());
  ASSERT_EQ(tables[0].lookups.size(), 1u);
  EXPECT_EQ(tables[0].lookups[0].feed, 1);

  graph.nodes[0].inputs[1] = add("Add", viewed);
  ResolveTables(OneTable(), graph, {kIds}, &problems);
  EXPECT_THAT(problems, ElementsAre(testing::HasSubstr("data.feeds feeds")));
}

TEST(TrainingTablesTest, OneProblemEach) {
  using Edit = std::function<void(Graph*, JobSpec*)>;
  const std::pair<Edit, std::string> table[] = {
      {[](Graph*, JobSpec* spec) { spec->mutable_tables(0)->set_name("q"); },
       "tables[0].name: 'q' is not a float32 initializer of the model, nor a "
       "graph input of shape [rows, dim]"},
      {[](Graph*, JobSpec* spec) { spec->mutable_tables(0)->set_name("ids"); },
       "tables[0].name: 'ids' is not a float32 initializer of the model, nor a "
       "graph input of shape [rows, dim]"},
      {[](Graph* graph, JobSpec*) { graph->values[kEmb].dims = {16}; },
       "tables[0].name: 'emb' is float32[16], but a table is "
       "float32[rows,dim]"},
      {[](Graph* graph, JobSpec*) {
         graph->values[kEmb].dtype = DType::kInt64;
       },
       "tables[0].name: 'emb' is int64[1000,16], but a table is "
       "float32[rows,dim]"},
      {[](Graph* graph, JobSpec*) {
         graph->values[kEmb].dims = {1000, 0};
       },
       "tables[0].name: 'emb' has rows of 0 elements, outside 1..65536"},
      {[](Graph* graph, JobSpec*) {
         graph->values[kEmb].dims = {9, 100000};
       },
       "tables[0].name: 'emb' has rows of 100000 elements, outside 1..65536"},
      {[](Graph* graph, JobSpec*) { graph->nodes[0].op_type = "Identity"; },
       "tables[0].name: 'emb' is read by Gather#0 (Identity), but only Gather "
       "may read a table"},
      {[](Graph* graph, JobSpec*) {
         graph->nodes[0].attributes["axis"] = int64_t{1};
       },
       "tables[0].name: 'emb' is read by Gather#0 along axis 1, but the rows "
       "of a table are axis 0"},
      {[](Graph* graph, JobSpec*) {
         graph->nodes[0].inputs = {kEmb, kOut};
       },
       "tables[0].name: 'emb' is read by Gather#0 with indices 'out', which "
       "are not an int64 graph input that data.feeds feeds"},
      {[](Graph* graph, JobSpec*) {
         graph->nodes[0].inputs = {kRows, kIds};
       },
       "tables[0].name: 'emb' is read by no Gather"},
      {[](Graph* graph, JobSpec*) { graph->outputs.push_back(kEmb); },
       "tables[0].name: 'emb' is a graph output, but a table is never in a "
       "worker's memory as a whole"},
      {[](Graph* graph, JobSpec* spec) {
         graph->values[kEmb].dims = {9, 65536};
         spec->mutable_tables(0)->set_memory_bytes(1 << 20);
         spec->mutable_tables(0)->mutable_admission()->set_filter_bytes(1
                                                                        << 19);
       },
       "tables[0].memory_bytes: 'emb' has rows of 786444 bytes with optimizer "
       "state, but only 524288 bytes for them"},
  };
  for (const auto& [edit, problem] : table) {
    Graph graph = MakeGraph();
    JobSpec spec = OneTable();
    edit(&graph, &spec);
    std::vector<std::string> problems;
    ResolveTables(spec, graph, {kIds}, &problems);
    EXPECT_THAT(problems, ElementsAre(problem));
  }
}

TEST(TrainingTablesTest, IndicesMustBeFed) {
  std::vector<std::string> problems;
  ResolveTables(OneTable(), MakeGraph(), {}, &problems);
  EXPECT_THAT(problems, ElementsAre(testing::HasSubstr("data.feeds feeds")));
}

TEST(TrainingTablesTest, RowBytesCountTheOptimizer) {
  EXPECT_EQ(TableRowBytes(OptimizerSpec::SGD, 16), 72u);
  EXPECT_EQ(TableRowBytes(OptimizerSpec::ROW_WISE_ADAGRAD, 16), 76u);
  EXPECT_EQ(TableRowBytes(OptimizerSpec::ADAGRAD, 16), 136u);
  EXPECT_EQ(TableRowBytes(OptimizerSpec::ADAM, 16), 204u);
  EXPECT_EQ(TableRowBytes(OptimizerSpec::FTRL, 16), 200u);
}

}  // namespace
}  // namespace syncline
