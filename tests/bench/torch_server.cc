#include "tests/bench/torch_server.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

constexpr int kNotInstalled = 77;

// Longer than PyTorch takes to be loaded, and than any step.
constexpr int kSilenceMaxMs = 300'000;

// Without OMP_WAIT_POLICY, which this program sets for itself: PyTorch is
// measured as its users run it.
std::vector<char*> Environment() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!absl::StartsWith(*entry, "OMP_WAIT_POLICY=")) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

struct Child {
  pid_t process = -1;
  int to = -1;    // its standard input
  int from = -1;  // its standard output
};

absl::StatusOr<Child> Spawn(const std::vector<std::string>& argv) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
    return absl::InternalError("no pipe");
  }
  std::vector<char*> arguments;
  for (const std::string& word : argv) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  Child child{.to = in[1], .from = out[0]};
  const int error = posix_spawn(&child.process, arguments[0], &actions, nullptr,
                                arguments.data(), Environment().data());
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  if (error == 0) return child;
  close(in[1]);
  close(out[0]);
  if (error == ENOENT) {
    return absl::UnimplementedError(absl::StrCat("there is no ", argv[0]));
  }
  return absl::InternalError(
      absl::StrCat("cannot start ", argv[0], ": ", std::strerror(error)));
}

absl::Status AwaitExit(pid_t process, absl::string_view what) {
  int status = 0;
  waitpid(process, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 0) return absl::OkStatus();
  if (code == kNotInstalled) {
    return absl::UnimplementedError("PyTorch is not installed");
  }
  return absl::InternalError(absl::StrCat(what, " exits with ", code));
}

}  // namespace

absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& argv) {
  SYNCLINE_ASSIGN_OR_RETURN(const Child child, Spawn(argv));
  close(child.to);
  std::string output;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = read(child.from, buffer, sizeof(buffer))) > 0) {
    output.append(buffer, got);
  }
  close(child.from);
  SYNCLINE_RETURN_IF_ERROR(AwaitExit(child.process, argv[0]));
  return output;
}

absl::StatusOr<std::unique_ptr<TorchServer>> TorchServer::Start(
    const std::string& name, const std::string& folder, bool small) {
  std::vector<std::string> argv = {"/usr/bin/python3",
                                   "-W",
                                   "ignore",
                                   SourceDir() + "/tests/peers/torch_peer.py",
                                   "--serve",
                                   name,
                                   folder};
  if (small) argv.push_back("--small");
  SYNCLINE_ASSIGN_OR_RETURN(const Child child, Spawn(argv));
  std::unique_ptr<TorchServer> server(new TorchServer());
  server->process_ = child.process;
  server->to_ = fdopen(child.to, "w");
  server->from_ = fdopen(child.from, "r");
  std::setvbuf(server->from_, nullptr, _IONBF, 0);  // ReadLine polls
  server->options_.model = folder + "/model.onnx";
  server->options_.batches = folder + "/batches";
  const absl::Status status = server->ReadHeader();
  if (status.ok()) return server;
  if (absl::IsDeadlineExceeded(status)) return status;
  // Its end says more than that it said nothing.
  const pid_t process = std::exchange(server->process_, -1);
  SYNCLINE_RETURN_IF_ERROR(AwaitExit(process, "torch_peer.py"));
  return status;
}

TorchServer::~TorchServer() {
  if (to_ != nullptr) std::fclose(to_);  // it ends with its input
  if (from_ != nullptr) std::fclose(from_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

absl::StatusOr<std::string> TorchServer::ReadLine() {
  std::string line;
  while (true) {
    pollfd next = {.fd = fileno(from_), .events = POLLIN, .revents = 0};
    const int ready = poll(&next, 1, kSilenceMaxMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      kill(process_, SIGKILL);  // else it would be waited for once more
      return absl::DeadlineExceededError(absl::StrCat(
          "torch_peer.py has said nothing for ", kSilenceMaxMs / 1000, " s"));
    }
    const int c = std::fgetc(from_);
    if (c == EOF) return absl::InternalError("torch_peer.py ended");
    if (c == '\n') return line;
    line.push_back(static_cast<char>(c));
  }
}

absl::Status TorchServer::ReadHeader() {
  while (true) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::string line, ReadLine());
    if (line == "ready") return absl::OkStatus();
    const std::pair<std::string, std::string> entry =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    const auto& [key, value] = entry;
    bool good = true;
    if (key == "version") {
      version_ = value;
    } else if (key == "optimizer") {
      options_.optimizer.kind = value == "adam"       ? OptimizerKind::kAdam
                                : value == "adagrad"  ? OptimizerKind::kAdagrad
                                : value == "momentum" ? OptimizerKind::kMomentum
                                                      : OptimizerKind::kSgd;
    } else if (key == "loss") {
      options_.loss = value == "sigmoid" ? LossSpec::SIGMOID_CROSS_ENTROPY
                                         : LossSpec::SOFTMAX_CROSS_ENTROPY;
    } else if (key == "rate") {
      good = absl::SimpleAtof(value, &options_.rate);
    } else if (key == "epsilon") {
      good = absl::SimpleAtof(value, &options_.optimizer.epsilon);
    } else if (key == "batch") {
      good = absl::SimpleAtoi(value, &options_.batch_size);
    } else if (key == "steps") {
      good = absl::SimpleAtoi(value, &options_.steps);
    } else if (key == "table") {
      options_.tables.push_back(value);
    } else {
      good = false;
    }
    if (!good) {
      return absl::InternalError(absl::StrCat("torch_peer.py says ", line));
    }
  }
}

absl::StatusOr<std::vector<TorchServer::Step>> TorchServer::Run(int threads,
                                                                int64_t steps) {
  std::fprintf(to_, "%d %lld\n", threads, static_cast<long long>(steps));
  std::fflush(to_);
  std::vector<Step> results(steps);
  for (Step& step : results) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::string line, ReadLine());
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    if (words.size() != 2 || !absl::SimpleAtod(words[0], &step.loss) ||
        !absl::SimpleAtod(words[1], &step.milliseconds)) {
      return absl::InternalError(absl::StrCat("torch_peer.py says ", line));
    }
  }
  return results;
}

}  // namespace syncline
