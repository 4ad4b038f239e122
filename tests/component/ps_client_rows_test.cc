// Goal: the rows of embedding tables reach the shards that own them and come
// back, once, as a step says, whatever failures the calls meet.
// Method: shards on the fake ps, which parse each request as protobuf, keep
// rows in a map and apply "row -= gradient"; random batches, against the same
// steps done here.

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/fakes/fake_ps.h"
#include "tests/testing/fakes/test_metrics.h"
#include "worker/client/ps_client.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kDims[] = {3, 1};
constexpr int kTables = 2;
constexpr int64_t kIds = 12;

ElementType TypeOf(WireType type) {
  return type == WIRE_FLOAT16 ? ElementType::kFloat16 : ElementType::kFloat32;
}

float InitialValue(int table, int64_t key, int64_t i) {
  return static_cast<float>(1000 * table + 10 * key + i);
}

using Row = std::vector<float>;
using Rows = std::map<int64_t, Row>;

Row InitialRow(int table, int64_t key) {
  Row row;
  for (int64_t i = 0; i < kDims[table]; ++i) {
    row.push_back(InitialValue(table, key, i));
  }
  return row;
}

// A shard that has no dense blocks, or one of one element.
class RowShard {
 public:
  RowShard(uint32_t shard, const TableMap& map)
      : shard_(shard), map_(map), ps_([this](const FakePs::Call& call) {
          return FakePs::Answer{.later = [this, call] { return Serve(call); }};
        }) {}

  const std::string& address() const { return ps_.address(); }
  void FailNext(std::vector<grpc::Status> statuses) {
    MutexLock lock(&mu_);
    failures_ = std::move(statuses);
  }
  Rows rows(int table) {
    MutexLock lock(&mu_);
    return rows_[table];
  }
  std::vector<PushHeader> pushes() {
    MutexLock lock(&mu_);
    return pushes_;
  }
  // Pulls say that all workers have come to this clock.
  void SetMinClock(int64_t clock) {
    MutexLock lock(&mu_);
    min_clock_ = clock;
  }
  int pulls() {
    MutexLock lock(&mu_);
    return pulls_;
  }
  int inits() {
    MutexLock lock(&mu_);
    return inits_;
  }

