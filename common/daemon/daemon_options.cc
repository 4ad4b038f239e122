#include "common/daemon/daemon_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/fault_points.h"
#include "common/base/host_port.h"
#include "common/base/version.h"
#include "common/daemon/number_flag.h"

namespace syncline {
namespace {

constexpr int kExitBadFlags = 2;
constexpr uint64_t kInFlightBytesMin = 16ull << 20;
constexpr uint64_t kTableMemoryMin = 16ull << 20;
constexpr uint64_t kTableBytesMax = 1ull << 50;

// As given, before TF_CONFIG and the defaults that depend on it.
struct Flags {
  std::string listen;
  std::string advertise;
  std::string scheduler;
  std::string task;
  std::string http = "127.0.0.1:0";
  std::string port_file;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  std::string tls_revoked;
  double tls_connection_age_seconds = 600;
  bool insecure = false;
  std::string token_file;
  std::string oidc_issuer;
  std::string oidc_audience;
  std::string oidc_jwks;
  std::string oidc_role_claim = "syncline_role";
  std::string oidc_tenant_claim = "syncline_tenant";
  std::string quota_file;
  std::string tenant_checkpoints;
  std::string log_dir;
  std::string log_level = "info";
  int exit_with_parent = 0;
  std::optional<double> orphan_seconds;
  bool validate_only = false;
  std::vector<std::string> faults;
  double cut_off_seconds = 20;
  std::string data_root;
  bool data_outside_root = false;
  std::string work_dir;
  int threads = 0;
  std::string device = "auto";
  std::string convolutions = "cudnn";
  std::string cuda_graphs = "auto";
  std::string product_algorithms = "measured";
  int lanes = 0;
  uint64_t in_flight_bytes = 1ull << 30;
  uint64_t table_memory_bytes = 0;
  std::optional<uint64_t> table_disk_bytes;
  std::string spill_dir = "/var/tmp";
  std::string checkpoint_dir;
  std::string shared_memory = "on";
  uint64_t shared_memory_bytes = 16ull << 30;
  std::string state_dir = "syncline-state";
  double keep_days = 7;
  double lease_seconds = 5;
  double grow_pause_seconds = 120;
  double prepare_timeout_seconds = 600;
  std::string job;
};

struct KindText {
  const char* program;
  const char* about;
  const char* examples;
};

const KindText& TextOf(DaemonKind kind) {
  static constexpr KindText kPs = {
      "syncline-ps",
      "Holds a part of a job's parameters and applies gradients to it.",
      R"(Examples:
  # Join a cluster; the scheduler picks the index.
  syncline-ps --scheduler=10.0.0.1:7070 --listen=0.0.0.0:7071 \
    --tls-cert=ps.crt --tls-key=ps.key --tls-ca=ca.crt
  # As Kubeflow starts it: TF_CONFIG says who it is and where the others are.
  TF_CONFIG='{"cluster": ..., "task": {"type": "ps", "index": 0}}' \
    syncline-ps --listen=0.0.0.0:2222 --insecure
  # Is this configuration right?
  syncline-ps --validate-only)"};
  static constexpr KindText kWorker = {
      "syncline-worker",
      "Trains: runs a job's model on data. Also the chief and the evaluator.",
      R"(Examples:
  # Everything in one process: scheduler, ps and worker; train one job.
  syncline-worker --job=job.textproto
  # Join a cluster; the scheduler picks the index.
  syncline-worker --scheduler=10.0.0.1:7070 --listen=0.0.0.0:7072 \
    --tls-cert=worker.crt --tls-key=worker.key --tls-ca=ca.crt
  # The same as the cluster's evaluator.
  syncline-worker --task=evaluator --scheduler=10.0.0.1:7070 \
    --listen=0.0.0.0:7073 --insecure
  # As Kubeflow starts it. The chief (else worker 0) hosts the scheduler, runs
  # the job, and all end with the job's exit code.
  TF_CONFIG='{"cluster": ..., "task": {"type": "chief", "index": 0}}' \
    syncline-worker --listen=0.0.0.0:2222 --insecure --job=job.textproto
Exit codes: 0 done; 1 failed for good; 2 bad flags or TF_CONFIG; 128 and more
are worth a retry (138: a process was lost; 143, 130: stopped during a job).)"};
  static constexpr KindText kScheduler = {
      "syncline-scheduler",
      "Knows the members of a cluster and runs jobs on them.",
      R"(Examples:
  # On this machine only.
  syncline-scheduler --listen=127.0.0.1:7070 --state-dir=state
  # For a cluster; synctl, ps and workers are given --scheduler=THIS:7070.
  syncline-scheduler --listen=0.0.0.0:7070 --advertise=sched.example:7070 \
    --tls-cert=scheduler.crt --tls-key=scheduler.key --tls-ca=ca.crt
  # Run one job, end every daemon with its exit code, then exit with it.
  syncline-scheduler --listen=0.0.0.0:7070 --insecure --job=job.textproto)"};
  switch (kind) {
    case DaemonKind::kPs:
      return kPs;
    case DaemonKind::kWorker:
      return kWorker;
    case DaemonKind::kScheduler:
      break;
  }
  return kScheduler;
}

void AddTlsFlags(CLI::App* app, Flags* flags) {
  app->add_option("--tls-cert", flags->tls_cert,
                  "PEM file of this process's certificate. With it all gRPC "
                  "connections are mutual TLS; `synctl certs` makes "
                  "certificates. The HTTP server stays plain");
  app->add_option("--tls-key", flags->tls_key, "PEM file of its private key");
  app->add_option(
      "--tls-ca", flags->tls_ca,
      "PEM file of the authorities whose certificates are believed");
  app->add_option("--tls-revoked", flags->tls_revoked,
                  "File of certificates that count no more, a SHA-256 a line "
                  "(`synctl certs show`); read again when it changes");
  app->add_option("--tls-connection-age-seconds",
                  flags->tls_connection_age_seconds,
                  "A connection is closed after this time and made anew, with "
                  "the certificates of then")
      ->check(CLI::Range(1.0, 86400.0))
      ->check(RefuseNaN)
      ->capture_default_str();
  app->add_flag("--insecure", flags->insecure,
                "Listen beyond loopback without TLS: everyone who reaches the "
                "port may do everything");
}

void AddCommonFlags(CLI::App* app, Flags* flags) {
  app->add_option("--listen", flags->listen,
                  "Where to listen, host:port; port 0 is any free one. "
                  "Default: 127.0.0.1, with the port of its own entry in "
                  "TF_CONFIG or any. 0.0.0.0 lets other machines in, and "
                  "needs --tls-cert or --insecure");
  app->add_option("--advertise", flags->advertise,
                  "Address told to others, host:port. Default: its own entry "
                  "in TF_CONFIG, else where it listens");
  app->add_option("--http", flags->http,
                  "Where to serve /metrics, /healthz, /readyz; or off")
      ->capture_default_str();
  app->add_option("--port-file", flags->port_file,
                  "Write the gRPC address into this file once it listens");
  AddTlsFlags(app, flags);
  app->add_option("--log-dir", flags->log_dir,
                  "Log into files of this folder. Default: standard error");
  app->add_option("--log-level", flags->log_level, "info, warning or error")
      ->check(CLI::IsMember({"info", "warning", "error"}))
      ->capture_default_str();
  app->add_option("--exit-with-parent", flags->exit_with_parent,
                  "Stop when the process that started this one, which has this "
                  "process id, ends")
      ->check(CLI::PositiveNumber);
  app->add_flag("--validate-only", flags->validate_only,
                "Check flags, TF_CONFIG and --job, print what follows from "
                "them, and exit");
  // For tests, so not in --help: no group, no line there.
  app->add_option("--fault", flags->faults)->group("");
  app->add_option("--cut-off-seconds", flags->cut_off_seconds)
      ->check(CLI::PositiveNumber)
      ->group("");
}

void AddMemberFlags(CLI::App* app, Flags* flags) {
  app->add_option("--scheduler", flags->scheduler,
                  "The scheduler's address. Default: TF_CONFIG's scheduler "
                  "task, else its chief, else its worker 0");
  app->add_option("--task", flags->task,
                  "Who this is, such as worker:1, or worker to be given an "
                  "index. TF_CONFIG is then not looked at");
  app->add_option("--orphan-seconds", flags->orphan_seconds,
                  "How long a lost scheduler is waited for, while its job goes "
                  "on; then the job is stopped here, and in a cluster with "
                  "--job this process exits with code 138. Default: 600, and "
                  "60 in a cluster with --job, which ends with its scheduler")
      ->check(CLI::Range(1.0, 86400.0))
      ->check(RefuseNaN);
  app->add_option("--shared-memory", flags->shared_memory,
                  "on: values go between a worker and a ps on one host "
                  "through memory that both map; off: over the network")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app->add_option("--work-dir", flags->work_dir,
                  "For files of a job while it runs, each process in a folder "
                  "of its own, and for the logs of jobs, by task, which the "
                  "next process of the task finds; processes of one host may "
                  "share it, others not. Default: the folder for temporary "
                  "files, and logs end with the process");
}

void AddPsFlags(CLI::App* app, Flags* flags) {
  app->add_option("--lanes", flags->lanes,
                  "Threads that hold parameters; 0: one per core")
      ->check(CLI::Range(0, 1024));
  app->add_option("--in-flight-bytes", flags->in_flight_bytes,
                  "Bytes of requests and responses held at a time; above it "
                  "callers are told to wait")
      ->check(CLI::Range(kInFlightBytesMin, uint64_t{1} << 40))
      ->capture_default_str();
  app->add_option("--shared-memory-bytes", flags->shared_memory_bytes,
                  "Memory of workers on this host that a ps maps at most; "
                  "above it they use the network")
      ->check(CLI::Range(kInFlightBytesMin, uint64_t{1} << 46))
      ->capture_default_str();
  app->add_option("--table-memory", flags->table_memory_bytes,
                  "Bytes of memory for the rows of embedding tables, such as "
                  "8GiB. Default: half of the memory that is available when "
                  "the process starts")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(kTableMemoryMin, kTableBytesMax));
  app->add_option("--table-disk", flags->table_disk_bytes,
                  "Bytes of disk for rows that find no room in memory; 0: "
                  "rows stay in memory. Default: half of what is free in "
                  "--spill-dir when the process starts")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{0}, kTableBytesMax));
  app->add_option("--spill-dir", flags->spill_dir,
                  "Folder for rows on disk; they are deleted with their job")
      ->capture_default_str();
  app->add_option("--checkpoint-dir", flags->checkpoint_dir,
                  "Folder for the checkpoints of jobs that name none "
                  "(checkpoint.directory). A folder of this host alone does "
                  "for as long as each ps comes back to its host. Default: "
                  "none, such jobs are refused");
}

