#ifndef SYNCLINE_TESTS_BENCH_SERVE_H_
#define SYNCLINE_TESTS_BENCH_SERVE_H_

// The other process of a benchmark that needs one: this program again, as
// "syncline-bench serve-ps ...", "serve-echo" or "serve-map". Not for people.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/system/child_process.h"
#include "proto/job.pb.h"
#include "tests/testing/temp_dir.h"

namespace syncline {

// argv[1] names one of them.
bool IsServeCommand(int argc, char** argv);
// Serves until it is killed, which it is when its parent ends. Prints its
// address when it listens. Returns an exit code if it cannot.
int Serve(int argc, char** argv);

// One such process, started and listening.
class ServedPeer {
 public:
  struct Tensors {
    uint32_t count = 1;
    int64_t elements = 0;  // of each
    WireType wire_type = WIRE_FLOAT32;
  };
  // A ps that has opened job "bench" of one worker, at learning rate 1. The
  // tensors are "w0", "w1" ...
  static absl::StatusOr<std::unique_ptr<ServedPeer>> Ps(
      const Tensors& tensors, OptimizerSpec::Kind optimizer);
  // Answers every call of any method with what it was sent, as it was sent.
  static absl::StatusOr<std::unique_ptr<ServedPeer>> Echo();
  // A std::unordered_map of rows, see map_service.h.
  static absl::StatusOr<std::unique_ptr<ServedPeer>> Map(uint32_t dim);

  const std::string& address() const { return address_; }
  pid_t pid() const { return process_->pid(); }

 private:
  static absl::StatusOr<std::unique_ptr<ServedPeer>> Start(
      std::vector<std::string> arguments);

  TempDir dir_;
  std::unique_ptr<ChildProcess> process_;
  std::string address_;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_BENCH_SERVE_H_