 private:
  // On a thread of its own.
  FakePs::Answer Serve(const FakePs::Call& call) {
    if (call.method == "OfferMemory") return FakePs::Unimplemented();
    MutexLock lock(&mu_);
    if (call.method == "Init") {
      ++inits_;
      return {};
    }
    if (call.method == "ScanTable") return Scan(call.As<ScanTableRequest>());
    const grpc::Status failed = Fail();
    if (!failed.ok()) return {.status = failed};
    size_t offset = 0;
    if (call.method == "Push") {
      const auto request = call.As<PushRequest>();
      Apply(request.header(), request.payload(), &offset);
      return {};
    }
    if (call.method == "Pull") {
      ++pulls_;
      const auto request = call.As<PullRequest>();
      return Read(request.header(), request.payload(), offset);
    }
    if (call.method == "PushPull") {
      const auto request = call.As<PushPullRequest>();
      Apply(request.header().push(), request.payload(), &offset);
      return Read(request.header().pull(), request.payload(), offset);
    }
    return FakePs::Unimplemented();
  }
  // One row a message.
  FakePs::Answer Scan(const ScanTableRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ScanTableResponse response;
    response.mutable_header();  // it is there, though empty
    const Rows& rows = rows_[request.header().table()];
    auto it = rows.begin();
    if (!request.header().cursor().empty()) {
      it = rows.upper_bound(std::stoll(request.header().cursor()));
    }
    if (it != rows.end()) {
      response.mutable_header()->set_rows(1);
      response.mutable_payload()->append(
          reinterpret_cast<const char*>(&it->first), sizeof(int64_t));
      response.mutable_payload()->append(
          reinterpret_cast<const char*>(it->second.data()),
          it->second.size() * sizeof(float));
      response.mutable_header()->set_next_cursor(absl::StrCat(it->first));
    }
    return {.response = response.SerializeAsString()};
  }
  grpc::Status Fail() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (failures_.empty()) return grpc::Status::OK;
    const grpc::Status failure = failures_.front();
    failures_.erase(failures_.begin());
    return failure;
  }
  Row& At(int table, int64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return rows_[table].emplace(key, InitialRow(table, key)).first->second;
  }
  std::vector<int64_t> Keys(const TableRows& rows, const std::string& payload,
                            size_t* offset) const {
    std::vector<int64_t> keys(rows.rows());
    EXPECT_LE(*offset + keys.size() * 8, payload.size());
    std::memcpy(keys.data(), payload.data() + *offset, keys.size() * 8);
    *offset += keys.size() * 8;
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(map_.ShardOf(keys[i]), shard_);
      EXPECT_TRUE(i == 0 || map_.Before(keys[i - 1], keys[i]));
    }
    return keys;
  }
  void Apply(const PushHeader& push, const std::string& payload, size_t* offset)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    pushes_.push_back(push);
    received_ += static_cast<size_t>(push.blocks_size());
    const ElementType type = TypeOf(push.wire_type());
    *offset = push.blocks_size() * ElementBytes(type);
    for (const TableRows& rows : push.tables()) {
      const size_t dim = static_cast<size_t>(kDims[rows.table()]);
      std::vector<Row*> pushed;
      std::set<uint32_t> slots;
      for (const int64_t key : Keys(rows, payload, offset)) {
        pushed.push_back(&At(static_cast<int>(rows.table()), key));
        slots.insert(map_.SlotOf(key));
      }
      received_ += slots.size();
      for (Row* row : pushed) {
        std::vector<float> gradient(dim);
        Widen(type, payload.data() + *offset, gradient.data(), dim);
        *offset += dim * ElementBytes(type);
        for (size_t i = 0; i < dim; ++i) (*row)[i] -= gradient[i];
      }
    }
    if (received_ < push.blocks_in_clock()) return;
    received_ = 0;
    closed_ = push.clock() + 1;
    changed_.SignalAll();
  }
  FakePs::Answer Read(const PullHeader& pull, const std::string& payload,
                      size_t offset) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // Waits for the worker's own pushes before, as shards do.
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (closed_ < pull.clock() && absl::Now() < deadline) {
      changed_.WaitUntil(&mu_, deadline);
    }
    EXPECT_GE(closed_, pull.clock());
    PullResponse response;
    response.mutable_header()->set_min_clock(min_clock_);
    EXPECT_TRUE(pull.cut_id() == 0 || pull.wire_type() == WIRE_FLOAT32);
    const ElementType type = TypeOf(pull.wire_type());
    for (const uint32_t block : pull.blocks()) {
      response.mutable_header()->add_blocks(block);
      response.mutable_payload()->append(ElementBytes(type), '\0');
    }
    for (const TableRows& rows : pull.tables()) {
      *response.mutable_header()->add_tables() = rows;
      const int table = static_cast<int>(rows.table());
      for (const int64_t key : Keys(rows, payload, &offset)) {
        const auto it = rows_[table].find(key);
        const Row row =
            it == rows_[table].end() ? InitialRow(table, key) : it->second;
        std::string values(row.size() * ElementBytes(type), '\0');
        Narrow(type, row.data(), values.data(), row.size());
        response.mutable_payload()->append(values);
      }
    }
    EXPECT_EQ(offset, payload.size());
    return {.response = response.SerializeAsString()};
  }

  const uint32_t shard_;
  const TableMap map_;
  Mutex mu_;
  CondVar changed_;
  size_t received_ ABSL_GUARDED_BY(mu_) = 0;  // blocks and slots of the clock
  int64_t closed_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int, Rows> rows_ ABSL_GUARDED_BY(mu_);
  std::vector<PushHeader> pushes_ ABSL_GUARDED_BY(mu_);
  std::vector<grpc::Status> failures_ ABSL_GUARDED_BY(mu_);
  int inits_ ABSL_GUARDED_BY(mu_) = 0;
  int pulls_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t min_clock_ ABSL_GUARDED_BY(mu_) = 100;
  FakePs ps_;  // last: its threads use the rest
};

