// Goal: what calls hold of the in-flight budget is free when it should be:
// before they are answered, and before others depend on it.
// Method: a shard of two workers without gRPC, whose calls are made of headers
// as a peer's are; callbacks look at the budget.

#include "server/shard/job_shard.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/fakes/payloads.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kDim = 2;
constexpr uint64_t kBudget = 64 << 10;

JobAssignment TwoWorkers(ConsistencySpec::Mode mode) {
  JobSpec spec = PlainSgdJob();
  spec.mutable_consistency()->set_mode(mode);
  TableSpec* const table = spec.add_tables();
  table->set_name("emb");
  table->set_memory_bytes(4 << 20);
  table->mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  return AssignmentBuilder(spec, "j")
      .Parameter("w", {4})
      .Table("emb", kDim, /*ps=*/1)
      .Workers(2)
      .Ps(1)
      .Build();
}

class JobShardTest : public ::testing::Test {
 protected:
  struct Answer {
    bool came = false;
    absl::Status status;
    uint64_t bytes_in_flight = 0;  // as it came
    size_t rows = 0;
    bool in_place = false;
  };

  ~JobShardTest() override {
    if (shard_ != nullptr) shard_->Close(absl::CancelledError("over"));
    lanes_.Drain();
  }

  void Open(ConsistencySpec::Mode mode) {
    JobAssignment assignment = TwoWorkers(mode);
    assignment.mutable_regimes(0)->set_wire_type(wire_type_);
    assignment.mutable_spec()->set_wire_type(wire_type_);
    const auto config = ReadJobConfig(assignment, 0);
    ASSERT_OK(config.status());
    EmbeddingTables::ColdStores cold(1);
    auto tables =
        EmbeddingTables::Create(*config, lanes_.count(), std::move(cold), {});
    ASSERT_OK(tables.status());
    shard_ = std::make_shared<JobShard>(
        *config, JobShard::Resources{&lanes_, budget_.get(), buffers_.get()},
        nullptr, *std::move(tables));
    if (taker_ != nullptr) shard_->UseSnapshotTaker(taker_);
    InitHeader header;
    header.add_blocks(0);
    auto values = std::make_shared<PayloadBytes>();
    values->Append(std::vector<float>(4, 1));
    const auto blocks = shard_->layout().CheckInit(header, values->size());
    ASSERT_OK(blocks.status());
    JobShard::Payload payload;
    payload.values = std::move(values);
    const Answer answer = Wait([&](JobShard::Done done) {
      shard_->Init(caller(0), *blocks, 0, std::move(payload), std::move(done));
    });
    ASSERT_OK(answer.status);
  }

  static Caller caller(uint32_t rank) {
    Caller caller;
    caller.set_rank(rank);
    caller.set_incarnation(100 + rank);
    return caller;
  }

  // Keys from `first` on, in the order of messages.
  std::vector<int64_t> Keys(int64_t first, int64_t count) const {
    std::vector<int64_t> keys(count);
    for (int64_t i = 0; i < count; ++i) keys[i] = first + i;
    const TableMap& map = shard_->layout().tables()[0].map;
    std::sort(keys.begin(), keys.end(),
              [&](int64_t a, int64_t b) { return map.Before(a, b); });
    return keys;
  }
  uint32_t SlotCount(const std::vector<int64_t>& keys) const {
    std::vector<SlotRun> runs;
    EXPECT_OK(shard_->layout().tables()[0].map.CutBySlot(keys, 0, &runs));
    return static_cast<uint32_t>(runs.size());
  }

