// Goal: the client moves every gradient to the shard that owns it and every
// value back, once, whatever order or failures the calls meet; and it never
// waits for ever.
// Method: shards on the fake ps, which parse each request as protobuf, keep
// values in a map, apply "value -= gradient", and fail on demand.

#include "worker/client/ps_client.h"

#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/busy.h"
#include "common/base/mutex.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/fake_ps.h"
#include "tests/testing/fakes/relay.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kClocks = 10;

// A shard with values of its own.
class FakeShard {
 public:
  explicit FakeShard(const BlockMap* map)
      : map_(*map), ps_([this](const FakePs::Call& call) {
          return FakePs::Answer{.later = [this, call] { return Serve(call); }};
        }) {}

  const std::string& address() const { return ps_.address(); }
  void Shutdown() { ps_.Shutdown(); }

  // Answers with these, one call each, before serving again.
  void FailNext(std::vector<grpc::Status> statuses) {
    MutexLock lock(&mu_);
    failures_ = std::move(statuses);
  }
  // Every pull waits until all blocks of the shard were pushed, as in async.
  void HoldPullsUntilClosed() {
    MutexLock lock(&mu_);
    hold_pulls_ = true;
  }
  // Sets the time that answers claim to have waited; by default none.
  void ClaimToHaveWaited(double seconds) { claimed_wait_ = seconds; }
  // PushPulls stay in the queue until Take.
  void TakeNothing() { untaken_ = true; }
  void Take() {
    MutexLock lock(&mu_);
    untaken_ = false;
    changed_.SignalAll();
  }
  // Answers every call with `status`, as slowly as a call that waited for
  // others, until GetShardStatus has said so many times that a worker has just
  // moved. By default it says that no worker ever did.
  void FailUntilProbed(int probes, grpc::Status status) {
    MutexLock lock(&mu_);
    probes_to_fail_ = probes;
    waiting_ = std::move(status);
  }

  std::vector<std::string> seen() {
    MutexLock lock(&mu_);
    return seen_;
  }
  std::vector<PushHeader> pushes() {
    MutexLock lock(&mu_);
    return pushes_;
  }
  int calls() { return calls_; }

  BeginCutRequest cut() {
    MutexLock lock(&mu_);
    return cut_;
  }

 private:
  // On a thread of its own.
  FakePs::Answer Serve(const FakePs::Call& call) {
    if (call.method == "BeginCut") {
      ++calls_;
      MutexLock lock(&mu_);
      cut_ = call.As<BeginCutRequest>();
      return {};
    }
    if (call.method == "GetShardStatus") return Probe(call);
    if (call.method == "OfferMemory") return FakePs::Unimplemented();
    const grpc::Status entered = Enter(call.request);
    if (!entered.ok()) return {.status = entered};
    if (call.method == "Init") return Init(call.As<InitRequest>());
    if (call.method == "Push") {
      const auto request = call.As<PushRequest>();
      Apply(request.header(), request.payload());
      PushResponse response;
      response.set_outcome(PushResponse::ACCEPTED);
      return {.response = response.SerializeAsString()};
    }
    if (call.method == "Pull") {
      return Read(call, call.As<PullRequest>().header());
    }
    if (call.method == "PushPull") {
      WaitUntilTaken();
      const auto request = call.As<PushPullRequest>();
      Apply(request.header().push(), request.payload());
      return {.is_taken = true,
              .later = [this, call, pull = request.header().pull()] {
                return Read(call, pull);
              }};
    }
    return FakePs::Unimplemented();
  }

  FakePs::Answer Init(const InitRequest& request) {
    EXPECT_EQ(request.header().total_clocks(), kClocks);
    const auto blocks = Split(request.header().blocks(), request.payload());
    MutexLock lock(&mu_);
    for (const auto& [id, values] : blocks) values_[id] = values;
    return {};
  }

  FakePs::Answer Probe(const FakePs::Call& call) {
    ShardStatus status;
    ShardStatus::Job* const job = status.add_jobs();
    job->set_job_id(call.As<ShardStatusRequest>().job_id());
    MutexLock lock(&mu_);
    job->set_quiet_seconds(probes_to_fail_ > 0 ? 0 : -1);
    if (probes_to_fail_ > 0) --probes_to_fail_;
    return {.response = status.SerializeAsString()};
  }