class PsClientRowsTest : public ::testing::Test {
 protected:
  struct Memory {
    std::vector<float> value = {0};
    std::vector<float> gradient = {0};
    std::vector<std::unique_ptr<worker::RowBatch>> owned;
  };

  void SetUpCluster(uint32_t shards, worker::PsClient::Options options = {}) {
    map_ = std::make_unique<TableMap>(*TableMap::Create(256, shards));
    for (uint32_t shard = 0; shard < shards; ++shard) {
      shards_.push_back(std::make_unique<RowShard>(shard, *map_));
      options.ps.push_back(
          {absl::StrCat("ps:", shard), shards_.back()->address()});
    }
    options.job_id = "j-7";
    options.has_tables = true;
    memory_ = std::make_shared<Memory>();
    worker::DenseTensors tensors;
    tensors.values = {absl::MakeSpan(memory_->value)};
    tensors.gradients = {memory_->gradient};
    tensors.owner = memory_;
    const TensorSize one = {.name = "b", .element_count = 1};
    client_ = std::make_unique<worker::PsClient>(
        options, *BlockMap::Create({one}, shards), std::move(tensors));
    for (std::vector<worker::RowBatch*>* rows : {&current_, &next_}) {
      for (int t = 0; t < kTables; ++t) {
        worker::RowBatch::Options batch;
        batch.name = absl::StrCat("t", t);
        batch.dim = kDims[t];
        batch.samples_max = 1;
        batch.lookups = {{.feed = 0, .ids_per_sample = kIds}};
        batch.with_gradients = true;
        memory_->owned.push_back(
            std::make_unique<worker::RowBatch>(batch, *map_));
        rows->push_back(memory_->owned.back().get());
      }
    }
  }

  // No sample, or one with these ids.
  static void Collect(const std::vector<int64_t>& ids,
                      const std::vector<worker::RowBatch*>& rows) {
    worker::Batch batch;
    batch.size = ids.empty() ? 0 : 1;
    batch.int_feeds = {ids};
    for (worker::RowBatch* table : rows) table->Collect(batch);
  }
  static std::vector<int64_t> RandomIds(Random* random) {
    std::vector<int64_t> ids(kIds);
    for (int64_t& id : ids) id = static_cast<int64_t>(random->Below(40)) - 9;
    return ids;
  }

  // Gradients of `rows`, applied to what is expected too.
  void FillGradients(const std::vector<worker::RowBatch*>& rows,
                     Random* random) {
    for (int t = 0; t < kTables; ++t) {
      rows[t]->ClearGradients();
      for (size_t i = 0; i < rows[t]->keys().size(); ++i) {
        Row& want =
            expected_[t]
                .emplace(rows[t]->keys()[i], InitialRow(t, rows[t]->keys()[i]))
                .first->second;
        for (int64_t d = 0; d < kDims[t]; ++d) {
          const auto g = static_cast<float>(random->Below(8));
          rows[t]->row_gradients()[(1 + i) * kDims[t] + d] = g;
          want[d] -= g;
        }
      }
    }
  }
  void ExpectValues(const std::vector<worker::RowBatch*>& rows) {
    for (int t = 0; t < kTables; ++t) {
      for (size_t i = 0; i < rows[t]->keys().size(); ++i) {
        const int64_t key = rows[t]->keys()[i];
        const auto it = expected_[t].find(key);
        EXPECT_EQ(Row(rows[t]->value(i), rows[t]->value(i) + kDims[t]),
                  it == expected_[t].end() ? InitialRow(t, key) : it->second)
            << "table " << t << ", key " << key;
      }
    }
  }
  absl::Status Step(int64_t clock, const std::vector<worker::RowBatch*>& next) {
    const bool empty = current_[0]->keys().empty();
    client_->BeginStep({.clock = clock,
                        .sample_count = empty ? uint64_t{0} : uint64_t{1},
                        .rows = current_});
    if (!empty) client_->OnGradientReady(0);
    client_->EndBackward(next);
    return client_->Wait();
  }