  InFlightBudget::Hold Hold(uint64_t bytes) {
    InFlightBudget::Hold hold;
    EXPECT_OK(budget_->Acquire(bytes, &hold));
    return hold;
  }
  std::shared_ptr<CallRows> Keep(std::vector<RowList> lists) {
    auto rows = std::make_shared<CallRows>();
    for (const RowList& list : lists) {
      rows->hold = Hold(list.keys.size() * sizeof(int64_t));
    }
    rows->lists = std::move(lists);
    return rows;
  }
  ShardCall CallOf(uint32_t rank) const {
    return {.rank = rank,
            .incarnation = 100 + rank,
            .deadline = absl::InfiniteFuture()};
  }
  void AddPush(uint32_t rank, int64_t clock, const std::vector<int64_t>& keys,
               ShardCall* call, JobShard::Payload* payload) {
    PushHeader header;
    header.set_clock(clock);
    header.set_sample_count(1);
    header.set_blocks_in_clock(SlotCount(keys));
    header.set_wire_type(wire_type_);
    header.add_tables()->set_rows(static_cast<uint32_t>(keys.size()));
    auto values = std::make_shared<PayloadBytes>();
    values->Append(keys);
    if (wire_type_ == WIRE_FLOAT32) {
      values->Append(std::vector<float>(keys.size() * kDim, 1));
    } else {
      values->Append(std::vector<uint16_t>(keys.size() * kDim, 0));
    }
    payload->hold = Hold(values->size());
    payload->values = values;
    auto push =
        shard_->layout().CheckPush(header, {values.get(), values->size()});
    ASSERT_OK(push.status());
    payload->pushed = Keep(std::move(push->rows));
    payload->pushed->values = std::move(values);
    call->push = std::move(push->facts);
  }
  void AddPull(int64_t clock, const std::vector<int64_t>& keys, ShardCall* call,
               JobShard::Payload* payload) {
    PullHeader header;
    header.set_clock(clock);
    header.set_wait_seconds(10);
    header.add_tables()->set_rows(static_cast<uint32_t>(keys.size()));
    PayloadBytes values;
    values.Append(keys);
    auto pull = shard_->layout().CheckPull(header, {&values, values.size()});
    ASSERT_OK(pull.status());
    payload->pulled = Keep(std::move(pull->rows));
    call->pull = std::move(pull->facts);
  }

  // Where the call's answer will be.
  std::shared_ptr<Answer> Start(ShardCall call, JobShard::Payload payload) {
    auto answer = std::make_shared<Answer>();
    shard_->Call(std::move(call), std::move(payload), nullptr, Into(answer));
    return answer;
  }
  std::shared_ptr<Answer> Push(uint32_t rank, int64_t clock,
                               const std::vector<int64_t>& keys) {
    ShardCall call = CallOf(rank);
    JobShard::Payload payload;
    AddPush(rank, clock, keys, &call, &payload);
    return Start(std::move(call), std::move(payload));
  }
  std::shared_ptr<Answer> Pull(uint32_t rank, int64_t clock,
                               const std::vector<int64_t>& keys) {
    ShardCall call = CallOf(rank);
    JobShard::Payload payload;
    AddPull(clock, keys, &call, &payload);
    return Start(std::move(call), std::move(payload));
  }
  // The answer after the lanes have done all their steps.
  Answer Seen(const std::shared_ptr<Answer>& answer) {
    lanes_.Drain();
    MutexLock lock(&mu_);
    return *answer;
  }
  Answer Wait(const std::function<void(JobShard::Done)>& start) {
    auto answer = std::make_shared<Answer>();
    start(Into(answer));
    return Seen(answer);
  }
  JobShard::Done Into(std::shared_ptr<Answer> answer) {
    return [this, answer](absl::Status status, PullValues values) {
      MutexLock lock(&mu_);
      answer->came = true;
      answer->status = std::move(status);
      answer->bytes_in_flight = budget_->used_bytes();
      answer->in_place = values.area.data != nullptr;
      if (values.rows == nullptr) return;
      for (const RowList& list : values.rows->lists) {
        answer->rows += list.keys.size();
      }
    };
  }

  Mutex mu_;  // of answers
  WireType wire_type_ = WIRE_FLOAT32;
  const std::shared_ptr<InFlightBudget> budget_ =
      std::make_shared<InFlightBudget>(kBudget);
  const std::shared_ptr<BufferPool> buffers_ =
      std::make_shared<BufferPool>(1 << 20);
  Lanes lanes_{2};
  std::shared_ptr<SnapshotTaker> taker_;
  std::shared_ptr<JobShard> shard_;
};

using LaneLog = WaitLog<std::string>;

// Tells when a lane reads it, which is when it is applied.
class LoggedGradient : public PayloadBytes {
 public:
  LoggedGradient(LaneLog* log, int64_t clock) : log_(log), clock_(clock) {
    Append(std::vector<float>(4, 1));
  }
  void CopyTo(size_t first, size_t count, float* out) const override {
    log_->Add(absl::StrCat("apply ", clock_));
    PayloadBytes::CopyTo(first, count, out);
  }

 private:
  LaneLog* const log_;
  const int64_t clock_;
};

