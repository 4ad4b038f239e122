#ifndef SYNCLINE_SCHEDULER_SERVICE_STATE_OWNER_H_
#define SYNCLINE_SCHEDULER_SERVICE_STATE_OWNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace syncline::scheduler {

// DIRECTORY/owner: which scheduler has the state, the one with the largest
// epoch. The lock on the database keeps a second process of the same host out;
// over a network file system it may not, and a scheduler that was frozen must
// find out that another one has taken its place. Used by one thread.
class StateOwner {
 public:
  // Takes the state. Errors: FailedPrecondition: a scheduler with a larger
  // epoch has it; those of the file system.
  static absl::StatusOr<std::unique_ptr<StateOwner>> Claim(
      const std::string& directory, uint64_t epoch);

  // OK: the state is still ours, as of a moment ago (kLookPeriod). Errors:
  // FailedPrecondition: it is another scheduler's, with its epoch, host and
  // process. A file that cannot be read says nothing.
  absl::Status Check();

 private:
  StateOwner(std::string path, uint64_t epoch)
      : path_(std::move(path)), epoch_(epoch) {}
  absl::Status Look() const;

  const std::string path_;
  const uint64_t epoch_;
  absl::Time look_at_ = absl::InfinitePast();
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_STATE_OWNER_H_