  std::unique_ptr<TableMap> map_;
  std::vector<std::unique_ptr<RowShard>> shards_;
  std::shared_ptr<Memory> memory_;
  std::vector<worker::RowBatch*> current_;
  std::vector<worker::RowBatch*> next_;
  std::map<int, Rows> expected_;
  std::unique_ptr<worker::PsClient> client_;
};

// All values are integers below 2,048, which 16 bits hold.
TEST_F(PsClientRowsTest, RowsOfStepsMoveAsTheyWouldHere) {
  for (const auto& [shards, type] : {std::pair{1u, ElementType::kFloat32},
                                     {3u, ElementType::kFloat32},
                                     {1u, ElementType::kFloat16},
                                     {3u, ElementType::kFloat16}}) {
    for (const size_t chunk_bytes : {size_t{60}, size_t{1} << 20}) {
      SCOPED_TRACE(absl::StrCat(shards, " shards, ", chunk_bytes, " of type ",
                                static_cast<int>(type)));
      shards_.clear();
      current_.clear();
      next_.clear();
      expected_.clear();
      client_.reset();
      worker::PsClient::Options options;
      options.chunk_bytes = chunk_bytes;
      options.regimes = RegimeSchedule(TrainingRegime{.wire_type = type});
      SetUpCluster(shards, options);
      ASSERT_EQ(client_->Init(10), absl::OkStatus());
      for (const auto& shard : shards_) EXPECT_EQ(shard->inits(), 1);
      Random random(shards + chunk_bytes);
      Collect(RandomIds(&random), current_);
      ASSERT_EQ(client_->PullRows(0, 0, current_), absl::OkStatus());
      ExpectValues(current_);
      for (int64_t clock = 0; clock < 20; ++clock) {
        Collect(clock % 5 == 3 ? std::vector<int64_t>() : RandomIds(&random),
                next_);
        FillGradients(current_, &random);
        ASSERT_EQ(Step(clock, next_), absl::OkStatus());
        ExpectValues(next_);
        current_.swap(next_);
      }
      Collect(RandomIds(&random), current_);
      ASSERT_EQ(client_->PullRows(20, /*cut_id=*/5, current_),
                absl::OkStatus());
      ExpectValues(current_);
      for (int t = 0; t < kTables; ++t) {
        Rows all;
        for (const auto& shard : shards_) {
          const Rows part = shard->rows(t);
          all.insert(part.begin(), part.end());
        }
        EXPECT_EQ(all, expected_[t]);
      }
    }
  }
}

TEST_F(PsClientRowsTest, EveryShardLearnsHowManySlotsAreTouched) {
  SetUpCluster(3);
  // All keys on one shard.
  std::vector<int64_t> ids;
  for (int64_t key = 0; ids.size() < kIds; ++key) {
    if (map_->ShardOf(key) == 1) ids.push_back(key);
  }
  Collect(ids, current_);
  Random random(1);
  FillGradients(current_, &random);
  ASSERT_EQ(Step(0, {}), absl::OkStatus());
  uint32_t blocks = 0;
  for (uint32_t shard = 0; shard < 3; ++shard) {
    const std::vector<PushHeader> pushes = shards_[shard]->pushes();
    ASSERT_THAT(pushes, ::testing::Not(IsEmpty())) << "its samples count";
    for (const PushHeader& push : pushes) {
      EXPECT_EQ(push.sample_count(), 1u);
      blocks += static_cast<uint32_t>(push.blocks_size());
      EXPECT_EQ(push.blocks_in_clock(), pushes[0].blocks_in_clock());
    }
    const size_t slots =
        shard == 1 ? current_[0]->slots().size() + current_[1]->slots().size()
                   : 0;
    EXPECT_LE(pushes[0].blocks_in_clock(), slots + 1);
    EXPECT_GE(pushes[0].blocks_in_clock(), slots);
  }
  EXPECT_EQ(blocks, 1u) << "the dense one";
}

