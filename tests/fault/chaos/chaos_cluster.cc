#include "tests/fault/chaos/chaos_cluster.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "google/protobuf/util/json_util.h"

namespace syncline {
namespace {

constexpr uint64_t kCheckpointDiskBytes = 24 << 20;
constexpr uint64_t kStateDiskBytes = 160 << 20;
constexpr absl::Duration kLookEvery = absl::Milliseconds(150);
constexpr absl::Duration kAskTimeout = absl::Seconds(5);
constexpr absl::Duration kStartTimeout = absl::Minutes(2);
constexpr int kPs = 3;
constexpr double kLeaseSeconds = 3;
constexpr const char* kDaemons[] = {"ps-0",        "ps-1",     "ps-2",
                                    "chief-0",     "worker-0", "worker-1",
                                    "evaluator-0", "scheduler"};

absl::Duration Between(Random* random, double least, double most) {
  return absl::Seconds(least + random->Uniform() * (most - least));
}

absl::string_view ProcessOf(const std::string& name) {
  return name == "scheduler"             ? "scheduler"
         : absl::StartsWith(name, "ps-") ? "ps"
                                         : "worker";
}

}  // namespace

ChaosCluster::ChaosCluster(bool has_disks, std::vector<std::string> ps_flags)
    : has_disks_(has_disks),
      ps_flags_(std::move(ps_flags)),
      cluster_({.ps = kPs, .workers = 3, .evaluators = 1}) {}

// Before the cluster's folder is removed.
ChaosCluster::~ChaosCluster() {
  checkpoint_disk_.reset();
  state_disk_.reset();
}

absl::Status ChaosCluster::Start() {
  checkpoint_folder_ = cluster_.dir().File("checkpoints");
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(checkpoint_folder_));
  if (has_disks_) {
    SYNCLINE_ASSIGN_OR_RETURN(
        checkpoint_disk_,
        SmallDisk::Mount(checkpoint_folder_, kCheckpointDiskBytes));
    SYNCLINE_ASSIGN_OR_RETURN(
        state_disk_,
        SmallDisk::Mount(cluster_.dir().File("state"), kStateDiskBytes));
  }
  SYNCLINE_RETURN_IF_ERROR(StartDaemon("scheduler"));
  for (const char* name : kDaemons) {
    if (std::string(name) == "scheduler") continue;
    SYNCLINE_RETURN_IF_ERROR(StartDaemon(name));
  }
  return cluster_.WaitForFreeMembers(kPs + 4, kStartTimeout);
}

absl::Status ChaosCluster::StartDaemon(const std::string& name,
                                       const std::vector<std::string>& flags) {
  std::vector<std::string> all = flags;
  if (name == "scheduler") {
    all.push_back(absl::StrCat("--lease-seconds=", kLeaseSeconds));
  } else if (ProcessOf(name) == "ps") {
    const std::string listen = absl::StrCat("127.0.0.1:", UnusedPort());
    relays_[name] = std::make_unique<Relay>(listen);
    all.push_back(absl::StrCat("--listen=", listen));
    all.push_back(absl::StrCat("--advertise=", relays_[name]->address()));
    // Values, too, go through the relay.
    all.push_back("--shared-memory=off");
    all.insert(all.end(), ps_flags_.begin(), ps_flags_.end());
  }
  const absl::Status started = cluster_.StartDaemon(name, all);
  if (name == "scheduler") {
    scheduler_answers_ = started.ok();
    scheduler_is_armed_ = !flags.empty();
  }
  return started;
}

void ChaosCluster::Wait(absl::Duration time, const Look& look) {
  const absl::Time end = absl::Now() + time;
  while (absl::Now() < end) {
    look();
    absl::SleepFor(std::min(kLookEvery, end - absl::Now()));
  }
}

std::string ChaosCluster::Kill(const std::string& name, absl::Duration away,
                               const Look& look) {
  ++strikes_["kill"];
  if (name == "scheduler") scheduler_answers_ = false;
  cluster_.daemon(name).Signal(SIGKILL);
  cluster_.daemon(name).WaitUntil(absl::Now() + kStartTimeout);
  Wait(away, look);
  StartDaemon(name).IgnoreError();  // Revive tries again
  return absl::StrCat("kill ", name, " for ", absl::FormatDuration(away));
}

std::string ChaosCluster::Freeze(const std::string& name, absl::Duration time,
                                 const Look& look) {
  ++strikes_["freeze"];
  if (name == "scheduler") scheduler_answers_ = false;
  cluster_.daemon(name).Signal(SIGSTOP);
  Wait(time, look);
  cluster_.daemon(name).Signal(SIGCONT);
  if (name == "scheduler") scheduler_answers_ = true;
  return absl::StrCat("freeze ", name, " for ", absl::FormatDuration(time));
}

