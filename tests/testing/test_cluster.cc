#include "tests/testing/test_cluster.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "tests/testing/eventually.h"

namespace syncline {
namespace {

constexpr uint64_t kOutputBytesMax = 64 << 20;
constexpr absl::Duration kStartTimeout = absl::Seconds(30);

std::string Content(const std::string& file) {
  return ReadFile(file, kOutputBytesMax).value_or("");
}

}  // namespace

std::string SteppedClockLibrary() { return SYNCLINE_STEPPED_CLOCK_LIBRARY; }

std::string BinaryDir() {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  return program.parent_path().parent_path() / "bin";
}

std::string TestDevice() {
  const char* set = std::getenv("SYNCLINE_TEST_DEVICE");
  return set != nullptr ? set : "";
}

absl::StatusOr<std::unique_ptr<RunningProgram>> RunningProgram::Start(
    const std::string& dir, const std::vector<std::string>& argv,
    const std::vector<std::pair<std::string, std::optional<std::string>>>&
        environment) {
  static int started = 0;  // tests are single threads
  const std::string stem = absl::StrCat(
      dir, "/", argv[0].substr(argv[0].rfind('/') + 1), ".", ++started);
  std::unique_ptr<RunningProgram> program(new RunningProgram);
  program->out_file_ = stem + ".out";
  program->err_file_ = stem + ".err";
  program->started_ = absl::Now();
  ChildProcess::Options options;
  options.argv = argv;
  options.environment = environment;
  options.output_file = program->out_file_;
  options.error_file = program->err_file_;
  options.working_dir = dir;
  SYNCLINE_ASSIGN_OR_RETURN(program->process_, ChildProcess::Spawn(options));
  return program;
}

std::string RunningProgram::out() const { return Content(out_file_); }
std::string RunningProgram::err() const { return Content(err_file_); }

absl::StatusOr<RunningProgram::Result> RunningProgram::Finish(
    absl::Duration timeout) {
  const auto exit = process_->WaitUntil(absl::Now() + timeout);
  if (!exit.has_value()) {
    return absl::DeadlineExceededError(
        absl::StrCat("still running after ", absl::FormatDuration(timeout),
                     "; it wrote:\n", out(), err()));
  }
  return Result{*exit, out(), err(), absl::Now() - started_};
}

absl::Status TestCluster::Start() {
  SYNCLINE_RETURN_IF_ERROR(StartDaemon("scheduler"));
  for (int i = 0; i < options_.ps; ++i) {
    SYNCLINE_RETURN_IF_ERROR(StartDaemon(absl::StrCat("ps-", i)));
  }
  for (int i = 0; i < options_.workers; ++i) {
    SYNCLINE_RETURN_IF_ERROR(
        StartDaemon(i == 0 ? "chief-0" : absl::StrCat("worker-", i - 1)));
  }
  for (int i = 0; i < options_.evaluators; ++i) {
    SYNCLINE_RETURN_IF_ERROR(StartDaemon(absl::StrCat("evaluator-", i)));
  }
  return WaitForFreeMembers(
      options_.ps + options_.workers + options_.evaluators, kStartTimeout);
}

absl::Status TestCluster::StartDaemon(const std::string& name,
                                      const std::vector<std::string>& flags) {
  if (name == "scheduler") return StartScheduler(flags);
  const std::pair<std::string, std::string> role_index =
      absl::StrSplit(name, '-');
  std::vector<std::string> all = {
      absl::StrCat("--scheduler=", scheduler_address_),
      absl::StrCat("--task=", role_index.first, ":", role_index.second)};
  const bool is_ps = role_index.first == "ps";
  const auto says_where = [](const std::string& flag) {
    return absl::StartsWith(flag, "--listen=");
  };
  if (std::none_of(flags.begin(), flags.end(), says_where) &&
      (!is_ps || std::none_of(options_.ps_flags.begin(),
                              options_.ps_flags.end(), says_where))) {
    all.push_back("--listen=127.0.0.1:0");
  }
  all.push_back(absl::StrCat("--work-dir=", options_.work_dir.empty()
                                                ? dir_.File(name + ".work")
                                                : options_.work_dir));
  if (!is_ps) {
    all.push_back("--threads=1");
    if (!options_.data_root.empty()) {
      all.push_back(absl::StrCat("--data-root=", options_.data_root));
    }
    if (!TestDevice().empty()) {
      all.push_back(absl::StrCat("--device=", TestDevice()));
    }
    if (const char* const set = std::getenv("SYNCLINE_TEST_CONVOLUTIONS")) {
      all.push_back(absl::StrCat("--convolutions=", set));
    }
    if (options_.step_pause > absl::ZeroDuration()) {
      all.push_back(absl::StrCat("--fault=step.begin:1:slow:",
                                 absl::ToDoubleSeconds(options_.step_pause)));
    }
  }
  if (is_ps) {
    all.insert(all.end(), options_.ps_flags.begin(), options_.ps_flags.end());
  }
  all.insert(all.end(), flags.begin(), flags.end());
  return Spawn(name,
               is_ps                             ? "syncline-ps"
               : options_.worker_program.empty() ? "syncline-worker"
                                                 : options_.worker_program,
               all);
}

absl::Status TestCluster::StartScheduler(std::vector<std::string> flags) {
  const std::string port_file = dir_.File("scheduler.address");
  SYNCLINE_RETURN_IF_ERROR(RemoveTree(port_file));
  flags.push_back(absl::StrCat("--state-dir=", dir_.File("state")));
  flags.push_back(absl::StrCat("--port-file=", port_file));
  flags.push_back(absl::StrCat("--listen=", scheduler_address_.empty()
                                                ? "127.0.0.1:0"
                                                : scheduler_address_));
  SYNCLINE_RETURN_IF_ERROR(Spawn("scheduler", "syncline-scheduler", flags));
  const bool listens = Eventually(kStartTimeout, [&] {
    return !Content(port_file).empty() ||
           daemon("scheduler").Poll().has_value();
  });
  const std::string address = Content(port_file);
  if (!listens || address.empty()) {
    return absl::UnavailableError(
        absl::StrCat("the scheduler does not listen: ", LogOf("scheduler")));
  }
  scheduler_address_ = std::string(absl::StripAsciiWhitespace(address));
  return absl::OkStatus();
}

absl::Status TestCluster::Spawn(const std::string& name,
                                const std::string& binary,
                                const std::vector<std::string>& flags) {
  ChildProcess::Options options;
  options.argv = {absl::StartsWith(binary, "/")
                      ? binary
                      : absl::StrCat(BinaryDir(), "/", binary),
                  absl::StrCat("--exit-with-parent=", getpid())};
  options.argv.insert(options.argv.end(), flags.begin(), flags.end());
  options.argv.insert(options.argv.end(), options_.flags.begin(),
                      options_.flags.end());
  const bool has_certificate =
      std::any_of(flags.begin(), flags.end(), [](const std::string& flag) {
        return absl::StartsWith(flag, "--tls-cert=");
      });
  if (!options_.certs_dir.empty() && !has_certificate) {
    options.argv.push_back("--tls-cert=" + *CertsFile(name + ".crt"));
    options.argv.push_back("--tls-key=" + *CertsFile(name + ".key"));
    options.argv.push_back("--tls-ca=" + *CertsFile("ca.crt"));
  }
  options.environment = options_.environment;
  options.environment.emplace_back("TF_CONFIG", std::nullopt);
  options.output_file = dir_.File(name + ".log");
  options.working_dir = dir_.path();
  SYNCLINE_ASSIGN_OR_RETURN(daemons_[name], ChildProcess::Spawn(options));
  return absl::OkStatus();
}

std::optional<std::string> TestCluster::CertsFile(
    const std::string& name) const {
  if (options_.certs_dir.empty()) return std::nullopt;
  return absl::StrCat(options_.certs_dir, "/", name);
}

std::string TestCluster::LogOf(const std::string& name) const {
  return Content(dir_.File(name + ".log"));
}

absl::StatusOr<std::unique_ptr<RunningProgram>> TestCluster::StartSynctl(
    const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {absl::StrCat(BinaryDir(), "/synctl")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return RunningProgram::Start(
      dir_.path(), argv,
      {{"SYNCLINE_SCHEDULER", scheduler_address_},
       {"SYNCLINE_DATA", std::nullopt},
       {"SYNCLINE_TLS_CERT", CertsFile("client-admin.crt")},
       {"SYNCLINE_TLS_KEY", CertsFile("client-admin.key")},
       {"SYNCLINE_TLS_CA", CertsFile("ca.crt")},
       {"TF_CONFIG", std::nullopt}});
}

absl::StatusOr<RunningProgram::Result> TestCluster::Synctl(
    const std::vector<std::string>& arguments, absl::Duration timeout) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto program, StartSynctl(arguments));
  return program->Finish(timeout);
}