// Empty: `text` names a device.
std::string CheckDevice(const std::string& text) {
  absl::string_view digits = text;
  int number = 0;
  if (text == "auto" || text == "cpu" ||
      (absl::ConsumePrefix(&digits, "cuda:") &&
       absl::SimpleAtoi(digits, &number) && number >= 0)) {
    return "";
  }
  return absl::StrCat("\"", text,
                      "\" is no device: auto, cpu or cuda:N, such "
                      "as cuda:0");
}

void AddWorkerFlags(CLI::App* app, Flags* flags) {
  app->add_option("--data-root", flags->data_root,
                  "Folder of the data that jobs read. Relative paths of a job "
                  "are below it, and nothing outside it is read; without this "
                  "flag they are below the working directory, and absolute "
                  "paths lead anywhere");
  app->add_flag("--data-outside-root", flags->data_outside_root,
                "Let jobs read data outside of --data-root, too");
  app->add_option("--threads", flags->threads,
                  "Compute threads where the job does not say; 0: one per "
                  "core")
      ->check(CLI::Range(0, 1024));
  app->add_option("--device", flags->device,
                  "What jobs compute on. auto: an NVIDIA GPU that no other "
                  "worker of this machine has, else the processors; cpu: the "
                  "processors; cuda:N: that GPU, by CUDA's number. A job may "
                  "ask for one kind (resources.device)")
      ->check(CheckDevice)
      ->capture_default_str();
  app->add_option("--convolutions", flags->convolutions,
                  "What computes convolutions on a GPU. cudnn: NVIDIA's cuDNN "
                  "9; jobs with convolutions are refused where it is not "
                  "installed. own: kernels of this program, which are slower "
                  "and end with other last bits. The same for all workers of a "
                  "job")
      ->check(CLI::IsMember({"cudnn", "own"}))
      ->capture_default_str();
  app->add_option("--cuda-graphs", flags->cuda_graphs,
                  "Whether a GPU runs steps that are like the ones before as "
                  "graphs of CUDA's, which take fewer calls and give the same "
                  "bits. auto: wherever CUDA takes a step as one; off: never")
      ->check(CLI::IsMember({"auto", "off"}))
      ->capture_default_str();
  app->add_option(
         "--product-algorithms", flags->product_algorithms,
         "What chooses the algorithms of matrix products on a GPU, for "
         "all workers of a job whose chief this worker is. measured: "
         "the fastest of some, measured once and kept in --work-dir. "
         "library: the first that the library names")
      ->check(CLI::IsMember({"measured", "library"}))
      ->capture_default_str();
}

