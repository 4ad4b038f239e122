// Measures what idle members cost a scheduler: 11,000 members in three control
// loops (a cluster takes 4,096), each with a real ClusterCore, state store and
// metrics. Every member sends a heartbeat a second, as bytes that are parsed as
// a stream's would be; every loop ticks, and its metrics and its list of
// members are read every ten and every two seconds. gRPC's streams are not in
// it.
//
// Compared is this process's CPU time with that of a second, by the clock of
// the process, so other load on the machine counts for little.

#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/daemon/metrics.h"
#include "common/system/log.h"
#include "scheduler/service/control_loop.h"
#include "tests/bench/benchmarks.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using scheduler::ArtifactStore;
using scheduler::ClusterCore;
using scheduler::ControlLoop;
using scheduler::SchedulerMetrics;
using scheduler::SessionId;
using scheduler::StateStore;

constexpr int kLoops = 3;
constexpr int kMembers = 11'000;
// Heartbeats leave in so many bursts a second, as the members' clocks have it.
constexpr int kBursts = 20;

class NoSession final : public ControlLoop::Session {
 public:
  void Send(const SchedulerMessage& message) override {
    // gRPC would write the message in this form.
    SYNCLINE_CHECK(!message.SerializeAsString().empty());
  }
  void End(const absl::Status& status) override {
    SYNCLINE_CHECK(status.ok() || ended.ok());
    ended = status;
  }
  absl::Status ended;
};

absl::Duration CpuTime() {
  struct rusage usage = {};
  SYNCLINE_CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return absl::DurationFromTimeval(usage.ru_utime) +
         absl::DurationFromTimeval(usage.ru_stime);
}

// One cluster of idle workers.
class IdleCluster {
 public:
  static absl::StatusOr<std::unique_ptr<IdleCluster>> Create(
      const std::string& folder, int members) {
    auto cluster = std::make_unique<IdleCluster>();
    SYNCLINE_ASSIGN_OR_RETURN(cluster->state_,
                              StateStore::Open(folder + "/db"));
    SYNCLINE_ASSIGN_OR_RETURN(cluster->artifacts_, ArtifactStore::Open(folder));
    cluster->metrics_ = std::make_unique<SchedulerMetrics>(&cluster->registry_);
    ControlLoop::Options options;
    options.core.version = "0.1.0";
    options.core.new_secret = [] { return std::string("0123456789abcdef"); };
    // A loaded machine may hold up this process.
    options.core.lease = absl::Minutes(10);
    cluster->loop_ = std::make_unique<ControlLoop>(
        options, StateStore::Loaded(), cluster->state_.get(),
        cluster->artifacts_.get(), cluster->metrics_.get());
    ControlLoop* const loop = cluster->loop_.get();
    cluster->collecting_ = cluster->registry_.AddCollector(
        [loop, metrics = cluster->metrics_.get()](MetricSamples* samples) {
          loop->Read([&](const ClusterCore& core, absl::Time now) {
            metrics->Collect(core, now, samples);
          });
        });
    for (int i = 0; i < members; ++i) cluster->Join(i);
    return cluster;
  }
  ~IdleCluster() {
    collecting_.reset();
    loop_->Stop();
  }

  // Of the members [begin, end).
  void Beat(size_t begin, size_t end) {
    for (size_t i = begin; i < end && i < sessions_.size(); ++i) {
      DaemonMessage message;
      SYNCLINE_CHECK(message.ParseFromString(heartbeat_));
      loop_->OnMessage(sessions_[i], std::move(message), [] {});
    }
  }
  size_t ScrapeBytes() { return registry_.Render().size(); }
  size_t ListBytes() {
    ClusterStatus members;
    loop_->Read([&](const ClusterCore& core, absl::Time now) {
      members = core.Cluster(now);
    });
    return members.SerializeAsString().size();
  }
  // The messages so far are handled.
  size_t Members() {
    const absl::Time end = absl::Now() + absl::Minutes(5);
    size_t members = 0;
    while (members < sessions_.size() && absl::Now() < end) {
      absl::SleepFor(absl::Milliseconds(100));
      loop_->Read([&](const ClusterCore& core, absl::Time) {
        members = core.membership().size();
      });
    }
    return members;
  }