absl::StatusOr<RunningProgram::Result> TestCluster::SynctlWithToken(
    const std::vector<std::string>& arguments,
    const std::optional<std::string>& token, absl::Duration timeout) {
  std::vector<std::string> argv = {absl::StrCat(BinaryDir(), "/synctl")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto program,
      RunningProgram::Start(dir_.path(), argv,
                            {{"SYNCLINE_SCHEDULER", scheduler_address_},
                             {"SYNCLINE_TOKEN", token},
                             {"SYNCLINE_TOKEN_FILE", std::nullopt},
                             {"SYNCLINE_TLS_CERT", std::nullopt},
                             {"SYNCLINE_TLS_KEY", std::nullopt},
                             {"SYNCLINE_TLS_CA", std::nullopt},
                             {"TF_CONFIG", std::nullopt}}));
  return program->Finish(timeout);
}

template <typename Message>
absl::StatusOr<Message> TestCluster::Ask(
    const std::vector<std::string>& arguments) {
  std::vector<std::string> with_json = arguments;
  with_json.insert(with_json.end(), {"--output", "json"});
  SYNCLINE_ASSIGN_OR_RETURN(const RunningProgram::Result result,
                            Synctl(with_json, absl::Seconds(60)));
  if (result.exit.code != 0 || result.exit.signal != 0) {
    return absl::UnknownError(
        absl::StrCat("synctl ", absl::StrJoin(arguments, " "), ": ",
                     result.exit.ToString(), ": ", result.out, result.err));
  }
  Message message;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(result.out, &message);
  if (!parsed.ok()) {
    return absl::DataLossError(absl::StrCat("not JSON: ", result.out));
  }
  return message;
}

