#include "common/job/elastic_validator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/lease_rules.h"
#include "common/job/step_shares.h"
#include "common/job/strategy_rules.h"
#include "common/job/worker_groups.h"

namespace syncline {
namespace {

using C = ConsistencySpec;

// Of a worker, as of training.batch_size.
constexpr int64_t kShareMax = 1'048'576;

bool IsSync(C::Mode mode) {
  return mode == C::SYNC || mode == C::MODE_UNSPECIFIED;
}

// Why the number of workers of such a job cannot change: the field, and what it
// is about; empty: it can.
std::pair<std::string, std::string> WhyFixed(const JobSpec& spec,
                                             bool normalizes_batches) {
  const bool leased = LeasesData(spec);
  constexpr char kWhere[] =
      ": the number of workers changes in SYNC, where all of them are at one "
      "clock, or with data.sharing LEASED";
  if (!leased && !IsSync(spec.consistency().mode())) {
    return {"consistency.mode",
            absl::StrCat(C::Mode_Name(spec.consistency().mode()), kWhere)};
  }
  for (const RegimeRule& rule : spec.regimes()) {
    if (leased || IsSync(rule.then().mode())) continue;
    return {"regimes", absl::StrCat("a rule leads to ",
                                    C::Mode_Name(rule.then().mode()), kWhere)};
  }
  if (spec.has_auto_regime()) {
    return {"auto_regime",
            "the job tries other modes than SYNC: the number of workers "
            "changes in SYNC only, where all of them are at one clock"};
  }
  if (HasGroups(spec)) {
    return {"groups",
            "groups keep their workers, so the number of workers cannot "
            "change"};
  }
  if (spec.strategy() == HYBRID) {
    return {"strategy",
            "HYBRID jobs keep their number of workers; use PARAMETER_SERVER, "
            "ALL_REDUCE or SHARDED"};
  }
  if (spec.has_compression() &&
      spec.compression().kind() != CompressionSpec::NONE) {
    return {"compression",
            "what a worker has kept back of its gradients is its own, so "
            "their number cannot change"};
  }
  // A lease has the same samples whatever the number of workers.
  if (!leased && normalizes_batches &&
      !spec.training().sync_batch_statistics()) {
    return {"training.sync_batch_statistics",
            "BatchNormalization takes each worker's own batch, whose size "
            "follows from the number of workers; set it, or freeze these "
            "layers"};
  }
  return {};
}

// Why so many workers cannot share a clock's samples: the field, and what is
// wrong; empty: they can. `spec` is of these workers (SpecForWorkers).
std::pair<std::string, std::string> WhyNotShared(const JobSpec& spec) {
  if (LeasesData(spec)) return {};
  const uint32_t workers = spec.resources().workers();
  const StepShares shares = SharesOf(spec);
  if (shares.samples < int64_t{workers}) {
    return {"training.global_batch",
            absl::StrCat("a clock has ", shares.samples,
                         " samples, fewer than ", workers, " workers")};
  }
  if (shares.largest > kShareMax) {
    return {
        "training.global_batch",
        absl::StrCat("a clock has ", shares.samples, " samples, so each of ",
                     workers, " workers would have ", shares.largest,
                     ", more than ", kShareMax)};
  }
  if (shares.parts > 1 && spec.training().sync_batch_statistics() &&
      spec.training().global_batch() > 0) {
    return {"training.sync_batch_statistics",
            absl::StrCat(
                "each of ", workers, " workers would have ", shares.largest,
                " samples of a clock in ", shares.parts,
                " parts, and statistics are of one part: raise "
                "training.batch_size to ",
                shares.largest * std::max(1u, spec.training().micro_batches()),
                " with training.global_batch: ", shares.samples,
                ", or have more workers")};
  }
  return {};
}

}  // namespace

bool IsElastic(const JobSpec& spec) {
  const ResourcesSpec& resources = spec.resources();
  return (resources.min_workers() > 0 &&
          resources.min_workers() < resources.workers()) ||
         resources.max_workers() > resources.workers();
}

bool OutlivesWorkers(const JobSpec& spec) {
  const ResourcesSpec& resources = spec.resources();
  const TrainingSpec& training = spec.training();
  if (resources.min_workers() == 0 ||
      resources.min_workers() >= resources.workers() || HasGroups(spec) ||
      (!LeasesData(spec) && !IsSync(spec.consistency().mode()))) {
    return false;
  }
  const auto by_ps = [](Strategy strategy) {
    return strategy == PARAMETER_SERVER || strategy == STRATEGY_UNSPECIFIED;
  };
  for (const RegimeRule& rule : spec.regimes()) {
    if (!by_ps(rule.then().strategy())) return false;
  }
  if (!by_ps(spec.strategy())) return false;
  // Within a step statistics wait for all workers. In SYNC the loss scale
  // follows what the shards have skipped, which is the same to all that are
  // left; with leased data each worker has a scale of its own, the lost one
  // too.
  return !training.sync_batch_statistics() &&
         (spec.precision() != FLOAT16 || !LeasesData(spec));
}

int64_t LargestShare(const JobSpec& spec) {
  if (!OutlivesWorkers(spec) || LeasesData(spec)) return SharesOf(spec).largest;
  return SharesOf(SpecForWorkers(spec, spec.resources().min_workers())).largest;
}

bool KeepsCheckpointsOnPs(const JobSpec& spec) {
  return !IsWithoutPs(spec) && spec.checkpoint().directory().empty();
}

std::string WhyTiedToSync(const JobSpec& spec, uint32_t workers,
                          uint32_t wanted) {
  if (LeasesData(spec)) return "";
  constexpr char kWhy[] =
      ", and the number of workers changes in SYNC only, where all of them are "
      "at one clock";
  if (IsElastic(spec)) {
    return absl::StrCat("resources.min_workers or resources.max_workers is set",
                        kWhy);
  }
  const uint32_t own = spec.resources().workers();
  if (wanted > 0 && (wanted != own || workers != own)) {
    return absl::StrCat("`synctl scale` has said ", wanted,
                        wanted == 1 ? " worker" : " workers", kWhy,
                        "; scale it to ", own, ", its own number, first");
  }
  if (spec.training().global_batch() > 0) {
    return "training.global_batch is for SYNC, where a clock is the same for "
           "all workers";
  }
  return "";
}

void CheckElastic(const JobSpec& given, Problems* problems) {
  const ResourcesSpec& resources = given.resources();
  JobSpec spec = given;
  // The defaults of what is read here.
  if (resources.workers() == 0) spec.mutable_resources()->set_workers(1);
  TrainingSpec* const training = spec.mutable_training();
  if (training->batch_size() == 0) training->set_batch_size(32);
  const uint32_t workers = spec.resources().workers();
  const uint32_t least = resources.min_workers();
  const uint32_t most = resources.max_workers();
  const size_t before = problems->size();
  problems->AtMost("resources.min_workers", least, kWorkersMax);
  problems->AtMost("resources.max_workers", most, kWorkersMax);
  if (least > workers) {
    problems->Add("resources.min_workers", least,
                  " is more than resources.workers, ", workers);
  }
  if (most > 0 && most < workers) {
    problems->Add("resources.max_workers", most,
                  " is less than resources.workers, ", workers);
  }
  if (problems->size() > before || workers > kWorkersMax) return;
  const bool is_elastic = IsElastic(spec);
  const std::string field = least > 0 && least < workers
                                ? "resources.min_workers"
                                : "resources.max_workers";
  if (is_elastic && !spec.has_checkpoint()) {
    problems->Add(field,
                  "needs checkpoint: with another number of workers the job "
                  "goes on from one");
  }
  if (is_elastic && spec.has_checkpoint() && KeepsCheckpointsOnPs(spec)) {
    problems->Add("checkpoint.directory", "is required with ", field,
                  ": without it each ps keeps its part of a checkpoint in its "
                  "own --checkpoint-dir, where no other ps finds it");
  }
  if (least > 0 && least < workers && !spec.has_restart()) {
    problems->Add("resources.min_workers",
                  "needs restart: without it a lost worker ends the job");
  }
  if (!is_elastic && training->global_batch() == 0) return;
  if (!is_elastic && LeasesData(spec)) return;  // CheckLeases refuses it
  // With the model it is known whether that normalises batches.
  const auto fixed = WhyFixed(spec, /*normalizes_batches=*/false);
  if (!fixed.first.empty()) {
    problems->Add(is_elastic ? field : "training.global_batch",
                  "does not go with ", fixed.first, ": ", fixed.second);
    return;
  }
  for (const uint32_t count : {workers, least, most}) {
    if (count == 0) continue;
    const auto wrong = WhyNotShared(SpecForWorkers(spec, count));
    if (wrong.first.empty()) continue;
    problems->Add(wrong.first, wrong.second);
    return;
  }
}

absl::Status CheckWorkersOf(const JobSpec& spec, uint32_t workers,
                            bool normalizes_batches) {
  const ResourcesSpec& resources = spec.resources();
  if (workers < 1 || workers > kWorkersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("workers: ", workers, " is outside 1..", kWorkersMax));
  }
  if (workers < resources.min_workers()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "workers: ", workers, " is less than the job's resources.min_workers, ",
        resources.min_workers()));
  }
  if (resources.max_workers() > 0 && workers > resources.max_workers()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "workers: ", workers, " is more than the job's resources.max_workers, ",
        resources.max_workers()));
  }
  // The number that the job began with is always one of its own.
  if (workers == resources.workers()) return absl::OkStatus();
  const auto fixed = WhyFixed(spec, normalizes_batches);
  if (!fixed.first.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(fixed.first, ": ", fixed.second));
  }
  const auto wrong = WhyNotShared(SpecForWorkers(spec, workers));
  if (wrong.first.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(wrong.first, ": ", wrong.second));
}

}  // namespace syncline