void AddSchedulerFlags(CLI::App* app, Flags* flags) {
  app->add_option("--state-dir", flags->state_dir,
                  "Where the scheduler keeps jobs, results and logs")
      ->capture_default_str();
  app->add_option("--token-file", flags->token_file,
                  "File of the tokens that people need (`synctl token`); read "
                  "again when it changes. Needs TLS or loopback. Default: "
                  "people need none");
  app->add_option("--oidc-issuer", flags->oidc_issuer,
                  "People may bring JSON Web Tokens of this OpenID Connect "
                  "issuer: the claim iss. With --oidc-audience and "
                  "--oidc-jwks");
  app->add_option("--oidc-audience", flags->oidc_audience,
                  "What the claim aud of these tokens must have");
  app->add_option("--oidc-jwks", flags->oidc_jwks,
                  "File of the issuer's keys, a JSON Web Key Set; read again "
                  "when it changes");
  app->add_option("--oidc-role-claim", flags->oidc_role_claim,
                  "The claim with viewer, submitter, operator or admin, a "
                  "string or a list of them")
      ->capture_default_str();
  app->add_option("--oidc-tenant-claim", flags->oidc_tenant_claim,
                  "The claim with the name of the bearer's tenant")
      ->capture_default_str();
  app->add_option("--quota-file", flags->quota_file,
                  "File of what each tenant may have: a line \"TENANT "
                  "workers=N ps=N ps-memory=BYTES disk=BYTES queued=N\" for "
                  "each, * for the others; read again when it changes. "
                  "Default: no limits");
  app->add_option("--tenant-checkpoints", flags->tenant_checkpoints,
                  "Folder that all ps see at the same place. Jobs of tenant T "
                  "may name folders below T in it for their checkpoints "
                  "(checkpoint.directory). Default: none, their checkpoints "
                  "are in each ps' --checkpoint-dir");
  app->add_option("--keep-days", flags->keep_days,
                  "Results of a job are deleted this long after its end")
      ->check(CLI::Range(0.0, 36500.0))
      ->check(RefuseNaN)
      ->capture_default_str();
  app->add_option("--lease-seconds", flags->lease_seconds,
                  "A daemon that is silent this long is lost")
      ->check(CLI::Range(0.5, 3600.0))
      ->check(RefuseNaN)
      ->capture_default_str();
  app->add_option("--grow-pause-seconds", flags->grow_pause_seconds,
                  "A job of fewer workers than it asks for takes more that are "
                  "free once it has run for so long since its last start or "
                  "loss")
      ->check(CLI::Range(0.0, 86400.0))
      ->check(RefuseNaN)
      ->capture_default_str();
  app->add_option("--prepare-timeout-seconds", flags->prepare_timeout_seconds,
                  "A job fails whose members have not loaded model and data "
                  "by then")
      ->check(CLI::Range(1.0, 604800.0))
      ->check(RefuseNaN)
      ->capture_default_str();
  app->add_option("--job", flags->job,
                  "Submit this job file, and end the cluster with its exit "
                  "code. For the process that hosts the scheduler");
}

