#include "worker/collectives/collective_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"

namespace syncline::worker {

std::string CollectiveModel::ToText() const {
  return absl::StrFormat("alpha %.17g s, beta %.17g s/byte", alpha_seconds,
                         beta_seconds_per_byte);
}

absl::StatusOr<CollectiveModel> CollectiveModel::Parse(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  CollectiveModel model;
  if (words.size() != 6 || words[0] != "alpha" || words[2] != "s," ||
      words[3] != "beta" || words[5] != "s/byte" ||
      !absl::SimpleAtod(words[1], &model.alpha_seconds) ||
      !absl::SimpleAtod(words[4], &model.beta_seconds_per_byte) ||
      !(model.alpha_seconds >= 0 && std::isfinite(model.alpha_seconds)) ||
      !(model.beta_seconds_per_byte >= 0 &&
        std::isfinite(model.beta_seconds_per_byte))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not a model of collectives (\"alpha A s, beta B s/byte\"): ", text));
  }
  return model;
}

CollectiveModel FitModel(const MessageTime& small, const MessageTime& large) {
  SYNCLINE_CHECK(large.bytes > small.bytes);
  CollectiveModel model;
  model.beta_seconds_per_byte = std::max(0.0, large.seconds - small.seconds) /
                                static_cast<double>(large.bytes - small.bytes);
  model.alpha_seconds =
      std::max(0.0, small.seconds - model.beta_seconds_per_byte *
                                        static_cast<double>(small.bytes));
  return model;
}

CollectiveModel SlowestOf(absl::Span<const CollectiveModel> models) {
  CollectiveModel slowest;
  for (const CollectiveModel& model : models) {
    slowest.alpha_seconds =
        std::max(slowest.alpha_seconds, model.alpha_seconds);
    slowest.beta_seconds_per_byte =
        std::max(slowest.beta_seconds_per_byte, model.beta_seconds_per_byte);
  }
  return slowest;
}

double PredictAllReduce(const CollectiveModel& model,
                        CollectiveAlgorithm algorithm, size_t count,
                        uint32_t ranks) {
  if (ranks < 2) return 0;
  const double n = ranks;
  const double wire =
      static_cast<double>(count) * sizeof(float) * model.beta_seconds_per_byte;
  double rounds = 0;
  for (uint32_t reached = 1; reached < ranks; reached *= 2) ++rounds;
  switch (algorithm) {
    case CollectiveAlgorithm::kExchange:
      return (n - 1) * (model.alpha_seconds + wire);
    case CollectiveAlgorithm::kDirect:
      return 2 * (n - 1) * (model.alpha_seconds + wire / n);
    case CollectiveAlgorithm::kRing:
      return 2 * (n - 1) * (model.alpha_seconds + wire / n);
    case CollectiveAlgorithm::kTree:
      return 2 * rounds * (model.alpha_seconds + wire);
  }
  return std::numeric_limits<double>::infinity();
}

CollectiveAlgorithm ChooseAlgorithm(const CollectiveModel& model,
                                    CollectiveBits bits, CollectiveKind kind,
                                    size_t count, uint32_t ranks) {
  if (kind != CollectiveKind::kAllReduce) return CollectiveAlgorithm::kDirect;
  std::vector<CollectiveAlgorithm> allowed = {CollectiveAlgorithm::kExchange,
                                              CollectiveAlgorithm::kDirect};
  if (bits == CollectiveBits::kAny) {
    allowed.push_back(CollectiveAlgorithm::kRing);
    allowed.push_back(CollectiveAlgorithm::kTree);
  }
  CollectiveAlgorithm best = CollectiveAlgorithm::kDirect;
  double least = std::numeric_limits<double>::infinity();
  for (const CollectiveAlgorithm algorithm : allowed) {
    if (algorithm == CollectiveAlgorithm::kExchange &&
        count > kExchangeElementsMax) {
      continue;
    }
    const double seconds = PredictAllReduce(model, algorithm, count, ranks);
    if (seconds < least) {
      least = seconds;
      best = algorithm;
    }
  }
  return best;
}

}  // namespace syncline::worker
