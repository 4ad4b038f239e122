#ifndef SYNCLINE_TESTS_TESTING_PS_PROCESSES_H_
#define SYNCLINE_TESTS_TESTING_PS_PROCESSES_H_

// Real syncline-ps processes with one job open on them, and no other daemon:
// the scheduler that they talk to is in the test's process and does nothing
// but give them that job.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/grpc_channel.h"
#include "common/system/child_process.h"
#include "proto/job.pb.h"
#include "tests/testing/temp_dir.h"

namespace syncline {

class PsProcesses {
 public:
  struct Options {
    uint32_t ps = 1;
    std::vector<std::string> flags;  // of each, besides those it needs
    // The ps are filled in; the rest is the caller's.
    JobAssignment assignment;
  };
  // Returns when the job is open on all of them. Errors: what they said.
  static absl::StatusOr<std::unique_ptr<PsProcesses>> Start(
      const Options& options);
  ~PsProcesses();

  const JobAssignment& assignment() const { return assignment_; }
  const std::string& address(uint32_t rank) const {
    return assignment_.ps(static_cast<int>(rank)).member().address();
  }
  // "VmRSS" or "VmHWM" of /proc/PID/status, in bytes; 0 if unreadable.
  uint64_t MemoryBytes(uint32_t rank, const std::string& field) const;
  // For messages: what the process of this rank logged last.
  std::string LastLogLine(uint32_t rank) const;

 private:
  class FakeScheduler;
  PsProcesses() = default;

  TempDir dir_;
  std::unique_ptr<FakeScheduler> scheduler_;
  std::unique_ptr<GrpcServer> server_;
  std::vector<std::unique_ptr<ChildProcess>> processes_;
  JobAssignment assignment_;
};

// A job with `workers` workers of incarnations kTestWorkerIncarnation + rank,
// one dense tensor of one element and tables, whose specs get defaults. `dims`:
// elements of a row, by table.
JobAssignment TableJob(const JobSpec& spec, const std::vector<uint32_t>& dims,
                       uint32_t workers, uint32_t ps);

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_PS_PROCESSES_H_
