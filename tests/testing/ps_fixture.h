#ifndef SYNCLINE_TESTS_TESTING_PS_FIXTURE_H_
#define SYNCLINE_TESTS_TESTING_PS_FIXTURE_H_

// Parameter servers in this process, with real gRPC between them and a plain
// client: one that knows only the proto, generated code and nothing of ours.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/metrics.h"
#include "common/regime/regime_schedule.h"
#include "common/rpc/grpc_channel.h"
#include "common/wire/block_map.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/service/ps_server.h"
#include "tests/testing/ps_node.h"

namespace syncline {

// How long a test waits for what a ps does at once.
inline constexpr absl::Duration kPsTimeout = absl::Seconds(20);

// `ps_count` servers and one job on them: workers with incarnation 100 + rank
// named "worker:<rank>", at made-up addresses.
class PsFixture {
 public:
  struct Options {
    uint32_t ps_count = 1;
    uint32_t workers = 1;
    // With the rank and the incarnation that one more worker would have.
    bool evaluator = false;
    std::vector<int64_t> tensor_sizes = {1000, 7, 3000, 1};
    uint64_t in_flight_bytes = 256 << 20;
    MetricsRegistry* metrics = nullptr;
    // By tensor: of a running mean.
    std::vector<std::optional<float>> momenta = {};
    // Elements of a row, for each table that `spec` adds.
    std::vector<uint32_t> table_dims = {};
    uint64_t table_memory_bytes = 64 << 20;
    uint64_t table_disk_bytes = 0;
    std::string spill_dir = {};
    // By rank of the ps; null: none.
    std::function<std::shared_ptr<ps::SnapshotTaker>(uint32_t ps)>
        snapshot_taker = {};
    bool shared_memory = true;
    uint64_t shared_memory_bytes = 1 << 30;
    int lanes = 2;  // of each ps
    // Where each ps begins: nothing, or what shards have exported.
    std::vector<std::string> states = {};
    // In place of `states`: the checkpoint that the job starts from.
    std::optional<CheckpointInfo> start_from = {};
    // "ps-RANK" below it is a ps' own.
    std::string checkpoint_dir = {};
    // PsServer's.
    absl::Duration checkpoint_wait_max = absl::Seconds(20);
    // Changes the job after sensible defaults: SGD at rate 1, SYNC.
    std::function<void(JobSpec*)> spec = {};
    // In place of the spec's, unless empty.
    std::vector<TrainingRegime> regimes = {};
  };
  // Fails the test if anything does not start, but for jobs with start_from:
  // opened() says how that went.
  explicit PsFixture(const Options& options);
  ~PsFixture();

  ps::PsServer& server(uint32_t ps) { return *nodes_[ps].server; }
  ParameterServer::Stub& stub(uint32_t ps) { return *stubs_[ps]; }
  const std::string& address(uint32_t ps) const { return nodes_[ps].address(); }
  const BlockMap& map() const { return *map_; }
  // Of the first ps that has not opened the job.
  const absl::Status& opened() const { return opened_; }
  const JobAssignment& assignment() const { return assignment_; }
  uint32_t ps_count() const { return static_cast<uint32_t>(nodes_.size()); }

 private:
  absl::Status Open(const Options& options, uint32_t rank);

  JobAssignment assignment_;
  absl::Status opened_;
  std::vector<PsNode> nodes_;
  std::vector<std::unique_ptr<ParameterServer::Stub>> stubs_;
  std::unique_ptr<BlockMap> map_;
};

// Values or gradients of all tensors, one after the other.
using Flat = std::vector<float>;

// One worker of the fixture's job. Calls block, until 20 s have passed.
class PlainWorker {
 public:
  PlainWorker(PsFixture* fixture, uint32_t rank);

  // All shards.
  absl::Status Init(const Flat& values, int64_t total_clocks = 0);
  absl::StatusOr<Flat> Pull(int64_t clock);
  absl::StatusOr<Flat> PullCut(uint64_t cut_id);
  absl::Status Push(int64_t clock, const Flat& gradient, uint64_t samples,
                    bool finished = false);
  absl::StatusOr<Flat> PushPull(int64_t clock, const Flat& gradient,
                                uint64_t samples, bool finished = false);
  absl::StatusOr<Flat> PushPullNothing(int64_t clock);
  absl::Status BeginCut(uint64_t cut_id, std::vector<int64_t> clocks);
  absl::Status EndCut(uint64_t cut_id);

  // One shard; for calls that should fail.
  PushRequest MakePush(uint32_t ps, int64_t clock, const Flat& gradient,
                       uint64_t samples) const;
  PullRequest MakePull(uint32_t ps, int64_t clock) const;
  absl::Status Send(uint32_t ps, const PushRequest& request,
                    absl::Duration timeout = absl::Seconds(20));
  absl::Status Send(uint32_t ps, const PullRequest& request,
                    absl::Duration timeout = absl::Seconds(20));
  Caller caller(uint32_t shard = 0) const;

 private:
  std::string Gather(uint32_t ps, const Flat& values) const;
  absl::Status Scatter(uint32_t ps, const PullResponse& response,
                       Flat* values) const;
  absl::StatusOr<Flat> PullAll(int64_t clock, uint64_t cut_id);

  PsFixture* const fixture_;
  const uint32_t rank_;
  std::vector<int64_t> tensor_starts_;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_PS_FIXTURE_H_