class LoggingTaker : public SnapshotTaker {
 public:
  explicit LoggingTaker(LaneLog* log) : log_(log) {}
  void OnSnapshot(uint64_t cut_id, absl::Span<const int64_t> clocks,
                  int lane) override {
    lanes_.fetch_add(1 << lane);
    if (lane != 0) return;  // that of the dense block
    log_->Add(absl::StrCat("cut ", cut_id, " at ", absl::StrJoin(clocks, ",")));
  }
  void OnSnapshotDone(uint64_t cut_id) override {
    log_->Add(absl::StrCat("cut ", cut_id, " done, lanes ", lanes_.load()));
  }

 private:
  LaneLog* const log_;
  std::atomic<int> lanes_{0};
};

class SnapshotTest : public JobShardTest {
 protected:
  void PushDense(int64_t clock) {
    PushHeader header;
    header.set_clock(clock);
    header.set_sample_count(1);
    header.set_blocks_in_clock(1);
    header.add_blocks(0);
    auto values = std::make_shared<LoggedGradient>(&log_, clock);
    auto push =
        shard_->layout().CheckPush(header, {values.get(), values->size()});
    ASSERT_OK(push.status());
    ShardCall call = CallOf(0);
    call.push = std::move(push->facts);
    JobShard::Payload payload;
    payload.values = std::move(values);
    answers_.push_back(Start(std::move(call), std::move(payload)));
  }

  LaneLog log_;
  std::vector<std::shared_ptr<Answer>> answers_;
};

TEST_F(SnapshotTest, IsTakenBetweenTheStepsBelowAndAboveItsCut) {
  taker_ = std::make_shared<LoggingTaker>(&log_);
  Open(ConsistencySpec::ASYNC);
  ASSERT_OK(shard_->BeginCut(caller(0), 7, {2, 0}, absl::Seconds(60),
                             CutUse::kCheckpoint));
  for (int64_t clock = 0; clock < 4; ++clock) PushDense(clock);
  EXPECT_FALSE(Seen(answers_[2]).came) << "held by the cut";
  ASSERT_OK(shard_->EndCut(caller(0), 7));
  EXPECT_TRUE(Seen(answers_[3]).came);
  const std::vector<std::string> log = log_.Await(6);
  EXPECT_THAT(
      log, ::testing::ElementsAre("apply 0", "apply 1", "cut 7 at 2,0",
                                  "cut 7 done, lanes 3", "apply 2", "apply 3"));
}

TEST_F(SnapshotTest, IsRefusedWhereNobodyTakesIt) {
  Open(ConsistencySpec::ASYNC);
  const absl::Status refused = shard_->BeginCut(
      caller(0), 7, {2, 0}, absl::Seconds(60), CutUse::kRouting);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("a routing cut takes a snapshot"));
  EXPECT_OK(shard_->BeginCut(caller(0), 8, {2, 2}, absl::Seconds(60),
                             CutUse::kRegime,
                             TrainingRegime{.first_clock = 2}));
}

// The worker counts these bytes as free then, and sends as many again.
TEST_F(JobShardTest, AnAcknowledgedPushOfRowsHoldsNothing) {
  Open(ConsistencySpec::ASYNC);
  for (int64_t clock = 0; clock < 10; ++clock) {
    const Answer answer = Seen(Push(0, clock, Keys(0, 500)));
    ASSERT_TRUE(answer.came);
    EXPECT_OK(answer.status);
    EXPECT_EQ(answer.bytes_in_flight, 0u);
  }
}

// Otherwise the rows of early workers would take the room of late ones.
TEST_F(JobShardTest, RowsThatWaitForOtherWorkersHoldNothing) {
  Open(ConsistencySpec::SYNC);
  const Answer first = Seen(Push(0, 0, Keys(0, 500)));
  ASSERT_TRUE(first.came);
  EXPECT_OK(first.status);
  EXPECT_EQ(budget_->used_bytes(), 0u);
  EXPECT_OK(Seen(Push(1, 0, Keys(250, 500))).status);
  const Answer pulled = Seen(Pull(0, 1, Keys(0, 750)));
  EXPECT_OK(pulled.status);
  EXPECT_EQ(pulled.rows, 750u);
}

