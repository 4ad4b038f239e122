#ifndef SYNCLINE_TESTS_COMPONENT_PS_CLIENT_FIXTURE_H_
#define SYNCLINE_TESTS_COMPONENT_PS_CLIENT_FIXTURE_H_

// The parts of ps_client_test share shards on the fake ps, which parse each
// request as protobuf, keep values in a map, apply "value -= gradient" and fail
// on demand; and a client of them.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/wire/block_map.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/fakes/fake_ps.h"
#include "tests/testing/fakes/relay.h"
#include "worker/client/ps_client.h"

namespace syncline {

inline constexpr int64_t kClocks = 10;

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
  // Sets what answers say of skipped clocks; by default none was.
  void SaySkippedThrough(int64_t clock) { skipped_through_ = clock; }
  // Sets the checkpoint whose cut answers say was passed; by default none.
  void SayCheckpointCut(uint64_t cut) { checkpoint_cut_ = cut; }
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
    // Compressed blocks are not applied.
    const auto blocks = push.block_bytes().empty()
                            ? Split(push.blocks(), payload)
                            : std::map<uint32_t, std::vector<float>>();
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
    response.mutable_header()->set_skipped_through(skipped_through_);
    response.mutable_header()->set_checkpoint_cut(checkpoint_cut_);
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
  std::atomic<int64_t> skipped_through_{0};
  std::atomic<uint64_t> checkpoint_cut_{0};
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

}  // namespace syncline

#endif  // SYNCLINE_TESTS_COMPONENT_PS_CLIENT_FIXTURE_H_