TEST_F(PsClientRowsTest, ABatchWithoutSamplesClosesEveryShard) {
  SetUpCluster(2);
  Random random(2);
  Collect({}, current_);
  Collect(RandomIds(&random), next_);
  ASSERT_EQ(Step(4, next_), absl::OkStatus());
  ExpectValues(next_);
  for (const auto& shard : shards_) {
    const auto pushes = shard->pushes();
    ASSERT_THAT(pushes, SizeIs(1));
    EXPECT_EQ(pushes[0].sample_count(), 0u);
    EXPECT_EQ(pushes[0].blocks_in_clock(), 0u);
    EXPECT_THAT(pushes[0].tables(), IsEmpty());
  }
}

TEST_F(PsClientRowsTest, RowsThatTheStepDoesNotPushMayComeEarly) {
  SetUpCluster(2);
  Random random(6);
  Collect(RandomIds(&random), current_);
  for (int64_t clock = 0; clock < 20; ++clock) {
    // An answer that is too old is read once more.
    const bool stale = clock % 3 == 0;
    for (auto& shard : shards_) shard->SetMinClock(stale ? clock - 3 : clock);
    const int pulls = shards_[0]->pulls() + shards_[1]->pulls();
    Collect(RandomIds(&random), next_);
    size_t early = 0;
    for (int t = 0; t < kTables; ++t) {
      next_[t]->WantEarly(
          [&](int64_t key) { return !current_[t]->Reads(key); });
      early += next_[t]->early_count();
    }
    FillGradients(current_, &random);
    client_->BeginStep({.clock = clock, .sample_count = 1, .rows = current_});
    client_->PullEarly(next_, /*min_clock=*/clock - 1);
    client_->OnGradientReady(0);
    client_->EndBackward(next_);
    ASSERT_EQ(client_->Wait(), absl::OkStatus());
    ExpectValues(next_);
    const int more = shards_[0]->pulls() + shards_[1]->pulls() - pulls;
    EXPECT_GE(more, early == 0 ? 0 : stale ? 2 : 1);
    current_.swap(next_);
  }
}

TEST_F(PsClientRowsTest, WhatAPsHasNoMemoryForIsHeldBackAndCounted) {
  testing::TestCounter held_back;
  worker::PsClient::Options options;
  options.telemetry.held_back = &held_back;
  SetUpCluster(1, options);
  Random random(3);
  Collect(RandomIds(&random), current_);
  FillGradients(current_, &random);
  const grpc::Status full(grpc::StatusCode::RESOURCE_EXHAUSTED,
                          "table t0 is full");
  shards_[0]->FailNext({full, full, full});
  ASSERT_EQ(Step(0, {}), absl::OkStatus());
  EXPECT_EQ(held_back.value(), 3);
  EXPECT_EQ(shards_[0]->rows(0), expected_[0]);
}

TEST_F(PsClientRowsTest, ARefusalNamesWhoAndWhen) {
  SetUpCluster(2);
  Random random(3);
  Collect(RandomIds(&random), current_);
  FillGradients(current_, &random);
  shards_[1]->FailNext(std::vector<grpc::Status>(
      3, {grpc::StatusCode::FAILED_PRECONDITION, "replaced"}));
  const absl::Status status = Step(5, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:1"), HasSubstr(shards_[1]->address()),
                    HasSubstr("j-7"), HasSubstr("clock 5")));
}

TEST_F(PsClientRowsTest, AScanGivesEveryRowOnce) {
  SetUpCluster(3);
  Random random(4);
  for (int64_t clock = 0; clock < 5; ++clock) {
    Collect(RandomIds(&random), current_);
    FillGradients(current_, &random);
    ASSERT_EQ(Step(clock, {}), absl::OkStatus());
  }
  for (uint32_t t = 0; t < kTables; ++t) {
    Rows all;
    ASSERT_EQ(
        client_->ScanTable(
            t, kDims[t], 1, 5,
            [&](absl::Span<const int64_t> keys,
                absl::Span<const float> values) {
              for (size_t i = 0; i < keys.size(); ++i) {
                const auto row = values.subspan(i * kDims[t], kDims[t]);
                EXPECT_TRUE(
                    all.emplace(keys[i], Row(row.begin(), row.end())).second);
              }
              return absl::OkStatus();
            }),
        absl::OkStatus());
    EXPECT_EQ(all, expected_[static_cast<int>(t)]);
  }
}

}  // namespace
}  // namespace syncline