  grpc::Status Enter(const std::string& request) {
    ++calls_;
    MutexLock lock(&mu_);
    seen_.push_back(request);
    if (probes_to_fail_ > 0) {
      changed_.WaitUntil(&mu_, absl::Now() + absl::Milliseconds(50));
      return waiting_;
    }
    if (failures_.empty()) return grpc::Status::OK;
    const grpc::Status failure = failures_.front();
    failures_.erase(failures_.begin());
    return failure;
  }

  void WaitUntilTaken() {
    MutexLock lock(&mu_);
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (untaken_ && changed_.WaitUntil(&mu_, deadline)) {
    }
  }

  template <typename Ids>
  std::map<uint32_t, std::vector<float>> Split(
      const Ids& ids, const std::string& payload) const {
    std::map<uint32_t, std::vector<float>> blocks;
    size_t offset = 0;
    for (const uint32_t id : ids) {
      std::vector<float>& values = blocks[id];
      values.resize(static_cast<size_t>(map_.blocks()[id].count));
      const size_t bytes = values.size() * sizeof(float);
      EXPECT_LE(offset + bytes, payload.size());
      if (offset + bytes > payload.size()) return blocks;
      std::memcpy(values.data(), payload.data() + offset, bytes);
      offset += bytes;
    }
    EXPECT_EQ(offset, payload.size());
    return blocks;
  }

  void Apply(const PushHeader& push, const std::string& payload) {
    const auto blocks = Split(push.blocks(), payload);
    MutexLock lock(&mu_);
    pushes_.push_back(push);
    for (const auto& [id, gradient] : blocks) {
      if (!applied_.insert({push.clock(), id}).second) continue;
      std::vector<float>& values = values_[id];
      for (size_t i = 0; i < values.size(); ++i) values[i] -= gradient[i];
    }
    changed_.SignalAll();
  }

  FakePs::Answer Read(const FakePs::Call& call, const PullHeader& pull) {
    MutexLock lock(&mu_);
    const absl::Time deadline =
        absl::Now() + absl::Seconds(pull.wait_seconds());
    while (hold_pulls_ && applied_.size() < values_.size()) {
      if (absl::Now() > deadline || *call.is_cancelled) {
        return {.status = {grpc::StatusCode::DEADLINE_EXCEEDED,
                           "worker:9 has not come"}};
      }
      // Short, because a cancellation does not signal changed_.
      changed_.WaitUntil(&mu_, absl::Now() + absl::Milliseconds(20));
    }
    PullResponse response;
    response.mutable_header()->set_waited_seconds(claimed_wait_);
    for (const uint32_t id : pull.blocks()) {
      response.mutable_header()->add_blocks(id);
      const std::vector<float>& values = values_[id];
      response.mutable_payload()->append(
          reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float));
    }
    return {.response = response.SerializeAsString()};
  }

  const BlockMap& map_;
  std::atomic<int> calls_{0};
  std::atomic<bool> untaken_{false};
  std::atomic<double> claimed_wait_{0};
  Mutex mu_;
  CondVar changed_;
  bool hold_pulls_ ABSL_GUARDED_BY(mu_) = false;
  int probes_to_fail_ ABSL_GUARDED_BY(mu_) = 0;
  grpc::Status waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<grpc::Status> failures_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> seen_ ABSL_GUARDED_BY(mu_);
  std::vector<PushHeader> pushes_ ABSL_GUARDED_BY(mu_);
  std::map<uint32_t, std::vector<float>> values_ ABSL_GUARDED_BY(mu_);
  std::set<std::pair<int64_t, uint32_t>> applied_ ABSL_GUARDED_BY(mu_);
  BeginCutRequest cut_ ABSL_GUARDED_BY(mu_);
  FakePs ps_;  // last: its threads use the rest
};

// A client with its tensors and shards.
class PsClientTest : public ::testing::Test {
 protected:
  struct Memory {
    std::vector<std::vector<float>> values;
    std::vector<std::vector<float>> gradients;
  };