std::string ChaosCluster::HangUp(int ps) {
  ++strikes_["hang up"];
  relays_.at(absl::StrCat("ps-", ps))->Break();
  return absl::StrCat("hang up on ps-", ps);
}

std::string ChaosCluster::LoseAnswers(int ps, absl::Duration lasts,
                                      const Look& look) {
  ++strikes_["lost answers"];
  const std::string name = absl::StrCat("ps-", ps);
  relays_.at(name)->Stall(true);
  Wait(lasts, look);
  relays_.at(name)->Break();
  absl::SleepFor(absl::Milliseconds(50));
  relays_.at(name)->Stall(false);
  return absl::StrCat("answers of ", name, " lost for ",
                      absl::FormatDuration(lasts));
}

std::string ChaosCluster::FillDisk(SmallDisk* disk, const std::string& name,
                                   absl::Duration lasts, const Look& look) {
  ++strikes_["full disk"];
  const absl::Status filled = disk->Fill();
  Wait(lasts, look);
  disk->Free();
  return absl::StrCat("disk of ", name, " full for ",
                      absl::FormatDuration(lasts),
                      filled.ok() ? "" : " (not quite)");
}

std::string ChaosCluster::Arm(const std::string& name, Random* random,
                              const Look& look) {
  std::vector<absl::string_view> names;
  for (const FaultPointInfo& info : FaultPoints()) {
    if (!info.is_mutant && !info.needs_change &&
        info.process == ProcessOf(name)) {
      names.push_back(info.name);
    }
  }
  const std::string fault = absl::StrCat(names[random->Below(names.size())],
                                         ":", 1 + random->Below(4), ":exit");
  ++strikes_["fault point"];
  if (name == "scheduler") scheduler_answers_ = false;
  cluster_.daemon(name).Signal(SIGKILL);
  cluster_.daemon(name).WaitUntil(absl::Now() + kStartTimeout);
  Wait(absl::Milliseconds(100), look);
  StartDaemon(name, {absl::StrCat("--fault=", fault)}).IgnoreError();
  return absl::StrCat("restart ", name, " with --fault=", fault);
}

std::string ChaosCluster::Strike(Random* random, const Look& look) {
  // Those that a job leaves out are struck less often.
  std::string name = kDaemons[random->Below(std::size(kDaemons))];
  if (name == "ps-2" || name == "worker-1") {
    name = kDaemons[random->Below(std::size(kDaemons))];
  }
  int ps = static_cast<int>(random->Below(kPs));
  if (ps == kPs - 1) ps = static_cast<int>(random->Below(kPs));
  const uint64_t kind = random->Below(has_disks_ ? 10 : 9);
  switch (kind) {
    case 0:
    case 1:
      return Kill(name, Between(random, 0, 2), look);
    case 2:
      return Freeze(name, Between(random, 0.1, 1), look);
    case 3:  // beyond the lease
      return Freeze(name, Between(random, kLeaseSeconds, kLeaseSeconds + 3),
                    look);
    case 4:
    case 5:
      return LoseAnswers(ps, Between(random, 0.05, 0.5), look);
    case 6:
      return HangUp(ps);
    case 7:  // a partition
      return LoseAnswers(ps, Between(random, 1, 6), look);
    case 8:
      return Arm(name, random, look);
    default:
      break;
  }
  return random->Below(4) == 0 ? FillDisk(state_disk_.get(), "the scheduler",
                                          Between(random, 0.5, 2), look)
                               : FillDisk(checkpoint_disk_.get(), "checkpoints",
                                          Between(random, 0.5, 4), look);
}

void ChaosCluster::Revive() {
  for (const char* name : kDaemons) {
    if (cluster_.daemon(name).Poll().has_value()) {
      StartDaemon(name).IgnoreError();
    }
  }
}

void ChaosCluster::DisarmScheduler() {
  if (!scheduler_is_armed_) return;
  cluster_.daemon("scheduler").Signal(SIGKILL);
  cluster_.daemon("scheduler").WaitUntil(absl::Now() + kStartTimeout);
  StartDaemon("scheduler").IgnoreError();
}

absl::StatusOr<JobStatus> ChaosCluster::Get(const std::string& job_id) {
  if (!scheduler_answers_) return absl::UnavailableError("no scheduler");
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto result,
      cluster_.Synctl({"get", job_id, "--output", "json"}, kAskTimeout));
  if (result.exit.code != 0) return absl::UnavailableError(result.err);
  JobStatus job;
  if (!google::protobuf::util::JsonStringToMessage(result.out, &job).ok()) {
    return absl::DataLossError(result.out);
  }
  return job;
}

}  // namespace syncline
