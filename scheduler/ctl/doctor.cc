#include "scheduler/ctl/doctor.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/system/local_socket.h"
#include "common/system/shared_region.h"
#include "google/protobuf/struct.pb.h"
#include "scheduler/ctl/address_check.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {
namespace {

using Verdict = Finding::Verdict;

absl::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kProblem:
      return "problem";
    case Verdict::kNote:
      return "note";
  }
  return "";
}

// The first two numbers decide (common/base/version.h).
bool MayWorkTogether(absl::string_view a, absl::string_view b) {
  const auto release = [](absl::string_view version) {
    return std::pair<std::string, std::string>(
        absl::StrSplit(version, absl::MaxSplits('.', 2)));
  };
  return release(a) == release(b);
}

class Doctor {
 public:
  explicit Doctor(const DoctorOptions& options) : options_(options) {}

  std::vector<Finding> Diagnose() {
    CheckTfConfig();
    CheckSchedulerFlag();
    if (options_.offline) return std::move(findings_);
    CheckNames();
    CheckOwnPort();
    CheckSharedMemory();
    CheckScheduler();
    return std::move(findings_);
  }

 private:
  void Add(Verdict verdict, std::string subject, std::string detail) {
    findings_.push_back({verdict, std::move(subject), std::move(detail)});
  }

  void CheckTfConfig() {
    if (!options_.tf_config.has_value()) {
      Add(Verdict::kNote, "TF_CONFIG",
          "is not set: a daemon needs --scheduler and --task, or it is alone "
          "and holds every role");
      return;
    }
    auto config = ParseTfConfig(*options_.tf_config);
    if (!config.ok()) {
      for (absl::string_view line :
           absl::StrSplit(config.status().message(), '\n')) {
        absl::ConsumePrefix(&line, "TF_CONFIG: ");
        Add(Verdict::kProblem, "TF_CONFIG", std::string(line));
      }
      return;
    }
    config_ = *std::move(config);
    is_valid_ = true;
    Add(Verdict::kOk, "TF_CONFIG",
        config_.alone() ? "has no cluster: this process holds every role"
                        : absl::StrCat("this is ", TaskName(config_.self),
                                       " of ", config_.tasks.size(), " tasks"));
    DescribeScheduler();
  }

  void DescribeScheduler() {
    if (config_.alone()) return;
    if (config_.hosts_scheduler) {
      Add(Verdict::kOk, "scheduler",
          absl::StrCat("this task hosts it, at ", config_.scheduler_address));
    } else if (SchedulerAddress().empty()) {
      Add(Verdict::kProblem, "scheduler",
          "TF_CONFIG lists no task that hosts it: --scheduler is needed");
    } else {
      Add(Verdict::kOk, "scheduler",
          absl::StrCat("expected at ", SchedulerAddress()));
    }
  }

  std::string SchedulerAddress() const {
    return options_.scheduler.empty() ? config_.scheduler_address
                                      : options_.scheduler;
  }

  void CheckSchedulerFlag() {
    if (options_.scheduler.empty()) return;
    const auto address = ParseHostPort(options_.scheduler);
    if (address.ok()) return;
    Add(Verdict::kProblem, "--scheduler",
        std::string(address.status().message()));
  }