 private:
  void Join(int index) {
    DaemonMessage message;
    Member* const member = message.mutable_register_()->mutable_member();
    member->mutable_task()->set_type(WORKER);
    member->mutable_task()->set_index(static_cast<uint32_t>(index));
    member->set_address(
        absl::StrCat("worker-", index, ".cluster.example:7070"));
    member->set_incarnation(0x1234567800000000u + static_cast<uint64_t>(index));
    member->set_version("0.1.0");
    sessions_.push_back(loop_->AddSession(std::make_shared<NoSession>()));
    loop_->OnMessage(sessions_.back(), std::move(message), [] {});
  }

  static std::string Heartbeat() {
    DaemonMessage message;
    message.mutable_heartbeat();
    return message.SerializeAsString();
  }

  const std::string heartbeat_ = Heartbeat();
  MetricsRegistry registry_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<ArtifactStore> artifacts_;
  std::unique_ptr<SchedulerMetrics> metrics_;
  std::unique_ptr<ControlLoop> loop_;
  std::unique_ptr<MetricsRegistry::Collecting> collecting_;
  std::vector<SessionId> sessions_;
};

}  // namespace

absl::Status RunSchedulerBench(const BenchOptions& options, Report* report) {
  const int members = options.smoke ? 300 : kMembers;
  const int seconds = options.smoke ? 1 : 10;
  // A line for each member that joins says nothing here.
  LogOptions quiet;
  quiet.min_level = LogLevel::kError;
  SYNCLINE_RETURN_IF_ERROR(InitLog(quiet));
  const TempDir dir;
  std::vector<std::unique_ptr<IdleCluster>> clusters;
  const size_t each = static_cast<size_t>((members + kLoops - 1) / kLoops);
  for (int i = 0; i < kLoops; ++i) {
    const size_t begin = static_cast<size_t>(i) * each;
    SYNCLINE_ASSIGN_OR_RETURN(
        auto cluster,
        IdleCluster::Create(dir.File(absl::StrCat("state-", i)),
                            static_cast<int>(std::min(each, members - begin))));
    clusters.push_back(std::move(cluster));
  }
  size_t joined = 0;
  for (const auto& cluster : clusters) joined += cluster->Members();
  if (joined != static_cast<size_t>(members)) {
    return absl::InternalError(
        absl::StrCat("only ", joined, " of ", members, " members have joined"));
  }
  report->Set("members", members);
  report->Set("clusters", kLoops);
  for (int i = 0; i < options.repetitions; ++i) {
    const absl::Time begin = absl::Now();
    const absl::Duration cpu = CpuTime();
    for (int burst = 0; burst < seconds * kBursts; ++burst) {
      const size_t part = (each + kBursts - 1) / kBursts;
      const size_t at = static_cast<size_t>(burst % kBursts) * part;
      for (const auto& cluster : clusters) {
        cluster->Beat(at, at + part);
        if (burst % (2 * kBursts) == 0) {
          report->Set("list_bytes", cluster->ListBytes());
        }
        if (burst % (10 * kBursts) == 1) {
          report->Set("scrape_bytes", cluster->ScrapeBytes());
        }
      }
      absl::SleepFor(begin + (burst + 1) * absl::Seconds(1) / kBursts -
                     absl::Now());
    }
    // A busy machine takes longer than it should for the same heartbeats, whose
    // cost is counted by the second of heartbeats.
    const double cores =
        absl::ToDoubleSeconds(CpuTime() - cpu) / static_cast<double>(seconds);
    report->Add("idle members", "cores", cores);
    report->Add("each", "us/s", 1e6 * cores / members);
  }
  report->SetGoal("idle members", AtMost(0.5));
  return absl::OkStatus();
}

}  // namespace syncline