std::unique_ptr<CLI::App> MakeApp(DaemonKind kind, Flags* flags) {
  const KindText& text = TextOf(kind);
  auto app = std::make_unique<CLI::App>(text.about, text.program);
  app->footer(text.examples);
  app->set_version_flag("--version", absl::StrCat(text.program, " ", kVersion));
  AddCommonFlags(app.get(), flags);
  if (kind != DaemonKind::kScheduler) AddMemberFlags(app.get(), flags);
  if (kind != DaemonKind::kScheduler) AddPsFlags(app.get(), flags);
  if (kind == DaemonKind::kWorker) AddWorkerFlags(app.get(), flags);
  if (kind != DaemonKind::kPs) AddSchedulerFlags(app.get(), flags);
  return app;
}

// Puts flags and TF_CONFIG together.
class Resolver {
 public:
  Resolver(DaemonKind kind, const Flags& flags) : kind_(kind), flags_(flags) {}

  void Run(absl::string_view tf_config) {
    if (!flags_.task.empty() && !tf_config.empty()) {
      Note("--task says who this is; TF_CONFIG is not looked at");
    }
    ReadTfConfig(flags_.task.empty() ? tf_config : "");
    if (kind_ == DaemonKind::kScheduler) {
      ResolveSchedulerTask();
    } else {
      ResolveTask();
      ResolveScheduler();
    }
    ResolveAddresses();
    ResolveTls();
    CopyTheRest();
  }

