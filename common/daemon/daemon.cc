#include "common/daemon/daemon.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/deadline.h"
#include "common/base/exit_codes.h"
#include "common/base/fault_points.h"
#include "common/base/host_port.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/daemon/process_metrics.h"
#include "common/rpc/transport_security.h"
#include "common/rpc/user_calls.h"
#include "common/system/file.h"
#include "common/system/job_logs.h"
#include "common/system/log.h"
#include "common/system/malloc_policy.h"
#include "common/system/process_limits.h"
#include "grpc/support/log.h"
#include "grpcpp/health_check_service_interface.h"

namespace syncline {
namespace {

// Kubernetes kills after 30 s by default.
constexpr absl::Duration kDrainLimit = absl::Seconds(10);
constexpr int kMallocArenas = 4;
// A connection for each member and each client, and files beside them.
constexpr uint64_t kOpenFilesLow = 4096;
// Looked for, and said, this often.
constexpr absl::Duration kCertificateWatch = absl::Seconds(10);
constexpr absl::Duration kCertificateToldEach = absl::Hours(1);
constexpr absl::Duration kCertificateEndsSoon = absl::Hours(14 * 24);
constexpr char kWorkPrefix[] = "syncline-work-";
constexpr char kLogsFolder[] = "syncline-logs";

// Drops gRPC's log. A failure while a process starts is reported once, in our
// words.
void DropGrpcLog(gpr_log_func_args*) {}

// Roles are checked instead of host names, so no certificate has any.
constexpr absl::string_view kNoHostName = "No match found for server name";

void GrpcLog(gpr_log_func_args* args) {
  if (absl::StartsWith(args->message, kNoHostName)) return;
  LogWarning("gRPC").Field("text", args->message);
}

// The kernel sends SIGTERM when the parent ends. If the parent has already
// ended, another process is the parent now, and no SIGTERM will come.
void WatchParent(pid_t parent, ExitRequest* exit_request) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) exit_request->Request(0, "the parent has ended");
}

void PrintLines(const std::string& program, absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), Printable(line).c_str());
  }
}

