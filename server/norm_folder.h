#ifndef SYNCLINE_SERVER_NORM_FOLDER_H_
#define SYNCLINE_SERVER_NORM_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace syncline {

// At the shard of rank 0: collects the squared norms of every shard's blocks
// for one sync clock and folds them in block order, so that the result does not
// depend on the number of shards. A pure state machine; thread-compatible.
class NormFolder {
 public:
  struct Shard {
    uint64_t incarnation = 0;
    std::string name;              // "ps:1 at 10.0.0.6:4000"
    std::vector<uint32_t> blocks;  // global ids, ascending; may be empty
  };
  // How a call ends. Each call ends exactly once.
  struct Answer {
    uint64_t token = 0;
    absl::Status status;
    double squared_norm = 0;
  };
  using Answers = std::vector<Answer>;

  NormFolder(std::vector<Shard> shards, std::string label);

  // Repeats, also of the last folded clock, are answered like the first.
  // Errors: InvalidArgument: not that shard's blocks, or a clock that is not
  // the open one; FailedPrecondition: a replaced incarnation.
  void OnNorms(uint64_t token, uint32_t ps_rank, uint64_t incarnation,
               int64_t clock, absl::Span<const uint32_t> blocks,
               absl::Span<const double> squared_norms, absl::Time deadline,
               Answers* out);
  void OnTick(absl::Time now, Answers* out);
  // Ends all parked calls and every later one.
  void Close(const absl::Status& status, Answers* out);

 private:
  struct Parked {
    uint64_t token;
    absl::Time deadline;
  };
  absl::Status Check(uint32_t ps_rank, uint64_t incarnation, int64_t clock,
                     absl::Span<const uint32_t> blocks,
                     absl::Span<const double> squared_norms) const;
  void Fold(Answers* out);

  const std::vector<Shard> shards_;  // by ps rank
  const std::string label_;
  std::vector<double> norms_;   // by block id, of the open clock
  std::vector<bool> received_;  // by ps rank, of the open clock
  size_t missing_ = 0;          // shards with blocks still to come
  int64_t open_clock_ = -1;     // -1: none
  int64_t folded_clock_ = -1;   // the last one
  double folded_norm_ = 0;
  std::vector<Parked> parked_;
  absl::Status closed_;
};

}  // namespace syncline

#endif  // SYNCLINE_SERVER_NORM_FOLDER_H_