  // `relayed`: the shard that is reached through relay_.
  void SetUpCluster(std::vector<int64_t> counts, uint32_t shards,
                    worker::PsClient::Options options = {},
                    std::optional<uint32_t> relayed = std::nullopt) {
    std::vector<TensorSize> sizes;
    memory_ = std::make_shared<Memory>();
    for (const int64_t count : counts) {
      const auto tensor = static_cast<float>(sizes.size());
      sizes.push_back({absl::StrCat("t", sizes.size()), count});
      std::vector<float>& values = memory_->values.emplace_back(count);
      std::iota(values.begin(), values.end(), 1000 * tensor);
      std::vector<float>& gradients = memory_->gradients.emplace_back(count);
      for (size_t i = 0; i < gradients.size(); ++i) {
        gradients[i] = static_cast<float>(i % 17) + tensor;
      }
    }
    map_ = std::make_unique<BlockMap>(*BlockMap::Create(sizes, shards));
    for (uint32_t shard = 0; shard < shards; ++shard) {
      shards_.push_back(std::make_unique<FakeShard>(map_.get()));
      std::string address = shards_.back()->address();
      if (shard == relayed) {
        relay_ = std::make_unique<Relay>(address);
        address = relay_->address();
      }
      options.ps.push_back({absl::StrCat("ps:", shard), address});
    }
    options.job_id = "j-7";
    options.rank = 2;
    options.incarnation = 42;
    worker::DenseTensors tensors;
    for (std::vector<float>& v : memory_->values) {
      tensors.values.push_back(absl::MakeSpan(v));
    }
    for (const std::vector<float>& g : memory_->gradients) {
      tensors.gradients.push_back(g);
    }
    tensors.first_use = first_use_;
    tensors.running_means = running_means_;
    tensors.owner = memory_;
    client_ =
        std::make_unique<worker::PsClient>(options, *map_, std::move(tensors));
  }

  absl::Status RunStep(int64_t clock) {
    client_->BeginStep({.clock = clock, .sample_count = 3});
    for (size_t i = memory_->values.size(); i-- > 0;) {
      client_->OnGradientReady(static_cast<uint32_t>(i));
    }
    client_->EndBackward({});
    return client_->Wait();
  }

  // Init, then one step: the values must be the initial ones less gradients.
  void ExpectStepMovesEverything() {
    std::vector<std::vector<float>> expected = memory_->values;
    for (size_t t = 0; t < expected.size(); ++t) {
      for (size_t i = 0; i < expected[t].size(); ++i) {
        expected[t][i] -= memory_->gradients[t][i];
      }
    }
    ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
    ASSERT_EQ(RunStep(0), absl::OkStatus());
    EXPECT_EQ(memory_->values, expected);
  }

  // The sum of squares, block by block, of tensors `from` and later.
  double SquaredNorm(uint32_t from) const {
    double norm = 0;
    for (const Block& block : map_->blocks()) {
      if (block.tensor < from) continue;
      double partial = 0;
      for (int64_t i = 0; i < block.count; ++i) {
        const double g = memory_->gradients[block.tensor][block.offset + i];
        partial += g * g;
      }
      norm += partial;
    }
    return norm;
  }

  std::vector<uint32_t> first_use_;
  std::vector<bool> running_means_;
  std::shared_ptr<Memory> memory_;
  std::unique_ptr<BlockMap> map_;
  std::vector<std::unique_ptr<FakeShard>> shards_;
  std::unique_ptr<Relay> relay_;
  std::unique_ptr<worker::PsClient> client_;
};

