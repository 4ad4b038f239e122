#ifndef SYNCLINE_TESTS_BENCH_TORCH_SERVER_H_
#define SYNCLINE_TESTS_BENCH_TORCH_SERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/peers/step_runner.h"

namespace syncline {

// Runs `argv` and returns what it wrote to standard output. Errors: its exit
// code, Unimplemented for 77, which says that something is not installed.
absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& argv);

// A model that PyTorch trains, in a process of its own (tests/peers/
// torch_peer.py --serve), step by step as it is asked. Single thread.
class TorchServer {
 public:
  // Exports model and batches of `name` into `folder`. `small`: in the size of
  // a test. Errors: Unimplemented: there is no PyTorch.
  static absl::StatusOr<std::unique_ptr<TorchServer>> Start(
      const std::string& name, const std::string& folder, bool small);
  ~TorchServer();

  // The options with which StepRunner trains the same.
  const StepRunner::Options& options() const { return options_; }
  const std::string& version() const { return version_; }

  struct Step {
    double loss = 0;
    double milliseconds = 0;
  };
  // Errors: DeadlineExceeded: it said nothing for minutes, and was killed.
  absl::StatusOr<std::vector<Step>> Run(int threads, int64_t steps);

 private:
  TorchServer() = default;
  absl::Status ReadHeader();
  absl::StatusOr<std::string> ReadLine();

  StepRunner::Options options_;
  std::string version_;
  pid_t process_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_BENCH_TORCH_SERVER_H_