TEST_F(JobShardTest, CallsThatMustWaitLeaveHalfOfTheBudgetFree) {
  Open(ConsistencySpec::SYNC);
  // 8,000 bytes of keys each.
  std::vector<std::shared_ptr<Answer>> pulls;
  for (int i = 0; i < 6; ++i) pulls.push_back(Pull(0, 1, Keys(0, 1000)));
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(Seen(pulls[i]).came);
  for (int i = 4; i < 6; ++i) {
    const Answer refused = Seen(pulls[i]);
    EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.status.message()),
                HasSubstr("calls that must wait hold 40000 bytes"));
  }
  EXPECT_EQ(budget_->used_bytes(), 32000u);
  // A push whose pull must wait is accepted; its pull comes again.
  ShardCall call = CallOf(0);
  JobShard::Payload payload;
  AddPush(0, 0, Keys(0, 500), &call, &payload);
  AddPull(1, Keys(0, 500), &call, &payload);
  EXPECT_EQ(Seen(Start(std::move(call), std::move(payload))).status.code(),
            absl::StatusCode::kResourceExhausted);
  // The push that they wait for finds room.
  EXPECT_OK(Seen(Push(1, 0, Keys(250, 500))).status);
  for (int i = 0; i < 4; ++i) {
    const Answer pulled = Seen(pulls[i]);
    EXPECT_TRUE(pulled.came);
    EXPECT_OK(pulled.status);
  }
  EXPECT_EQ(budget_->used_bytes(), 0u);
}

// A pull that began with its push is counted from then on.
TEST_F(JobShardTest, APullBehindAnAcceptedPushCounts) {
  Open(ConsistencySpec::SYNC);
  const auto push_pull = [&](uint32_t rank, int64_t first) {
    ShardCall call = CallOf(rank);
    JobShard::Payload payload;
    AddPush(rank, 0, Keys(0, 10), &call, &payload);
    AddPull(1, Keys(first, 3000), &call, &payload);
    return Start(std::move(call), std::move(payload));
  };
  const auto waits = push_pull(0, 0);
  EXPECT_FALSE(Seen(waits).came);
  EXPECT_EQ(budget_->used_bytes(), 24000u);
  EXPECT_EQ(Seen(Pull(0, 1, Keys(0, 2000))).status.code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_OK(Seen(Push(1, 0, Keys(0, 10))).status);
  EXPECT_TRUE(Seen(waits).came);
  EXPECT_FALSE(Seen(Pull(0, 2, Keys(0, 2000))).came) << "room again";
}

// Nothing of it is widened before all have come.
TEST_F(JobShardTest, AGradientThatWaitsIsAsLargeAsItTravels) {
  Open(ConsistencySpec::SYNC);
  Push(0, 0, Keys(0, 100));
  EXPECT_EQ(shard_->Status().fold_bytes(), 100 * (8 + 4 * kDim));
  shard_->Close(absl::CancelledError("over"));
  wire_type_ = WIRE_BFLOAT16;
  Open(ConsistencySpec::SYNC);
  Push(0, 0, Keys(0, 100));
  EXPECT_EQ(shard_->Status().fold_bytes(), 100 * (8 + 2 * kDim));
}

ConsistencySpec LocalConsistency(OptimizerSpec::Kind outer) {
  ConsistencySpec consistency;
  consistency.set_mode(ConsistencySpec::LOCAL);
  consistency.mutable_local()->set_steps(16);
  consistency.mutable_local()->mutable_optimizer()->set_kind(outer);
  consistency.mutable_local()->mutable_optimizer()->set_momentum(0.5f);
  consistency.mutable_local()->set_learning_rate(0.25f);
  return consistency;
}

TEST(JobConfigTest, InLocalTheOptimizerIsTheOuterOne) {
  JobAssignment assignment = TwoWorkers(ConsistencySpec::SYNC);
  JobSpec* const spec = assignment.mutable_spec();
  spec->mutable_optimizer()->set_clip_norm(1);
  EXPECT_TRUE(ReadJobConfig(assignment, 0)->controller.clip_norm);
  *spec->mutable_consistency() = LocalConsistency(OptimizerSpec::NESTEROV);
  *assignment.mutable_regimes(0)->mutable_consistency() = spec->consistency();
  const auto config = ReadJobConfig(assignment, 0);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->regimes.AllSync());
  EXPECT_FALSE(config->controller.clip_norm);
  EXPECT_EQ(config->update.optimizer.kind, OptimizerKind::kNesterov);
  EXPECT_EQ(config->update.optimizer.momentum, 0.5f);
  EXPECT_EQ(config->update.rule.RateAt(1000), 0.25f);
  EXPECT_EQ(config->update.rule.clip_norm, 0);
  EXPECT_FALSE(config->needs_total_clocks);
}