TEST_F(PsClientTest, MovesGradientsOutAndValuesBack) {
  SetUpCluster({100'000, 10, 5000, 1}, 2);
  ExpectStepMovesEverything();
  for (const auto& shard : shards_) {
    for (const PushHeader& push : shard->pushes()) {
      EXPECT_EQ(push.caller().job_id(), "j-7");
      EXPECT_EQ(push.caller().rank(), 2u);
      EXPECT_EQ(push.caller().incarnation(), 42u);
      EXPECT_EQ(push.caller().routing_version(), 1u);
      EXPECT_EQ(push.sample_count(), 3u);
    }
  }
  for (uint32_t s = 0; s < 2; ++s) {
    size_t blocks = 0;
    for (const PushHeader& push : shards_[s]->pushes()) {
      EXPECT_EQ(push.blocks_in_clock(), map_->shard_blocks(s).size());
      blocks += static_cast<size_t>(push.blocks_size());
    }
    EXPECT_EQ(blocks, map_->shard_blocks(s).size());
  }
}

TEST_F(PsClientTest, AShardLargerThanTheWindowDoesNotWaitForItself) {
  worker::PsClient::Options options;
  options.chunk_bytes = 16 << 10;
  options.push_window_bytes = 32 << 10;  // of 400 kB
  options.pull_window_bytes = 32 << 10;
  SetUpCluster({100'000}, 1, options);
  shards_[0]->HoldPullsUntilClosed();
  ExpectStepMovesEverything();
}

// So a ps that is slower than the network holds a window of each worker, not a
// gradient.
TEST_F(PsClientTest, NoMoreThanTheWindowIsOnItsWayUntilTheShardTakesIt) {
  worker::PsClient::Options options;
  options.chunk_bytes = 16 << 10;
  options.push_window_bytes = 64 << 10;  // of 400 kB
  SetUpCluster({100'000}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  const size_t before = shards_[0]->seen().size();
  shards_[0]->TakeNothing();
  client_->BeginStep({.clock = 0, .sample_count = 3});
  client_->OnGradientReady(0);
  client_->EndBackward({});
  EXPECT_TRUE(Eventually(absl::Seconds(30), [&] {
    return shards_[0]->seen().size() == before + 4;
  }));
  // A fifth would have left by now.
  EXPECT_FALSE(Eventually(absl::Milliseconds(200), [&] {
    return shards_[0]->seen().size() > before + 4;
  }));
  shards_[0]->Take();
  ASSERT_EQ(client_->Wait(), absl::OkStatus());
}

// The shard has not taken what it refused, so the repeat is counted again.
TEST_F(PsClientTest, WhatIsSentAgainTakesPartInTheWindowAgain) {
  worker::PsClient::Options options;
  options.chunk_bytes = 16 << 10;
  options.push_window_bytes = 64 << 10;  // of 400 kB
  SetUpCluster({100'000}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  const size_t before = shards_[0]->seen().size();
  shards_[0]->FailNext(std::vector<grpc::Status>(
      4, {grpc::StatusCode::UNAVAILABLE, "no room yet"}));
  shards_[0]->TakeNothing();
  client_->BeginStep({.clock = 0, .sample_count = 3});
  client_->OnGradientReady(0);
  client_->EndBackward({});
  // Four that failed, and four that wait.
  EXPECT_TRUE(Eventually(absl::Seconds(30), [&] {
    return shards_[0]->seen().size() == before + 8;
  }));
  // A ninth would have left by now.
  EXPECT_FALSE(Eventually(absl::Milliseconds(300), [&] {
    return shards_[0]->seen().size() > before + 8;
  }));
  shards_[0]->Take();
  ASSERT_EQ(client_->Wait(), absl::OkStatus());
}

// A perceptron 784-256-256-10: less than 1.1 MB in all.
TEST_F(PsClientTest, TheLastLayersLeaveWhileTheFirstIsComputed) {
  SetUpCluster({784 * 256, 256, 256 * 256, 256, 2560, 10}, 1);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  client_->BeginStep({.clock = 0, .sample_count = 3});
  for (uint32_t tensor = 5; tensor >= 2; --tensor) {
    client_->OnGradientReady(tensor);
  }
  // Backward is still busy with the first layer.
  EXPECT_TRUE(Eventually(absl::Seconds(30),
                         [&] { return !shards_[0]->pushes().empty(); }));
  for (const PushHeader& push : shards_[0]->pushes()) {
    for (const uint32_t block : push.blocks()) {
      EXPECT_GE(map_->blocks()[block].tensor, 2u);
    }
  }
  client_->OnGradientReady(1);
  client_->OnGradientReady(0);
  client_->EndBackward({});
  ASSERT_EQ(client_->Wait(), absl::OkStatus());
}

TEST_F(PsClientTest, WhatTheServersWaitedForIsNotThePull) {
  SetUpCluster({100'000}, 1);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  ASSERT_EQ(RunStep(0), absl::OkStatus());
  EXPECT_EQ(client_->wait_times().wait, absl::ZeroDuration());
  EXPECT_GT(client_->wait_times().pull, absl::ZeroDuration());
  // More than the step took: no time is counted twice.
  shards_[0]->ClaimToHaveWaited(1000);
  ASSERT_EQ(RunStep(1), absl::OkStatus());
  EXPECT_GT(client_->wait_times().wait, absl::ZeroDuration());
  EXPECT_EQ(client_->wait_times().pull, absl::ZeroDuration());
}

TEST_F(PsClientTest, PullReadsAllValues) {
  SetUpCluster({3000, 70}, 2);
  const auto initial = memory_->values;
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  for (auto& values : memory_->values)
    std::fill(values.begin(), values.end(), 0);
  ASSERT_EQ(client_->Pull(0), absl::OkStatus());
  EXPECT_EQ(memory_->values, initial);
}

TEST_F(PsClientTest, WhatIsNeededFirstIsPulledFirst) {
  first_use_ = {2, 0, 3, 1};
  worker::PsClient::Options options;
  options.chunk_bytes = 4096;
  options.pull_window_bytes = 4096;  // one after the other
  SetUpCluster({1024, 1024, 1024, 1024}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  const size_t before = shards_[0]->seen().size();
  ASSERT_EQ(client_->Pull(0), absl::OkStatus());
  const std::vector<std::string> seen = shards_[0]->seen();
  std::vector<uint32_t> tensors;
  for (size_t i = before; i < seen.size(); ++i) {
    PullRequest request;
    ASSERT_TRUE(request.ParseFromString(seen[i]));
    ASSERT_EQ(request.header().blocks_size(), 1);
    tensors.push_back(map_->blocks()[request.header().blocks(0)].tensor);
  }
  EXPECT_THAT(tensors, ElementsAre(1, 3, 0, 2));
}

TEST_F(PsClientTest, RepeatsWithTheSameBytes) {
  SetUpCluster({3000, 70}, 1);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  const size_t before = shards_[0]->seen().size();
  shards_[0]->FailNext({{grpc::StatusCode::UNAVAILABLE, "draining"},
                        {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"}});
  ASSERT_EQ(RunStep(0), absl::OkStatus());
  const std::vector<std::string> seen = shards_[0]->seen();
  ASSERT_THAT(seen, SizeIs(before + 3));
  EXPECT_EQ(seen[before], seen[before + 1]);
  EXPECT_EQ(seen[before], seen[before + 2]);
}

TEST_F(PsClientTest, ARefusalEndsTheStepAndNamesWhoAndWhen) {
  SetUpCluster({3000, 70}, 2);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[1]->FailNext(
      {{grpc::StatusCode::FAILED_PRECONDITION, "incarnation was replaced"}});
  const absl::Status status = RunStep(5);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:1"), HasSubstr(shards_[1]->address()),
                    HasSubstr("j-7"), HasSubstr("clock 5"),
                    HasSubstr("incarnation was replaced")));
  EXPECT_EQ(RunStep(6), status) << "the client stays closed";
}

TEST_F(PsClientTest, APsThatIsGoneFailsTheStepAfterThePatience) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(2);
  SetUpCluster({3000, 70}, 2, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[1]->Shutdown();
  const absl::Status status = RunStep(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:1"), HasSubstr(shards_[1]->address())));
}

TEST_F(PsClientTest, APsThatIsOutOfReachIsToldBeforeThePatienceEnds) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(5);
  Mutex mu;
  std::vector<std::pair<uint32_t, absl::Duration>> told;
  options.on_unreachable = [&](uint32_t shard, absl::Duration out_of_reach,
                               const absl::Status& error) {
    MutexLock lock(&mu);
    told.emplace_back(shard, out_of_reach);
    EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable);
  };
  SetUpCluster({3000, 70}, 2, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[1]->Shutdown();
  EXPECT_EQ(RunStep(0).code(), absl::StatusCode::kUnavailable);
  client_.reset();  // nothing calls on_unreachable any more
  MutexLock lock(&mu);
  ASSERT_THAT(told, ::testing::Not(IsEmpty()));
  for (const auto& [shard, out_of_reach] : told) {
    EXPECT_EQ(shard, 1u);
    EXPECT_GE(out_of_reach, options.step_timeout / 16);
  }
}

// A network that swallows everything breaks no call before the keep-alive
// does, which takes longer than this patience.
TEST_F(PsClientTest, APsThatSaysNothingIsToldBeforeThePatienceEnds) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(4);
  Mutex mu;
  std::vector<std::pair<uint32_t, absl::Duration>> told;
  options.on_unreachable = [&](uint32_t shard, absl::Duration out_of_reach,
                               const absl::Status&) {
    MutexLock lock(&mu);
    told.emplace_back(shard, out_of_reach);
  };
  SetUpCluster({3000, 70}, 2, options, /*relayed=*/1);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  ASSERT_EQ(RunStep(0), absl::OkStatus());
  relay_->Stall(true);
  EXPECT_EQ(RunStep(1).code(), absl::StatusCode::kDeadlineExceeded);
  client_.reset();  // nothing calls on_unreachable any more
  MutexLock lock(&mu);
  ASSERT_THAT(told, ::testing::Not(IsEmpty()));
  EXPECT_EQ(told[0].first, 1u);
  EXPECT_LT(told[0].second, options.step_timeout);
}

TEST_F(PsClientTest, WaitsForOthersAsLongAsTheyMove) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(2);
  SetUpCluster({70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[0]->FailUntilProbed(3, {grpc::StatusCode::DEADLINE_EXCEEDED,
                                  "waiting for worker:1, clock 3"});
  EXPECT_EQ(RunStep(0), absl::OkStatus());
}

TEST_F(PsClientTest, GivesUpWhenNobodyMovesAndRepeatsTheShardsReason) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(4);
  SetUpCluster({70, 50'000}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[0]->HoldPullsUntilClosed();
  client_->BeginStep({.clock = 0, .sample_count = 3});
  client_->OnGradientReady(0);  // the other tensor never comes
  client_->EndBackward({});
  const absl::Status status = client_->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:0"), HasSubstr("clock 0"),
                    HasSubstr("worker:9 has not come")));
}

// The parked calls that hold the room wait in vain: the job may be run again.
TEST_F(PsClientTest, ABusyShardIsGivenUpAsAWait) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(2);
  SetUpCluster({70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[0]->FailNext(std::vector<grpc::Status>(
      1000, ToGrpcStatus(BusyError("parked calls hold 512 bytes"))));
  const absl::Status status = RunStep(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("ps:0"), HasSubstr("parked calls hold 512 bytes")));
}

// A table that is full stays so.
TEST_F(PsClientTest, AFullShardIsGivenUpAsFull) {
  worker::PsClient::Options options;
  options.step_timeout = absl::Seconds(2);
  SetUpCluster({70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[0]->FailNext(std::vector<grpc::Status>(
      1000, ToGrpcStatus(absl::ResourceExhaustedError("disk full"))));
  const absl::Status status = RunStep(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("disk full"));
}

TEST_F(PsClientTest, CancelEndsAWaitAtOnce) {
  SetUpCluster({70, 50'000}, 1);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[0]->HoldPullsUntilClosed();
  client_->BeginStep({.clock = 0, .sample_count = 3});
  client_->OnGradientReady(0);
  client_->EndBackward({});
  std::thread canceller(
      [&] { client_->Cancel(absl::CancelledError("the job was stopped")); });
  EXPECT_EQ(client_->Wait(), absl::CancelledError("the job was stopped"));
  canceller.join();
}

TEST_F(PsClientTest, WithoutSamplesEveryShardGetsAnEmptyCloseAndIsRead) {
  SetUpCluster({3000, 70}, 2);
  const auto initial = memory_->values;
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  for (auto& values : memory_->values)
    std::fill(values.begin(), values.end(), 0);
  client_->BeginStep({.clock = 0, .sample_count = 0, .finished = true});
  client_->EndBackward({});
  ASSERT_EQ(client_->Wait(), absl::OkStatus());
  EXPECT_EQ(memory_->values, initial);
  for (const auto& shard : shards_) {
    const std::vector<PushHeader> pushes = shard->pushes();
    ASSERT_THAT(pushes, SizeIs(1));
    EXPECT_THAT(pushes[0].blocks(), IsEmpty());
    EXPECT_EQ(pushes[0].sample_count(), 0u);
    EXPECT_EQ(pushes[0].blocks_in_clock(), 0u);
    EXPECT_TRUE(pushes[0].finished());
  }
}

TEST_F(PsClientTest, AShardWithoutBlocksIsLeftAlone) {
  SetUpCluster({5}, 3);
  ExpectStepMovesEverything();
  ASSERT_EQ(client_->BeginCut(1, 4, 2, std::nullopt), absl::OkStatus());
  int contacted = 0;
  for (const auto& shard : shards_) contacted += shard->calls() > 0 ? 1 : 0;
  EXPECT_EQ(contacted, 1);
}

TEST_F(PsClientTest, ACutNamesAClockForEveryWorker) {
  SetUpCluster({3000}, 1);
  ASSERT_EQ(client_->BeginCut(9, 40, 3, std::nullopt), absl::OkStatus());
  EXPECT_EQ(shards_[0]->cut().cut_id(), 9u);
  EXPECT_THAT(shards_[0]->cut().clocks(), ElementsAre(40, 40, 40));
  EXPECT_GT(shards_[0]->cut().hold_seconds(), 0);
}

TEST_F(PsClientTest, TheNormIsOfTheWholeGradientSoNothingLeavesEarly) {
  worker::PsClient::Options options;
  options.send_norm = true;
  options.chunk_bytes = 4096;
  SetUpCluster({3000, 70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  client_->BeginStep({.clock = 0, .sample_count = 3});
  client_->OnGradientReady(1);
  client_->OnGradientReady(0);
  EXPECT_THAT(shards_[0]->pushes(), IsEmpty());
  client_->EndBackward({});
  ASSERT_EQ(client_->Wait(), absl::OkStatus());
  ASSERT_THAT(shards_[0]->pushes(), ::testing::Not(IsEmpty()));
  for (const PushHeader& push : shards_[0]->pushes()) {
    EXPECT_EQ(push.squared_norm(), SquaredNorm(/*from=*/0));
  }
}

TEST_F(PsClientTest, RunningMeansAreNoPartOfTheNorm) {
  worker::PsClient::Options options;
  options.send_norm = true;
  running_means_ = {true, false};
  SetUpCluster({3000, 70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  ASSERT_EQ(RunStep(0), absl::OkStatus());
  ASSERT_THAT(shards_[0]->pushes(), ::testing::Not(IsEmpty()));
  for (const PushHeader& push : shards_[0]->pushes()) {
    EXPECT_EQ(push.squared_norm(), SquaredNorm(/*from=*/1));
  }
}

TEST_F(PsClientTest, ARunningMeanThatIsNotFiniteFailsTheJob) {
  worker::PsClient::Options options;
  options.send_norm = true;
  running_means_ = {true, false};
  SetUpCluster({3000, 70}, 1, options);
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  memory_->gradients[0][12] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(RunStep(0),
            absl::FailedPreconditionError("the gradient of clock 0 is not "
                                          "finite: element 12 of tensor 0"));
}

TEST_F(PsClientTest, LetsGoOfTheMemoryAlsoAfterACancelledStep) {
  SetUpCluster({70, 50'000}, 1);
  absl::Notification gone;
  memory_ = std::shared_ptr<Memory>(memory_.get(),
                                    [owner = memory_, &gone](Memory*) mutable {
                                      owner.reset();
                                      gone.Notify();
                                    });
  worker::PsClient::Options options;
  options.job_id = "j-7";
  options.ps = {{"ps:0", shards_[0]->address()}};
  worker::DenseTensors tensors;
  for (auto& v : memory_->values) tensors.values.push_back(absl::MakeSpan(v));
  for (auto& g : memory_->gradients) tensors.gradients.push_back(g);
  tensors.owner = memory_;
  client_ =
      std::make_unique<worker::PsClient>(options, *map_, std::move(tensors));
  ASSERT_EQ(client_->Init(kClocks), absl::OkStatus());
  shards_[0]->HoldPullsUntilClosed();
  client_->BeginStep({.clock = 0, .sample_count = 3});
  client_->OnGradientReady(1);
  client_->EndBackward({});
  client_->Cancel(absl::CancelledError("stopped"));
  client_.reset();
  memory_.reset();
  EXPECT_TRUE(gone.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

}  // namespace
}  // namespace syncline
