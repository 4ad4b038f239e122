#ifndef SYNCLINE_COMMON_DAEMON_DAEMON_OPTIONS_H_
#define SYNCLINE_COMMON_DAEMON_DAEMON_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/fault_points.h"
#include "common/cluster/cluster_config.h"
#include "common/system/log.h"

namespace syncline {

// Which binary: they share most flags.
enum class DaemonKind { kPs, kWorker, kScheduler };

// A daemon's options from flags and TF_CONFIG, checked as a whole. Not changed
// after ReadDaemonOptions.
struct DaemonOptions {
  DaemonKind kind = DaemonKind::kWorker;
  std::string program;  // "syncline-ps"

  // The task to register as. Meaningless for a scheduler.
  TaskId task;
  // The scheduler picks the index of `task`.
  bool auto_index = false;
  // This process is the scheduler, or hosts it beside its own task.
  bool hosts_scheduler = false;
  // This process is the whole cluster: scheduler, one ps and one worker.
  bool alone = false;
  std::string scheduler_address;  // empty if it is this process

  std::string listen;     // where to listen; port 0: any free one
  std::string advertise;  // as others reach it; empty: the bound address
  std::string http;       // empty: no HTTP server
  std::string port_file;  // empty: none

  // PEM files: this process's certificate, its key, and the authorities of the
  // cluster. All empty: no TLS.
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_authority;
  std::string tls_revoked;  // RevokedCertificates; empty: none
  absl::Duration tls_connection_age_max;
  std::string token_file;  // scheduler: of people; empty: they need none
  // Scheduler: of an OpenID Connect issuer (OidcTokens::Options). `oidc_keys`
  // empty: none.
  std::string oidc_issuer;
  std::string oidc_audience;
  std::string oidc_keys;
  std::string oidc_role_claim;
  std::string oidc_tenant_claim;
  std::string quota_file;          // Scheduler::Options'
  std::string tenant_checkpoints;  // Scheduler::Options'
  bool insecure = false;           // plain text beyond loopback is meant

  std::string log_dir;  // empty: standard error
  LogLevel log_level = LogLevel::kInfo;
  int exit_with_parent = 0;  // the parent's process id; 0: go on without
  bool validate_only = false;
  std::vector<Fault> faults;  // for tests
  // A process that was told to end and has not after this is cut off. Another
  // for tests.
  absl::Duration cut_off_after = absl::Seconds(20);

  // Ps and worker. How long a lost scheduler is waited for; and where the
  // cluster ends with its scheduler.
  absl::Duration orphan_timeout = absl::Minutes(10);
  absl::Duration one_job_orphan_timeout = absl::Seconds(60);
  // Worker.
  std::string data_root;            // relative data paths are below it
  bool data_root_is_bound = false;  // nothing outside it is read
  std::string work_dir;             // empty: a temporary one
  int threads = 0;                  // 0: one per core
  std::string device;               // "auto", "cpu" or "cuda:3"
  std::string convolutions;         // on a GPU: "cudnn" or "own"
  std::string cuda_graphs;          // likewise: "auto" or "off"
  std::string product_algorithms;   // on a GPU: "measured" or "library"
  // Ps.
  int lanes = 0;  // 0: one per core
  uint64_t in_flight_bytes = 0;
  uint64_t table_memory_bytes = 0;           // 0: half of what is available
  std::optional<uint64_t> table_disk_bytes;  // unset: half of what is free
  std::string spill_dir;
  std::string checkpoint_dir;  // empty: none
  uint64_t shared_memory_bytes = 0;
  // Worker and ps: with each other, on one host.
  bool shared_memory = true;
  // Scheduler.
  std::string state_dir;
  absl::Duration keep;
  absl::Duration lease;
  absl::Duration grow_pause;
  absl::Duration prepare_timeout;
  std::string job_file;  // empty: none
  // Tasks in TF_CONFIG's cluster, this one included; 0: not known.
  int cluster_tasks = 0;
  bool cluster_has_evaluator = false;  // among them

  // Notes for the operator on how the options above came about; logged once.
  std::vector<std::string> notes;
};

struct DaemonCommandLine {
  DaemonOptions options;
  // If set the process ends with it, after printing `text`: to standard output
  // if it is 0 (--help, --version), else to standard error (2: the flags or
  // TF_CONFIG are wrong, all problems, one per line).
  std::optional<int> exit_code;
  std::string text;
};

// `args` without the program's name. `tf_config` is the environment's, empty if
// it is not set; it is ignored if --task names the task of this process.
// Pure: no file, socket or environment is touched.
DaemonCommandLine ReadDaemonOptions(DaemonKind kind,
                                    const std::vector<std::string>& args,
                                    absl::string_view tf_config);

// The effective options of flags and TF_CONFIG, for --validate-only: one "name:
// value" per line, then the notes.
std::string Describe(const DaemonOptions& options);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_DAEMON_DAEMON_OPTIONS_H_