// One message where a person looks, and one in the log if that is elsewhere.
void ReportFailure(const DaemonOptions& options, const absl::Status& status) {
  if (!options.log_dir.empty()) LogError("failed").Status(status);
  PrintLines(options.program, status.message());
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

// As others reach a server that is bound to `bound`.
std::string PeerAddress(const std::string& bound) {
  auto address = ParseHostPort(bound);
  if (!address.ok() || !address->IsAnyInterface()) return bound;
  address->host = HostName();
  return address->ToString();
}

// As this process itself reaches it.
std::string OwnAddress(const std::string& bound) {
  auto address = ParseHostPort(bound);
  if (!address.ok() || !address->IsAnyInterface()) return bound;
  address->host = address->host == "::" ? "::1" : "127.0.0.1";
  return address->ToString();
}

// "worker-1"; without an index of its own, by process.
std::string LogFileName(const DaemonOptions& options) {
  if (options.kind == DaemonKind::kScheduler) return "scheduler.log";
  const absl::string_view kind = TaskKindName(options.task.kind);
  return options.auto_index
             ? absl::StrCat(kind, "-pid", getpid(), ".log")
             : absl::StrCat(kind, "-", options.task.index, ".log");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(
    const DaemonOptions& options) {
  auto daemon = absl::WrapUnique(new Daemon(options));
  if (options.exit_with_parent != 0) {
    WatchParent(options.exit_with_parent, &daemon->exit_request_);
  }
  SYNCLINE_RETURN_IF_ERROR(daemon->OpenLog());
  daemon->LogStart();
  SYNCLINE_RETURN_IF_ERROR(daemon->SecureTransport());
  return daemon;
}

Daemon::Daemon(const DaemonOptions& options)
    : options_(options),
      process_metrics_(metrics_.AddCollector(&CollectProcessMetrics)) {
  metrics_
      .AddGauge("syncline_build_info",
                {{"version", kVersion}, {"program", options.program}})
      .Set(1);
}

Daemon::~Daemon() {
  certificate_watch_.reset();
  Leave();
  StopServing();
  watchdog_.reset();
}

void Daemon::Report(const absl::Status& failure) const {
  ReportFailure(options_, failure);
}

absl::Status Daemon::OpenLog() {
  LogOptions log;
  log.role = options_.kind == DaemonKind::kScheduler
                 ? "scheduler"
                 : std::string(TaskKindName(options_.task.kind));
  if (!options_.auto_index && options_.kind != DaemonKind::kScheduler) {
    log.node = TaskName(options_.task);
  }
  log.min_level = options_.log_level;
  if (!options_.log_dir.empty()) {
    SYNCLINE_RETURN_IF_ERROR(MakeDirs(options_.log_dir));
    log.file = absl::StrCat(options_.log_dir, "/", LogFileName(options_));
  }
  gpr_set_log_function(&DropGrpcLog);
  return InitLog(log);
}

void Daemon::LogStart() const {
  const uint64_t open_files = RaiseOpenFilesLimit();
  LogInfo("started")
      .Field("version", kVersion)
      .Field("listen", options_.listen)
      .Field("advertise", options_.advertise)
      .Field("http", options_.http)
      .Field("scheduler", options_.hosts_scheduler
                              ? "this process"
                              : options_.scheduler_address.c_str())
      .Field("alone", options_.alone ? 1 : 0)
      .Field("data_root", options_.data_root)
      .Field("work_dir", options_.work_dir)
      .Field("state_dir", options_.state_dir)
      .Field("threads", options_.threads)
      .Field("lanes", options_.lanes)
      .Field("in_flight_bytes", options_.in_flight_bytes)
      .Field("keep", absl::FormatDuration(options_.keep))
      .Field("lease", absl::FormatDuration(options_.lease))
      .Field("job", options_.job_file)
      .Field("open_files", open_files)
      .Field("pid", getpid());
  if (open_files < kOpenFilesLow) {
    LogWarning("few open files are allowed; each connection takes one")
        .Field("open_files", open_files)
        .Field("hint", "raise the hard limit (ulimit -Hn)");
  }
  for (const std::string& note : options_.notes) {
    LogWarning("note").Field("text", note);
  }
}

absl::Status Daemon::SecureTransport() {
  std::shared_ptr<UserTokens> tokens;
  std::shared_ptr<OidcTokens> oidc;
  if (options_.hosts_scheduler && !options_.token_file.empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(tokens, UserTokens::Open(options_.token_file));
    SetProcessTokens(tokens);
    LogInfo("people need tokens").Field("file", options_.token_file);
  }
  if (options_.hosts_scheduler && !options_.oidc_keys.empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(
        oidc, OidcTokens::Open({.issuer = options_.oidc_issuer,
                                .audience = options_.oidc_audience,
                                .keys_file = options_.oidc_keys,
                                .role_claim = options_.oidc_role_claim,
                                .tenant_claim = options_.oidc_tenant_claim}));
    SetProcessOidc(oidc);
    LogInfo("people need tokens of an issuer")
        .Field("issuer", options_.oidc_issuer)
        .Field("keys", options_.oidc_keys);
  }
  const TlsFiles files = {options_.tls_certificate, options_.tls_key,
                          options_.tls_authority, options_.tls_revoked};
  if (files.empty()) {
    WatchFiles(std::move(tokens), std::move(oidc));
    if (options_.insecure) {
      LogWarning("no TLS: everyone who reaches the port may do everything")
          .Field("listen", options_.listen);
    }
    return absl::OkStatus();
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto security,
      TransportSecurity::Load(files, options_.tls_connection_age_max,
                              absl::Now()));
  // Members would refuse to register with it, one by one.
  if (options_.hosts_scheduler) {
    SYNCLINE_RETURN_IF_ERROR(Annotate(
        CheckServer(ExpectedPeer::kScheduler, security->identities()),
        absl::StrCat(files.certificate, ": this process hosts the scheduler")));
  }
  LogInfo("TLS")
      .Field("cluster", security->cluster())
      .Field("identities", Describe(security->identities()))
      .Field("certificate", files.certificate)
      .Field("connection_age_max",
             absl::FormatDuration(security->connection_age_max()));
  SetProcessSecurity(security);
  WatchFiles(std::move(tokens), std::move(oidc));
  ReadCertificateExpiry();
  certificate_watch_ =
      std::make_unique<PeriodicTask>("certificate-watch", kCertificateWatch,
                                     [this] { ReadCertificateExpiry(); });
  return absl::OkStatus();
}

void Daemon::WatchFiles(std::shared_ptr<UserTokens> tokens,
                        std::shared_ptr<OidcTokens> oidc) {
  const auto security = ProcessSecurity();
  file_metrics_ = metrics_.AddCollector([=](MetricSamples* samples) {
    const auto add = [&](const char* file, bool is_usable) {
      samples->Add("syncline_unusable_files", {{"file", file}},
                   is_usable ? 0 : 1);
    };
    if (tokens != nullptr) add("tokens", tokens->IsFileUsable());
    if (oidc != nullptr) add("keys", oidc->IsFileUsable());
    if (security != nullptr && security->has_revocations()) {
      add("revocations", security->IsRevocationFileUsable());
    }
  });
}

void Daemon::ReadCertificateExpiry() {
  const auto expiry = CertificateExpiry(
      {options_.tls_certificate, options_.tls_key, options_.tls_authority});
  const absl::Time now = MonotonicNow();
  const bool is_told = now < certificate_told_ + kCertificateToldEach;
  if (!expiry.ok()) {
    if (is_told) return;
    certificate_told_ = now;
    LogError("the certificate cannot be read").Status(expiry.status());
    return;
  }
  metrics_.AddGauge("syncline_tls_certificate_expiry_seconds")
      .Set(absl::ToDoubleSeconds(*expiry - absl::UnixEpoch()));
  const absl::Duration left = *expiry - absl::Now();
  if (left < kCertificateEndsSoon && !is_told) {
    certificate_told_ = now;
    LogWarning("the certificate ends soon")
        .Field("certificate", options_.tls_certificate)
        .Field("ends", absl::FormatTime(*expiry, absl::UTCTimeZone()))
        .Field("hours_left", absl::ToInt64Hours(left));
  }
}

std::string Daemon::WorkRoot() const {
  if (!options_.work_dir.empty()) return options_.work_dir;
  std::error_code error;
  const auto temporary = std::filesystem::temp_directory_path(error);
  return error ? "/tmp" : temporary.string();
}

absl::StatusOr<std::string> Daemon::WorkDir() {
  if (work_folder_ == nullptr) {
    const int removed = LockedFolder::RemoveLeftovers(WorkRoot(), kWorkPrefix);
    if (removed > 0) {
      LogInfo("work folders of killed processes removed")
          .Field("folders", removed)
          .Field("in", WorkRoot());
    }
    SYNCLINE_ASSIGN_OR_RETURN(work_folder_,
                              LockedFolder::OpenFirst(WorkRoot(), kWorkPrefix));
  }
  return work_folder_->path();
}

MemberLink* Daemon::AddMember() {
  members_.push_back(std::make_unique<MemberLink>());
  return members_.back().get();
}

void Daemon::AddReadiness(std::function<absl::Status()> ready) {
  readiness_.push_back(std::move(ready));
}

absl::Status Daemon::Listen(std::vector<std::string> services,
                            HttpServer::Pages pages) {
  services_ = std::move(services);
  grpc::EnableDefaultHealthCheckService(true);
  builder_.RegisterService(&identity_);
  builder_.RegisterService(&member_logs_);
  builder_.RegisterCallbackGenericService(&unknown_calls_);
  SYNCLINE_ASSIGN_OR_RETURN(listening_,
                            StartServer(&builder_, options_.listen));
  timers_.emplace();
  // The caller destroys its roles when it gets an error: no call may reach them
  // then.
  absl::Cleanup stop_serving = [this] { StopServing(); };
  gpr_set_log_function(&GrpcLog);
  address_ = options_.advertise.empty() ? PeerAddress(listening_.address)
                                        : options_.advertise;
  scheduler_address_ = options_.hosts_scheduler ? OwnAddress(listening_.address)
                                                : options_.scheduler_address;
  UpdateHealth();
  if (!options_.http.empty()) {
    SYNCLINE_RETURN_IF_ERROR(StartHttp(std::move(pages)));
  }
  LogInfo("listening")
      .Field("grpc", listening_.address)
      .Field("advertised", address_)
      .Field("http", http_ == nullptr ? "off" : http_->address());
  if (!options_.port_file.empty()) {
    SYNCLINE_RETURN_IF_ERROR(WriteFileAtomically(
        options_.port_file, absl::StrCat(listening_.address, "\n")));
  }
  std::move(stop_serving).Cancel();
  return absl::OkStatus();
}

absl::Status Daemon::StartHttp(HttpServer::Pages pages) {
  HttpServer::Options http;
  http.listen = options_.http;
  http.metrics = &metrics_;
  http.ready = [this] { return Ready(); };
  http.pages = std::move(pages);
  SYNCLINE_ASSIGN_OR_RETURN(http_, HttpServer::Start(std::move(http)));
  return absl::OkStatus();
}

absl::Status Daemon::Joined() const {
  if (draining_) return absl::UnavailableError("draining");
  for (const auto& member : members_) {
    SYNCLINE_RETURN_IF_ERROR(member->Ready());
  }
  return absl::OkStatus();
}

absl::Status Daemon::Ready() const {
  SYNCLINE_RETURN_IF_ERROR(Joined());
  for (const auto& ready : readiness_) SYNCLINE_RETURN_IF_ERROR(ready());
  return absl::OkStatus();
}

// The checks in readiness_ announce no change. A health that depended on one
// could stay wrong for ever, so only /readyz asks them.
void Daemon::UpdateHealth() {
  auto* const health = listening_.server->GetHealthCheckService();
  if (health == nullptr) return;
  // Of two changes at a time the later look counts.
  MutexLock lock(&health_mu_);
  const bool serving = Joined().ok();
  for (const std::string& service : services_) {
    health->SetServingStatus(service, serving);
  }
}

std::string Daemon::http_address() const {
  if (http_ == nullptr) return "";
  auto bound = ParseHostPort(http_->address());
  const auto advertised = ParseHostPort(address_);
  if (!bound.ok() || !advertised.ok() || !bound->IsAnyInterface()) {
    return http_->address();
  }
  bound->host = advertised->host;
  return bound->ToString();
}

Member Daemon::MakeMember(const TaskId& task, uint64_t incarnation) const {
  Member member;
  member.mutable_task()->set_type(static_cast<TaskType>(task.kind));
  member.mutable_task()->set_index(task.index);
  member.set_address(address_);
  member.set_incarnation(incarnation);
  member.set_http_address(http_address());
  member.set_version(kVersion);
  member.set_hostname(HostName());
  member.set_pid(getpid());
  if (gpu_.has_value() && task.kind != TaskKind::kPs) {
    *member.mutable_gpu() = *gpu_;
  }
  return member;
}

void Daemon::KeepLogs(const std::string& task_name) const {
  if (logs_root_.empty()) return;
  const std::string folder =
      absl::StrCat(logs_root_, "/", kLogsFolder, "/",
                   absl::StrReplaceAll(task_name, {{":", "-"}}));
  const std::shared_ptr<JobLogs> kept = KeptJobLogs();
  if (kept != nullptr && kept->folder() == folder) return;
  auto logs = JobLogs::Open(folder);
  if (!logs.ok()) {
    LogWarning("logs of jobs are not kept").Status(logs.status());
    return;
  }
  KeepJobLogs(*std::move(logs));
}

void Daemon::Join(MemberLink* link, const TaskId& task, bool auto_index,
                  uint64_t incarnation,
                  std::function<void(const SchedulerMessage&)> on_command) {
  identity_.Add(incarnation);
  if (logs_root_.empty()) {
    // Without --work-dir nothing says which process is the next one of a task:
    // the logs end with this one.
    const auto root = options_.work_dir.empty()
                          ? WorkDir()
                          : absl::StatusOr<std::string>(options_.work_dir);
    if (root.ok()) {
      logs_root_ = *root;
    } else {
      LogWarning("logs of jobs are not kept").Status(root.status());
    }
  }
  SchedulerSession::Options session;
  session.scheduler_address = scheduler_address_;
  session.self = MakeMember(task, incarnation);
  session.auto_index = auto_index;
  session.orphan_timeout = options_.orphan_timeout;
  session.one_job_orphan_timeout = options_.one_job_orphan_timeout;
  const bool first = link == members_.front().get();
  MemberLink::Callbacks callbacks;
  callbacks.on_command = std::move(on_command);
  callbacks.on_registered = [this, first,
                             incarnation](const Registered& registered) {
    const std::string name =
        TaskName({static_cast<TaskKind>(registered.task().type()),
                  registered.task().index()});
    if (first) {
      SetLogMember(name, incarnation);
      KeepLogs(name);
    }
    LogInfo("registered")
        .Field("task", name)
        .Field("scheduler", scheduler_address_);
    UpdateHealth();
  };
  callbacks.on_lost = [this] { UpdateHealth(); };
  callbacks.on_shutdown = [this](const Shutdown& shutdown) {
    RequestExit(shutdown.exit_code(), shutdown.reason());
  };
  callbacks.on_rejected = [this](const absl::Status& status) {
    ReportFailure(
        options_,
        absl::IsUnimplemented(status)
            ? Annotate(status, absl::StrCat("no scheduler answers at ",
                                            scheduler_address_))
            : status);
    // A scheduler that cannot be reached may be there the next time.
    const bool retryable = absl::IsUnavailable(status);
    RequestExit(retryable ? kExitRetryable : kExitFailed,
                retryable ? "no scheduler" : "not taken by the scheduler");
  };
  link->Join(std::move(session), std::move(callbacks));
}

int Daemon::AwaitExit(const std::function<bool()>& busy) {
  const ExitReason reason = exit_request_.Await();
  const bool working =
      (busy != nullptr && busy()) ||
      std::any_of(members_.begin(), members_.end(), [](const auto& member) {
        return !member->running_job().empty();
      });
  const int code = reason.signal == 0 ? reason.exit_code
                   : working          ? 128 + reason.signal
                                      : 0;
  LogInfo("stopping").Field("why", reason.text).Field("exit_code", code);
  exit_text_ = reason.text;
  draining_ = true;
  UpdateHealth();
  drain_deadline_ = MonotonicNow() + kDrainLimit;
  watchdog_ = std::make_unique<PeriodicTask>(
      "drain-watchdog", options_.cut_off_after, [this, code] {
        LogError("the process did not end in time; it is cut off");
        if (cut_off_ != nullptr) cut_off_();
        _exit(code);
      });
  return code;
}

void Daemon::Leave() {
  // A scheduler that does not answer by then is gone too.
  constexpr absl::Duration kAnswerLimit = absl::Seconds(3);
  const absl::Time deadline =
      StepDeadline(drain_deadline_, MonotonicNow(), kAnswerLimit);
  for (const auto& member : members_) {
    member->Leave(absl::StrCat("it was told to stop (", exit_text_, ")"),
                  deadline);
  }
}

void Daemon::StopServing() {
  http_.reset();
  member_logs_.Stop();  // else readers would hold up the end
  if (listening_.server == nullptr) return;
  listening_.server->Shutdown(ToGrpcTime(
      std::max(drain_deadline_, MonotonicNow() + absl::Milliseconds(100))));
  timers_.reset();
  listening_.server.reset();
}

int DaemonMain(
    DaemonKind kind, int argc, char** argv,
    const std::function<absl::StatusOr<int>(const DaemonOptions&, Daemon*)>&
        run,
    const std::function<absl::Status(const DaemonOptions&)>& validate) {
  KeepMessageMemory(kind == DaemonKind::kPs ? 1 : kMallocArenas);
  // The packaged library looks for deadlocks at each lock, gRPC's included: 2
  // to 3% of a small step. Ours are ordered by annotations that clang checks.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Results, checkpoints, logs and records are this user's alone.
  umask(S_IRWXG | S_IRWXO);
  std::signal(SIGPIPE, SIG_IGN);  // a peer that is gone is an error of a write
  const char* tf_config = std::getenv("TF_CONFIG");
  const DaemonCommandLine line =
      ReadDaemonOptions(kind, std::vector<std::string>(argv + 1, argv + argc),
                        tf_config == nullptr ? "" : tf_config);
  if (line.exit_code.has_value()) {
    std::fputs(line.text.c_str(), *line.exit_code == 0 ? stdout : stderr);
    return *line.exit_code;
  }
  const std::string program = line.options.program;
  ExplainUncaughtExceptions(program);
  if (line.options.validate_only) {
    const absl::Status valid =
        validate != nullptr ? validate(line.options) : absl::OkStatus();
    if (!valid.ok()) PrintLines(program, valid.message());
    std::fputs(Describe(line.options).c_str(), stdout);
    return valid.ok() ? 0 : kExitFailed;
  }
  ArmFaults(line.options.faults);
  const auto daemon = Daemon::Create(line.options);
  if (!daemon.ok()) {
    PrintLines(program, daemon.status().message());
    return kExitFailed;
  }
  const absl::StatusOr<int> code = run(line.options, daemon->get());
  if (code.ok()) return *code;
  ReportFailure(line.options, code.status());
  return kExitFailed;
}

}  // namespace syncline