absl::StatusOr<std::string> TestCluster::Submit(
    const std::string& job_file, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"submit", job_file};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  SYNCLINE_ASSIGN_OR_RETURN(const auto response,
                            Ask<google::protobuf::Struct>(arguments));
  return response.fields().at("job_id").string_value();
}

absl::StatusOr<JobStatus> TestCluster::Get(const std::string& job_id) {
  if (!options_.certs_dir.empty()) return Ask<JobStatus>({"get", job_id});
  return ctl::JobsClient(scheduler_address_).Get(job_id);
}

absl::StatusOr<ClusterStatus> TestCluster::Members() {
  if (!options_.certs_dir.empty()) return Ask<ClusterStatus>({"cluster"});
  return ctl::JobsClient(scheduler_address_).GetCluster();
}

absl::Status TestCluster::WaitForFreeMembers(int count,
                                             absl::Duration timeout) {
  absl::StatusOr<ClusterStatus> seen;
  const bool reached = Eventually(timeout, [&] {
    seen = Members();
    return seen.ok() &&
           std::count_if(seen->members().begin(), seen->members().end(),
                         [](const ClusterStatus::Entry& entry) {
                           return entry.job_id().empty();
                         }) == count &&
           seen->members_size() == count;
  });
  if (reached) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      "expected ", count, " free members, but: ",
      seen.ok() ? seen->ShortDebugString() : seen.status().ToString()));
}

absl::StatusOr<JobStatus> TestCluster::WaitForJob(
    const std::string& job_id, const std::string& what, absl::Duration timeout,
    const std::function<bool(const JobStatus&)>& reached) {
  absl::StatusOr<JobStatus> seen;
  if (Eventually(timeout,
                 [&] {
                   seen = Get(job_id);
                   return seen.ok() &&
                          (reached(*seen) || ctl::HasEnded(seen->state()));
                 }) &&
      reached(*seen)) {
    return seen;
  }
  return absl::DeadlineExceededError(absl::StrCat(
      job_id, " did not reach ", what, ": ",
      seen.ok() ? seen->ShortDebugString() : seen.status().ToString()));
}

absl::StatusOr<JobStatus> TestCluster::WaitForClock(const std::string& job_id,
                                                    int64_t clock,
                                                    absl::Duration timeout) {
  return WaitForJob(job_id, absl::StrCat("clock ", clock), timeout,
                    [&](const JobStatus& job) {
                      return job.state() == RUNNING &&
                             job.progress().clock() >= clock;
                    });
}

absl::StatusOr<JobStatus> TestCluster::WaitForEnd(const std::string& job_id,
                                                  absl::Duration timeout) {
  return WaitForJob(job_id, "its end", timeout, [](const JobStatus& job) {
    return ctl::HasEnded(job.state());
  });
}

absl::StatusOr<JobStatus> TestCluster::Train(
    const std::string& job_file, absl::Duration timeout,
    const std::vector<std::string>& flags) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string job_id, Submit(job_file, flags));
  SYNCLINE_ASSIGN_OR_RETURN(JobStatus job, WaitForEnd(job_id, timeout));
  if (job.state() != SUCCEEDED) {
    return absl::UnknownError(absl::StrCat(
        job_id, " is ", JobState_Name(job.state()), ": ",
        job.transitions_size() > 0 ? job.transitions().rbegin()->reason()
                                   : ""));
  }
  return job;
}

absl::StatusOr<std::string> TestCluster::FetchModel(const std::string& job_id) {
  const std::string to = dir_.File(absl::StrCat("results-", job_id));
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto result,
      Synctl({"download", job_id, "trained.onnx", "--to", to}));
  if (result.exit.code != 0) return absl::UnknownError(result.err);
  return absl::StrCat(to, "/trained.onnx");
}

int UnusedPort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  SYNCLINE_CHECK(
      bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace syncline