  DaemonOptions& options() { return options_; }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  template <typename... Parts>
  void Problem(const Parts&... parts) {
    problems_.push_back(absl::StrCat(parts...));
  }
  template <typename... Parts>
  void Note(const Parts&... parts) {
    options_.notes.push_back(absl::StrCat(parts...));
  }

  void ReadTfConfig(absl::string_view tf_config) {
    auto cluster = ParseTfConfig(tf_config);
    if (!cluster.ok()) {
      Problem(cluster.status().message());
      tf_config_is_bad_ = true;
      return;
    }
    cluster_ = *std::move(cluster);
  }
  bool has_cluster() const {
    return !cluster_.tasks.empty() || cluster_.partial;
  }

  void ResolveSchedulerTask() {
    options_.hosts_scheduler = true;
    if (has_cluster() && cluster_.self.kind != TaskKind::kScheduler) {
      Problem("TF_CONFIG: task: ", TaskName(cluster_.self),
              " is not for syncline-scheduler; that runs \"scheduler\" tasks");
    }
  }

  void ResolveTask() {
    const bool ps = kind_ == DaemonKind::kPs;
    absl::string_view source = "--task";
    if (!flags_.task.empty()) {
      const auto task = ParseTaskName(flags_.task);
      if (!task.ok()) {
        Problem("--task: ", task.status().message());
        return;
      }
      options_.task = *task;
      options_.auto_index = !absl::StrContains(flags_.task, ':') &&
                            task->kind != TaskKind::kChief;
    } else if (has_cluster()) {
      source = "TF_CONFIG: task";
      options_.task = cluster_.self;
    } else {
      options_.task.kind = ps ? TaskKind::kPs : TaskKind::kWorker;
      options_.auto_index = true;
    }
    const TaskKind kind = options_.task.kind;
    if (kind == TaskKind::kScheduler) {
      Problem(source, ": a scheduler is run by syncline-scheduler");
    } else if (ps != (kind == TaskKind::kPs)) {
      Problem(source, ": ", TaskName(options_.task), " is not for ",
              TextOf(kind_).program,
              ps ? "; that runs \"ps\" tasks"
                 : "; that runs \"chief\", \"worker\" "
                   "and \"evaluator\" tasks");
    }
  }