TEST(JobConfigTest, TheMomentumOfARunningMeanIsAShare) {
  JobAssignment assignment = TwoWorkers(ConsistencySpec::SYNC);
  EXPECT_EQ(ReadJobConfig(assignment, 0)->momenta[0], std::nullopt);
  ParameterInfo* const mean = assignment.mutable_parameters(0);
  for (const float momentum : {0.0f, 0.9f, 1.0f}) {
    mean->set_momentum(momentum);
    EXPECT_EQ(ReadJobConfig(assignment, 0)->momenta[0], momentum);
  }
  // Workers push what it is at the end of a round, in LOCAL.
  JobAssignment local = assignment;
  *local.mutable_spec()->mutable_consistency() =
      LocalConsistency(OptimizerSpec::NESTEROV);
  *local.mutable_regimes(0)->mutable_consistency() = local.spec().consistency();
  EXPECT_EQ(ReadJobConfig(local, 0)->momenta[0], 0.0f);
  for (const float momentum : {-0.1f, 1.1f, std::nanf("")}) {
    mean->set_momentum(momentum);
    EXPECT_EQ(ReadJobConfig(assignment, 0).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// One dense block of a lone worker's job whose gradients are clipped.
struct ClippedJob {
  explicit ClippedJob(Lanes* lanes)
      : budget(std::make_shared<InFlightBudget>(kBudget)),
        buffers(std::make_shared<BufferPool>(1 << 20)) {
    JobAssignment assignment = TwoWorkers(ConsistencySpec::SYNC);
    assignment.mutable_workers()->RemoveLast();
    assignment.clear_tables();
    assignment.mutable_spec()->clear_tables();
    assignment.mutable_spec()->mutable_optimizer()->set_clip_norm(1);
    const auto config = ReadJobConfig(assignment, 0);
    EXPECT_OK(config.status());
    auto tables = EmbeddingTables::Create(*config, lanes->count(), {}, {});
    EXPECT_OK(tables.status());
    shard = std::make_shared<JobShard>(
        *config, JobShard::Resources{lanes, budget.get(), buffers.get()},
        [this](const ReductionRound&, std::vector<double>,
               std::function<void(JobShard::Sums)> done) {
          answer = std::move(done);
        },
        *std::move(tables));
    values->Append(std::vector<float>(4, 1));
    Caller chief;
    chief.set_incarnation(100);
    shard->Init(chief, {0}, 0, payload(), [](absl::Status, PullValues) {});
  }
  JobShard::Payload payload() const {
    JobShard::Payload payload;
    payload.values = values;
    return payload;
  }
  void Push(JobShard::Done done) {
    PushFacts push;
    push.sample_count = 1;
    push.blocks_in_clock = 1;
    push.blocks = {0};
    ShardCall call;
    call.incarnation = 100;
    call.deadline = absl::InfiniteFuture();
    call.push = std::move(push);
    shard->Call(std::move(call), payload(), nullptr, std::move(done));
  }

  const std::shared_ptr<InFlightBudget> budget;
  const std::shared_ptr<BufferPool> buffers;
  const std::shared_ptr<PayloadBytes> values = std::make_shared<PayloadBytes>();
  std::shared_ptr<JobShard> shard;
  std::function<void(JobShard::Sums)> answer;
};

TEST(JobShardNormTest, APushThatCompletesAClockWaitsForItsLanes) {
  Lanes lanes(2);
  ClippedJob job(&lanes);
  lanes.Drain();
  absl::Notification go;
  lanes.Submit(0, [&](DenseUpdater::Scratch*) { go.WaitForNotification(); });
  std::atomic<bool> done{false};
  job.Push([&](absl::Status, PullValues) { done = true; });
  EXPECT_FALSE(done) << "its block's lane has not taken it";
  EXPECT_FALSE(job.answer);
  go.Notify();
  lanes.Drain();
  EXPECT_TRUE(done);
  EXPECT_TRUE(job.answer);
  job.shard->Close(absl::CancelledError("over"));
}

// The job is closed, the ps has ended, and then an answer comes.
TEST(JobShardNormTest, ANormAfterTheEndTouchesNothing) {
  // Memory that can be made unreadable afterwards.
  void* const page = mmap(nullptr, sizeof(Lanes), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* const lanes = new (page) Lanes(1);
  ClippedJob job(lanes);
  job.Push([](absl::Status, PullValues) {});
  lanes->Drain();
  ASSERT_TRUE(job.answer);
  job.shard->Close(absl::CancelledError("over"));
  lanes->~Lanes();
  ASSERT_EQ(munmap(page, sizeof(Lanes)), 0);
  job.answer(std::vector<double>{1.0});
  job.answer(absl::UnavailableError("gone"));
}

}  // namespace
}  // namespace syncline::ps
