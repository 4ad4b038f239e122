#ifndef SYNCLINE_WORKER_COLLECTIVES_COLLECTIVE_MODEL_H_
#define SYNCLINE_WORKER_COLLECTIVES_COLLECTIVE_MODEL_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/collectives/collective_schedule.h"

namespace syncline::worker {

// The cost of a message to its sender: alpha + bytes x beta seconds. All ranks
// have the same model, so all choose the same algorithms. A run is replayed
// with the model that it wrote down.
// Source: Hockney, Parallel Computing 1994; the costs of algorithms as in
// Thakur, Rabenseifner and Gropp, IJHPCA 2005.
struct CollectiveModel {
  double alpha_seconds = 0;
  double beta_seconds_per_byte = 0;

  // "alpha 1.25e-05 s, beta 3.1e-10 s/byte", to all digits.
  std::string ToText() const;
  // Errors: InvalidArgument: not such a text, or numbers that cannot be.
  static absl::StatusOr<CollectiveModel> Parse(absl::string_view text);
};

// The least time of a short message, and of a long one. Pure.
struct MessageTime {
  size_t bytes = 0;
  double seconds = 0;
};
// REQUIRES: large.bytes > small.bytes.
CollectiveModel FitModel(const MessageTime& small, const MessageTime& large);
// The slowest of what ranks have measured.
CollectiveModel SlowestOf(absl::Span<const CollectiveModel> models);

// Seconds of a kAllReduce of `count` elements.
double PredictAllReduce(const CollectiveModel& model,
                        CollectiveAlgorithm algorithm, size_t count,
                        uint32_t ranks);

// The bits of sums that a job allows.
enum class CollectiveBits {
  kRankOrder,  // only what adds in rank order: the bits of any other owner
  kAny,
};
// The algorithm for `count` elements: the one of the least predicted time among
// those allowed; of equal ones the first. Pure: the same for the same
// arguments.
CollectiveAlgorithm ChooseAlgorithm(const CollectiveModel& model,
                                    CollectiveBits bits, CollectiveKind kind,
                                    size_t count, uint32_t ranks);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_COLLECTIVE_MODEL_H_