  void ResolveScheduler() {
    const std::string& own =
        flags_.advertise.empty() ? cluster_.self_address : flags_.advertise;
    if (!flags_.scheduler.empty()) {
      CheckAddress("--scheduler", flags_.scheduler, PortZero::kRefused);
      // A pod template may give the same flag to all of them.
      options_.hosts_scheduler = kind_ == DaemonKind::kWorker &&
                                 has_cluster() && flags_.scheduler == own;
      options_.scheduler_address = flags_.scheduler;
    } else if (kind_ == DaemonKind::kWorker && flags_.task.empty() &&
               cluster_.hosts_scheduler && !tf_config_is_bad_) {
      options_.hosts_scheduler = true;
      options_.alone = cluster_.alone();
      // The only worker needs no index to tell it from others.
      options_.auto_index = false;
    } else if (!cluster_.scheduler_address.empty()) {
      options_.scheduler_address = cluster_.scheduler_address;
    } else if (!tf_config_is_bad_) {
      Problem("--scheduler: needed, because ",
              !flags_.task.empty() ? "--task is given"
              : has_cluster()      ? "TF_CONFIG lists no scheduler, chief or "
                                     "worker 0"
                                   : "TF_CONFIG is not set");
    }
    if (options_.hosts_scheduler) options_.scheduler_address.clear();
  }

  void ResolveAddresses() {
    options_.advertise =
        flags_.advertise.empty() ? cluster_.self_address : flags_.advertise;
    if (!flags_.advertise.empty()) {
      CheckAddress("--advertise", flags_.advertise, PortZero::kRefused);
    }
    const auto own = ParseHostPort(cluster_.self_address);
    options_.listen = flags_.listen;
    if (!flags_.listen.empty()) {
      CheckAddress("--listen", flags_.listen, PortZero::kAllowed);
    } else {
      options_.listen =
          absl::StrCat("127.0.0.1:", own.ok() ? own->port : uint16_t{0});
    }
    const auto listen = ParseHostPort(options_.listen, PortZero::kAllowed);
    if (own.ok() && listen.ok() && listen->IsLoopback() && !own->IsLoopback()) {
      Note("this process listens on ", options_.listen,
           ", which others cannot reach; TF_CONFIG says ",
           cluster_.self_address,
           ". Start it with --listen=0.0.0.0:", own->port,
           " to let other machines in, and with --tls-cert or --insecure");
    }
    if (flags_.http != "off") {
      CheckAddress("--http", flags_.http, PortZero::kAllowed);
      options_.http = flags_.http;
    }
  }

  void ResolveTls() {
    const bool any = !flags_.tls_cert.empty() || !flags_.tls_key.empty() ||
                     !flags_.tls_ca.empty();
    const bool all = !flags_.tls_cert.empty() && !flags_.tls_key.empty() &&
                     !flags_.tls_ca.empty();
    if (any && !all) {
      Problem("--tls-cert, --tls-key and --tls-ca: all three or none");
    }
    if (any && flags_.insecure) {
      Problem("--insecure: not with --tls-cert; leave out one of them");
    }
    const auto listen = ParseHostPort(options_.listen, PortZero::kAllowed);
    if (!any && !flags_.insecure && listen.ok() && !listen->IsLoopback()) {
      Problem(
          "--listen: ", options_.listen,
          " is not loopback: everyone who reaches it could use this "
          "process. Give --tls-cert, --tls-key and --tls-ca (`synctl certs` "
          "makes them), or say --insecure if the network is closed");
    }
    ResolveOidc();
    const bool people_need_tokens =
        !flags_.token_file.empty() || !flags_.oidc_jwks.empty();
    const char* const tokens_of =
        flags_.token_file.empty() ? "--oidc-jwks" : "--token-file";
    if (people_need_tokens && !any && listen.ok() && !listen->IsLoopback()) {
      Problem(tokens_of,
              ": tokens would come in plain text, for everyone in between to "
              "read; it needs --tls-cert, or loopback");
    }
    // gRPC's local credentials take these hosts; at others they refuse all.
    const bool may_be_local =
        listen.ok() && (listen->host == "127.0.0.1" || listen->host == "::1" ||
                        listen->host == "localhost");
    if (people_need_tokens && !any && listen.ok() && listen->IsLoopback() &&
        !may_be_local) {
      Problem(
          tokens_of,
          ": without TLS it works on 127.0.0.1 and ::1 alone; with --listen=",
          options_.listen, " everyone would be refused");
    }
    options_.token_file = flags_.token_file;
    options_.quota_file = flags_.quota_file;
    options_.tenant_checkpoints = flags_.tenant_checkpoints;
    if (!flags_.tenant_checkpoints.empty() &&
        flags_.tenant_checkpoints.front() != '/') {
      Problem("--tenant-checkpoints: ", flags_.tenant_checkpoints,
              " is no absolute path");
    }
    options_.tls_certificate = flags_.tls_cert;
    options_.tls_key = flags_.tls_key;
    options_.tls_authority = flags_.tls_ca;
    options_.tls_revoked = flags_.tls_revoked;
    if (!flags_.tls_revoked.empty() && !any) {
      Problem("--tls-revoked: needs --tls-cert, --tls-key and --tls-ca");
    }
    options_.tls_connection_age_max =
        absl::Seconds(flags_.tls_connection_age_seconds);
    options_.insecure = flags_.insecure;
  }

