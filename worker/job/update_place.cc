#include "worker/job/update_place.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/local_rules.h"
#include "common/update/update_spec.h"
#include "common/wire/block_map.h"
#include "worker/compute/tensor_updates.h"
#include "worker/job/prepared_job.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/peer_exchange.h"

namespace syncline::worker {

std::string WhyOnProcessors(const JobSpec& spec, const UpdateRule& rule,
                            Device& device) {
  if (IsLocal(spec)) {
    return "consistency.mode: LOCAL: a round's steps are the GPU's, and its "
           "change is applied once for all of them";
  }
  // An owner's values come back to the host, which rounds and sends them.
  if (rule.strategy != SHARDED) {
    if (rule.wire_type != ElementType::kFloat32) {
      return "wire_type: values are rounded to 16 bits where the host has "
             "them; "
             "FLOAT32 updates on the GPU";
    }
    if (rule.compresses) {
      return "compression: what is kept back is in memory of the host";
    }
  }
  if (!HasTensorUpdates(device, rule.optimizer)) {
    return absl::StrCat(
        "optimizer.kind: ", OptimizerSpec::Kind_Name(spec.optimizer().kind()),
        " has no kernel there; SGD, MOMENTUM, ADAM and ADAMW "
        "have");
  }
  return "";
}

std::vector<Strategy> StrategiesOf(const JobSpec& spec, Strategy first) {
  std::vector<Strategy> strategies = {first};
  const auto add = [&strategies](const RegimeChange& change) {
    const Strategy strategy = change.strategy();
    if (strategy == STRATEGY_UNSPECIFIED ||
        absl::c_linear_search(strategies, strategy)) {
      return;
    }
    strategies.push_back(strategy);
  };
  for (const RegimeRule& rule : spec.regimes()) add(rule.then());
  for (const RegimeChange& candidate : spec.auto_regime().candidates()) {
    add(candidate);
  }
  return strategies;
}

absl::StatusOr<uint64_t> UpdateBytesOn(Device& device, const JobSpec& spec,
                                       const RegimeSchedule& regimes,
                                       absl::Span<const Strategy> strategies,
                                       const TrainingGraph& training) {
  SYNCLINE_ASSIGN_OR_RETURN(const DenseUpdater::Options update,
                            ReadUpdate(spec, regimes));
  const TrainingRegime& first = regimes.regimes().back();
  UpdateRule rule = {.wire_type = first.wire_type,
                     .compresses = first.compression.any(),
                     .optimizer = update.optimizer.kind};
  // A rule of the job may lead back from 16 bits.
  if (absl::c_any_of(spec.regimes(), [](const RegimeRule& of) {
        return of.then().wire_type() != WIRE_TYPE_UNSPECIFIED;
      })) {
    rule.wire_type = ElementType::kFloat32;
  }
  const std::vector<TensorSize> sizes = TensorSizesOf(training);
  SYNCLINE_ASSIGN_OR_RETURN(const BlockMap map,
                            OwnedBlocks(sizes, spec.resources().workers()));
  std::vector<int64_t> counts;
  for (const TensorSize& size : sizes) counts.push_back(size.element_count);
  uint64_t bytes = 0;
  for (const Strategy strategy : strategies) {
    rule.strategy = strategy;
    if (!WhyOnProcessors(spec, rule, device).empty()) continue;
    PeerExchange::Options options;
    options.update = update;
    options.replicates = strategy != SHARDED;
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < map.shard_count(); ++rank) {
      most =
          std::max(most, PeerExchange::DeviceBytes(options, map, counts, rank));
    }
    bytes += most;
  }
  return bytes;
}

}  // namespace syncline::worker