  void CheckNames() {
    std::set<std::string> unique;
    for (const TaskAddress& task : config_.tasks) {
      const auto address = ParseHostPort(task.address);
      if (address.ok()) unique.insert(address->host);
    }
    if (unique.empty()) return;
    const std::vector<std::string> hosts(unique.begin(), unique.end());
    const auto statuses = ResolveHosts(hosts);
    bool all = true;
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (statuses[i].ok()) continue;
      all = false;
      Add(Verdict::kProblem, absl::StrCat("host ", hosts[i]),
          absl::StrCat("does not resolve: ", statuses[i].message()));
    }
    if (all) {
      Add(Verdict::kOk, "hosts",
          absl::StrCat("all ", hosts.size(), " names resolve"));
    }
  }

  void CheckOwnPort() {
    const auto own = ParseHostPort(config_.self_address);
    if (!own.ok()) return;
    const absl::Status free = CheckPortIsFree(own->port);
    if (free.ok()) {
      Add(Verdict::kOk, "own port", absl::StrCat(own->port, " is free"));
    } else {
      Add(Verdict::kProblem, "own port", std::string(free.message()));
    }
    if (!own->IsLoopback()) {
      Add(Verdict::kNote, "own address",
          absl::StrFormat("daemons listen on loopback unless told otherwise: "
                          "start this one with --listen=0.0.0.0:%d",
                          own->port));
    }
  }

  // Tries, within this process, what a worker and a ps on one host do.
  void CheckSharedMemory() {
    const absl::Status works = TrySharedMemory();
    if (works.ok()) {
      Add(Verdict::kOk, "shared memory",
          "works: a worker and a ps on this host exchange values through it");
    } else {
      Add(Verdict::kNote, "shared memory",
          absl::StrCat("does not work, so that daemons on this host use the "
                       "network: ",
                       works.message()));
    }
  }

  static absl::Status TrySharedMemory() {
    if (BootId().empty()) return absl::UnavailableError("no boot id in /proc");
    SYNCLINE_ASSIGN_OR_RETURN(const auto region, SharedRegion::Create(1 << 20));
    SYNCLINE_ASSIGN_OR_RETURN(const LocalListener listener, ListenLocally());
    SYNCLINE_ASSIGN_OR_RETURN(
        const FileDescriptor sender,
        SendDescriptor(listener.name, "doctor", region->memory()));
    const auto connection = AcceptLocally(listener.socket);
    if (!connection.has_value()) return absl::UnavailableError("no connection");
    SYNCLINE_ASSIGN_OR_RETURN(const ReceivedDescriptor received,
                              ReceiveDescriptor(*connection));
    return SharedRegion::Map(received.descriptor, region->size(),
                             SharedRegion::Access::kReadWrite)
        .status();
  }

  void CheckScheduler() {
    const bool before_start = is_valid_ && config_.hosts_scheduler;
    if (before_start || !ParseHostPort(SchedulerAddress()).ok()) return;
    const auto cluster = JobsClient(SchedulerAddress()).GetCluster();
    if (!cluster.ok()) {
      Add(Verdict::kProblem, "scheduler",
          std::string(cluster.status().message()));
      return;
    }
    Add(Verdict::kOk, "scheduler",
        absl::StrCat("answers at ", SchedulerAddress(), " with ",
                     cluster->members_size(), " members"));
    const bool has_self = is_valid_ && !config_.alone();
    for (Finding& finding : CompareWithCluster(
             *cluster, options_.version,
             has_self ? std::optional<TaskId>(config_.self) : std::nullopt)) {
      findings_.push_back(std::move(finding));
    }
  }

  const DoctorOptions& options_;
  ClusterConfig config_;
  bool is_valid_ = false;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> Diagnose(const DoctorOptions& options) {
  return Doctor(options).Diagnose();
}

std::vector<Finding> CompareWithCluster(const ClusterStatus& cluster,
                                        const std::string& version,
                                        const std::optional<TaskId>& self) {
  std::vector<Finding> findings;
  const auto compare = [&](const std::string& who, const std::string& theirs) {
    if (theirs == version) return;
    findings.push_back(
        {MayWorkTogether(theirs, version) ? Verdict::kNote : Verdict::kProblem,
         "version", absl::StrCat(who, " is ", theirs, ", this is ", version)});
  };
  compare("the scheduler", cluster.version());
  for (const ClusterStatus::Entry& entry : cluster.members()) {
    const Member& member = entry.member();
    const TaskId task{static_cast<TaskKind>(member.task().type()),
                      member.task().index()};
    compare(absl::StrCat(TaskName(task), " at ", member.address()),
            member.version());
    if (self.has_value() && task == *self) {
      findings.push_back(
          {Verdict::kProblem, "own task",
           absl::StrCat(TaskName(task), " is already taken by process ",
                        member.pid(), " on ", member.hostname(), " at ",
                        member.address())});
    }
  }
  if (findings.empty()) {
    findings.push_back(
        {Verdict::kOk, "version", absl::StrCat("all members are ", version)});
  }
  return findings;
}

int RunDoctor(const DoctorOptions& options, const Console& console) {
  const std::vector<Finding> findings = Diagnose(options);
  const auto problems = std::count_if(
      findings.begin(), findings.end(), [](const Finding& finding) {
        return finding.verdict == Verdict::kProblem;
      });
  if (console.json) {
    google::protobuf::Struct object;
    SetFlag(&object, "usable", problems == 0);
    auto* list = (*object.mutable_fields())["findings"].mutable_list_value();
    for (const Finding& finding : findings) {
      auto* entry = list->add_values()->mutable_struct_value();
      SetField(entry, "verdict", VerdictName(finding.verdict));
      SetField(entry, "subject", finding.subject);
      SetField(entry, "detail", finding.detail);
    }
    console.PrintJson(object);
  } else {
    for (const Finding& finding : findings) {
      console.out << absl::StrFormat("%-8s %s: %s\n",
                                     VerdictName(finding.verdict),
                                     finding.subject, finding.detail);
    }
    console.out << (problems == 0 ? "usable"
                                  : absl::StrCat("not usable: ", problems,
                                                 problems == 1 ? " problem"
                                                               : " problems"))
                << std::endl;
  }
  return problems == 0 ? kExitOk : kExitFailed;
}

}  // namespace syncline::ctl