  void ResolveOidc() {
    const int given = (flags_.oidc_issuer.empty() ? 0 : 1) +
                      (flags_.oidc_audience.empty() ? 0 : 1) +
                      (flags_.oidc_jwks.empty() ? 0 : 1);
    if (given != 0 && given != 3) {
      Problem(
          "--oidc-issuer, --oidc-audience and --oidc-jwks: all three or none");
    }
    options_.oidc_issuer = flags_.oidc_issuer;
    options_.oidc_audience = flags_.oidc_audience;
    options_.oidc_keys = flags_.oidc_jwks;
    options_.oidc_role_claim = flags_.oidc_role_claim;
    options_.oidc_tenant_claim = flags_.oidc_tenant_claim;
  }

  void CheckAddress(absl::string_view flag, const std::string& text,
                    PortZero port_zero) {
    const auto address = ParseHostPort(text, port_zero);
    if (!address.ok()) {
      Problem(flag, ": ", address.status().message());
    } else if (port_zero == PortZero::kRefused && address->IsAnyInterface()) {
      Problem(flag, ": \"", text, "\" is where a process listens, not where ",
              "others reach it");
    }
  }

  void CopyTheRest() {
    options_.kind = kind_;
    options_.program = TextOf(kind_).program;
    options_.port_file = flags_.port_file;
    options_.log_dir = flags_.log_dir;
    options_.log_level = flags_.log_level == "info"      ? LogLevel::kInfo
                         : flags_.log_level == "warning" ? LogLevel::kWarning
                                                         : LogLevel::kError;
    options_.exit_with_parent = flags_.exit_with_parent;
    if (flags_.orphan_seconds.has_value()) {
      options_.orphan_timeout = absl::Seconds(*flags_.orphan_seconds);
      options_.one_job_orphan_timeout = options_.orphan_timeout;
    }
    options_.cluster_tasks =
        cluster_.partial ? 0 : static_cast<int>(cluster_.tasks.size());
    options_.cluster_has_evaluator =
        absl::c_any_of(cluster_.tasks, [](const TaskAddress& entry) {
          return entry.task.kind == TaskKind::kEvaluator;
        });
    options_.validate_only = flags_.validate_only;
    options_.cut_off_after = absl::Seconds(flags_.cut_off_seconds);
    for (const std::string& text : flags_.faults) {
      const absl::StatusOr<Fault> fault = ParseFault(text);
      if (fault.ok()) {
        options_.faults.push_back(*fault);
      } else {
        Problem("--fault: ", fault.status().message());
      }
    }
    if (!options_.faults.empty()) {
      Note("this process fails on purpose: --fault is for tests alone");
    }
    options_.data_root = flags_.data_root.empty() ? "." : flags_.data_root;
    options_.data_root_is_bound =
        !flags_.data_root.empty() && !flags_.data_outside_root;
    options_.work_dir = flags_.work_dir;
    options_.threads = flags_.threads;
    options_.device = flags_.device;
    options_.convolutions = flags_.convolutions;
    options_.cuda_graphs = flags_.cuda_graphs;
    options_.product_algorithms = flags_.product_algorithms;
    options_.lanes = flags_.lanes;
    options_.in_flight_bytes = flags_.in_flight_bytes;
    options_.table_memory_bytes = flags_.table_memory_bytes;
    options_.table_disk_bytes = flags_.table_disk_bytes;
    options_.spill_dir = flags_.spill_dir;
    options_.checkpoint_dir = flags_.checkpoint_dir;
    options_.shared_memory = flags_.shared_memory == "on";
    options_.shared_memory_bytes = flags_.shared_memory_bytes;
    options_.state_dir = flags_.state_dir;
    options_.keep = absl::Hours(24 * flags_.keep_days);
    options_.lease = absl::Seconds(flags_.lease_seconds);
    options_.grow_pause = absl::Seconds(flags_.grow_pause_seconds);
    options_.prepare_timeout = absl::Seconds(flags_.prepare_timeout_seconds);
    options_.job_file = flags_.job;
    // Replicas of one type share their flags; only one of them hosts.
    if (!flags_.job.empty() && !options_.hosts_scheduler) {
      Note("--job is for the process that hosts the scheduler, ",
           options_.scheduler_address, "; this one does not");
      options_.job_file.clear();
    }
  }

