#ifndef SYNCLINE_SERVER_CHECKPOINT_UNCOMMITTED_PARTS_H_
#define SYNCLINE_SERVER_CHECKPOINT_UNCOMMITTED_PARTS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace syncline::ps {

// The folders of a shard's parts that are whole and may belong to no
// checkpoint: the part of another ps may have failed. Such parts fill the disk.
// Pure, thread-compatible.
class UncommittedParts {
 public:
  // How long a checkpoint may still be committed after its part was written.
  explicit UncommittedParts(absl::Duration commit_max)
      : commit_max_(commit_max) {}

  void Add(std::string folder, absl::Time now) {
    parts_.push_back({std::move(folder), now});
  }

  // Those that will not be committed any more; they are forgotten, as those
  // that `may_be_committed` (has a manifest, or one cannot be told).
  std::vector<std::string> TakeLeft(
      absl::Time now,
      absl::FunctionRef<bool(const std::string& folder)> may_be_committed) {
    std::vector<std::string> left;
    std::vector<Part> open;
    for (Part& part : parts_) {
      if (may_be_committed(part.folder)) continue;
      if (now < part.written + commit_max_) {
        open.push_back(std::move(part));
      } else {
        left.push_back(std::move(part.folder));
      }
    }
    parts_ = std::move(open);
    return left;
  }

 private:
  struct Part {
    std::string folder;
    absl::Time written;
  };

  const absl::Duration commit_max_;
  std::vector<Part> parts_;  // the oldest first
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CHECKPOINT_UNCOMMITTED_PARTS_H_
