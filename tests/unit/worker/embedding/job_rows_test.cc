// Goal: a rank has rows for each table of its job, as large as its batches, or
// is told why not. Method: assignments over one model, right and wrong.

#include "worker/embedding/job_rows.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
g (int64[N,3] ids, float[rows,4] emb, float[4,2] w) => (float[N,2] y)
<int64[1] one = {1}>
{
  a = Gather(emb, ids)
  b = ReduceSum <keepdims = 0> (a, one)
  y = MatMul(b, w)
})";

class JobRowsTest : public ::testing::Test {
 protected:
  JobRowsTest() {
    JobSpec* spec = assignment_.mutable_spec();
    spec->mutable_data()->mutable_train()->mutable_libsvm();
    Feed* feed = spec->mutable_data()->add_feeds();
    feed->set_input("ids");
    feed->set_field("indices");
    feed->set_padding(-7);
    spec->mutable_training()->set_batch_size(10);
    spec->mutable_training()->set_eval_batch_size(20);
    spec->add_tables()->set_name("emb");
    TableInfo* table = assignment_.add_tables();
    table->set_name("emb");
    table->set_dim(4);
    table->set_slots(256);
    assignment_.add_ps();
    const std::vector<std::string> tables = {"emb"};
    model_ = *Model::Parse(kModel, "m", {"w"}, tables);
    std::vector<std::string> problems;
    training_.feeds = {model_->graph().FindValue("ids")};
    training_.tables =
        ResolveTables(*spec, model_->graph(), training_.feeds, &problems);
    EXPECT_THAT(problems, SizeIs(0));
  }
  absl::StatusOr<std::shared_ptr<JobRows>> Create(bool evaluates = true) {
    return JobRows::Create(assignment_, *model_, training_, evaluates);
  }

  JobAssignment assignment_;
  std::shared_ptr<const Model> model_;
  TrainingGraph training_;
};

TEST_F(JobRowsTest, RowsAreAsManyAsTheIdsOfABatch) {
  const auto rows = Create();
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)->current()[0]->capacity(), 1 + 3 * 10);
  EXPECT_EQ((*rows)->next()[0]->capacity(), 1 + 3 * 10);
  EXPECT_EQ((*rows)->evaluated()[0]->capacity(), 1 + 3 * 20);
  EXPECT_EQ((*rows)->cache(0), nullptr);
  RowBatch* const next = (*rows)->next()[0];
  (*rows)->Advance();
  EXPECT_EQ((*rows)->current()[0], next);
  EXPECT_THAT((*Create(/*evaluates=*/false))->evaluated(), SizeIs(0));
}

TEST_F(JobRowsTest, PaddingOfIndicesIsNoKey) {
  const auto rows = Create();
  ASSERT_TRUE(rows.ok());
  Batch batch;
  batch.size = 1;
  batch.int_feeds = {{5, -7, -7}};
  Collect(batch, (*rows)->current());
  EXPECT_THAT((*rows)->current()[0]->keys(), testing::ElementsAre(5));
  assignment_.mutable_spec()->mutable_data()->mutable_feeds(0)->set_field("f");
  const auto whole = Create();
  Collect(batch, (*whole)->current());
  EXPECT_THAT((*whole)->current()[0]->keys(), SizeIs(2)) << "-7 is a key";
}

TEST_F(JobRowsTest, SoIsThatOfListsOfCsv) {
  DataSpec* const data = assignment_.mutable_spec()->mutable_data();
  data->mutable_train()->mutable_csv()->set_list_delimiter("|");
  data->mutable_feeds(0)->set_field("items");
  Batch batch;
  batch.size = 1;
  batch.int_feeds = {{5, -7, -7}};
  const auto lists = Create();
  Collect(batch, (*lists)->current());
  EXPECT_THAT((*lists)->current()[0]->keys(), testing::ElementsAre(5));
  data->mutable_feeds(0)->set_field("0:3");
  const auto columns = Create();
  Collect(batch, (*columns)->current());
  EXPECT_THAT((*columns)->current()[0]->keys(), SizeIs(2)) << "-7 is a key";
}

TEST_F(JobRowsTest, KeysAreLookedUpByTable) {
  const auto rows = Create();
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ((*rows)->lookup_max(0), size_t{1} << 14);
  Batch batch;
  batch.size = 3;
  batch.int_feeds = {{9, 8, -7}};
  Collect(batch, (*rows)->lookup());
  EXPECT_THAT((*rows)->lookup()[0]->keys(), SizeIs(3));
}

TEST_F(JobRowsTest, AnAssignmentOfAnotherModelIsRefused) {
  assignment_.mutable_tables(0)->set_dim(5);
  EXPECT_EQ(Create().status().code(), absl::StatusCode::kInvalidArgument);
  assignment_.clear_tables();
  EXPECT_THAT(std::string(Create().status().message()),
              HasSubstr("not those of the assignment"));
}

TEST_F(JobRowsTest, BatchesThatDoNotFitAreRefused) {
  assignment_.mutable_spec()->mutable_training()->set_batch_size(1'000'000'000);
  const absl::Status status = Create().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("3000000000 ids"));
}

}  // namespace
}  // namespace syncline::worker