  const DaemonKind kind_;
  const Flags& flags_;
  ClusterConfig cluster_;
  bool tf_config_is_bad_ = false;
  DaemonOptions options_;
  std::vector<std::string> problems_;
};

}  // namespace

DaemonCommandLine ReadDaemonOptions(DaemonKind kind,
                                    const std::vector<std::string>& args,
                                    absl::string_view tf_config) {
  Flags flags;
  const std::unique_ptr<CLI::App> app = MakeApp(kind, &flags);
  DaemonCommandLine line;
  try {
    // CLI11 takes arguments from the back.
    app->parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    const bool good = app->exit(error, out, err) == 0;
    line.exit_code = good ? 0 : kExitBadFlags;
    line.text = good ? out.str() : err.str();
    return line;
  }
  Resolver resolver(kind, flags);
  resolver.Run(tf_config);
  if (!resolver.problems().empty()) {
    line.exit_code = kExitBadFlags;
    const std::string program = TextOf(kind).program;
    for (const std::string& problem : resolver.problems()) {
      for (const absl::string_view text : absl::StrSplit(problem, '\n')) {
        absl::StrAppend(&line.text, program, ": ", text, "\n");
      }
    }
    return line;
  }
  line.options = std::move(resolver.options());
  return line;
}

std::string Describe(const DaemonOptions& options) {
  std::string text;
  const auto add = [&text](absl::string_view name, absl::string_view value) {
    absl::StrAppend(&text, name, ": ", value, "\n");
  };
  if (options.kind != DaemonKind::kScheduler) {
    add("task", options.auto_index
                    ? absl::StrCat(TaskKindName(options.task.kind),
                                   ", the scheduler picks the index")
                    : TaskName(options.task));
  }
  add("scheduler", options.alone             ? "this process, which is alone"
                   : options.hosts_scheduler ? "this process"
                                             : options.scheduler_address);
  add("listen", options.listen);
  add("advertise",
      options.advertise.empty() ? "where it listens" : options.advertise);
  add("http", options.http.empty() ? "off" : options.http);
  add("tls", !options.tls_certificate.empty()
                 ? absl::StrCat("mutual, as ", options.tls_certificate)
             : options.insecure ? "off, by --insecure"
                                : "off");
  if (options.kind == DaemonKind::kWorker) {
    add("device", options.device);
    add("convolutions", options.convolutions);
    add("cuda_graphs", options.cuda_graphs);
    add("product_algorithms", options.product_algorithms);
  }
  if (!options.job_file.empty()) add("job", options.job_file);
  for (const std::string& note : options.notes) add("note", note);
  return text;
}

}  // namespace syncline
