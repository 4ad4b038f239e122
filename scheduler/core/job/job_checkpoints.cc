#include "scheduler/core/job/job_checkpoints.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/cuts/cut_id.h"
#include "common/job/checkpoint_trouble.h"
#include "common/job/start_validator.h"
#include "scheduler/core/job/regime_history.h"

namespace syncline::scheduler {
namespace {

// checkpoint.directory has at most 1,024.
constexpr size_t kPathBytesMax = 1200;
// Of a manifest; the next attempt's number is larger.
constexpr uint32_t kAttemptMax = 1'000'000;

template <typename Predicate>
bool RemoveIf(JobStatus* job, Predicate predicate) {
  auto* const all = job->mutable_checkpoints();
  const int before = all->size();
  all->erase(std::remove_if(all->begin(), all->end(), predicate), all->end());
  return all->size() != before;
}

absl::string_view FolderOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? "" : path.substr(0, slash);
}

bool WasMadeLater(const CheckpointInfo& one, const CheckpointInfo& other) {
  return std::pair(other.time().seconds(), other.time().nanos()) >
         std::pair(one.time().seconds(), one.time().nanos());
}

// By this job, behind `start`: not by an attempt that it has gone back from,
// nor by an earlier job that had the same id.
bool WasMadeAfter(const CheckpointInfo& start, const CheckpointInfo& other) {
  return FolderOf(other.path()) == FolderOf(start.path()) &&
         other.path().size() <= kPathBytesMax && other.path() != start.path() &&
         other.clock() >= start.clock() && other.attempt() >= start.attempt() &&
         other.attempt() <= kAttemptMax && !WasMadeLater(other, start);
}

// The chief has saved it by itself: its cut's id says so, in the name of its
// folder (CheckpointName). The number of its parts does not: a job that trains
// with one worker for a while has one, too.
bool IsSavedAlone(const CheckpointInfo& checkpoint) {
  constexpr size_t kCutDigits = 16;
  constexpr uint64_t kClockUnit = uint64_t{1}
                                  << (kCutSeriesBits + kCutNumberBits);
  const absl::string_view path = checkpoint.path();
  uint64_t cut = 0;
  return path.size() > kCutDigits &&
         absl::SimpleHexAtoi(path.substr(path.size() - kCutDigits), &cut) &&
         cut % kClockUnit == MakeCutId(/*attempt=*/0, /*largest_clock=*/0,
                                       CutSeries::kChief, kSavedAloneCut);
}

}  // namespace

StartPoint NextStart(const JobStatus& job) {
  if (!job.checkpoints().empty()) {
    const CheckpointInfo& last = *job.checkpoints().rbegin();
    return {.clock = last.clock(), .from = last};
  }
  // The chief fills the values of a file in, as it does initial ones.
  if (!job.spec().has_start() || StartsFromWeights(job.spec())) return {};
  const StartSpec& start = job.spec().start();
  CheckpointInfo from;
  from.set_path(start.checkpoint());
  from.set_clock(start.clock());
  from.set_shards(start.shards());
  from.set_manifest_crc32c(start.manifest_crc32c());
  return {.clock = start.weights_only() ? 0 : start.clock(), .from = from};
}

bool LacksResiduals(const JobStatus& job, const CheckpointInfo& checkpoint) {
  // All ranks write the others.
  if (!IsSavedAlone(checkpoint)) return false;
  Strategy strategy = job.spec().strategy();
  const CompressionSpec* compression = &job.spec().compression();
  for (const RegimeTransition& transition : job.regimes()) {
    const Regime& regime = transition.regime();
    if (!transition.error().empty() ||
        regime.first_clock() > checkpoint.clock()) {
      continue;
    }
    strategy = regime.strategy();
    compression = regime.compression() == Regime::COMPRESSED
                      ? &regime.compression_spec()
                      : &CompressionSpec::default_instance();
  }
  if (strategy != ALL_REDUCE) return false;
  switch (compression->kind()) {
    case CompressionSpec::ONE_BIT_ADAM:
      // Gradients went whole until then.
      return checkpoint.clock() >
             static_cast<int64_t>(compression->warmup_clocks());
    case CompressionSpec::TERNGRAD:
      return false;
    default:
      return compression->kind() > CompressionSpec::NONE;
  }
}

std::string StartText(const JobStatus& job) {
  if (!job.checkpoints().empty()) {
    const CheckpointInfo& last = *job.checkpoints().rbegin();
    return absl::StrCat(
        "from the checkpoint at clock ", last.clock(),
        LacksResiduals(job, last) ? ", with new residuals of compression" : "");
  }
  if (StartsFromWeights(job.spec())) {
    return absl::StrCat("from clock 0 and the values in ",
                        job.spec().start().weights());
  }
  if (!job.spec().has_start()) {
    return "from clock 0 and the initial values: there is no checkpoint";
  }
  const StartSpec& start = job.spec().start();
  return start.weights_only()
             ? absl::StrCat("from clock 0 and the values in ",
                            start.checkpoint())
             : absl::StrCat("from clock ", start.clock(),
                            ", the checkpoint in ", start.checkpoint());
}

bool TakeCheckpoint(const WorkerReport& report, int64_t first_clock,
                    JobStatus* job, uint32_t attempt) {
  if (attempt == 0) attempt = job->attempt();
  const auto& deleted = report.deleted_checkpoints();
  const CheckpointInfo& whole = report.checkpoint();
  bool changed = RemoveIf(job, [&](const CheckpointInfo& known) {
    return known.path() != whole.path() &&
           absl::c_linear_search(deleted, known.path());
  });
  if (whole.path().empty() || whole.path().size() > kPathBytesMax ||
      whole.clock() < first_clock) {
    return changed;
  }
  // A repeat, after the stream was lost: an attempt goes forward. Two may be of
  // one clock where workers train apart and the slowest one is in a long step.
  if (!job->checkpoints().empty()) {
    const CheckpointInfo& last = *job->checkpoints().rbegin();
    if (last.attempt() == attempt &&
        (whole.clock() < last.clock() || whole.path() == last.path() ||
         (whole.clock() == last.clock() && !WasMadeLater(last, whole)))) {
      return changed;
    }
  }
  // Later checkpoints are of an attempt that the job has gone back from.
  RemoveIf(job, [&](const CheckpointInfo& known) {
    return known.clock() >= whole.clock() || known.path() == whole.path();
  });
  if (job->checkpoints_size() >= kCheckpointsMax) {
    job->mutable_checkpoints()->DeleteSubrange(
        0, job->checkpoints_size() - kCheckpointsMax + 1);
  }
  CheckpointInfo* const added = job->add_checkpoints();
  *added = whole;
  added->set_attempt(attempt);
  return true;
}

bool DropDamaged(absl::Span<const std::string> problems, JobStatus* job) {
  if (job->checkpoints_size() < 2) return false;
  const std::string& path = job->checkpoints().rbegin()->path();
  bool is_damaged = false;
  for (const std::string& problem : problems) {
    if (!absl::StrContains(problem, path)) return false;
    is_damaged |= absl::StrContains(problem, kDamagedCheckpoint);
  }
  if (is_damaged) job->mutable_checkpoints()->RemoveLast();
  return is_damaged;
}

std::vector<FoundCheckpoint> FoundByAll(
    absl::Span<const std::vector<FoundCheckpoint>> lists) {
  std::vector<FoundCheckpoint> found;
  if (lists.empty()) return found;
  for (const FoundCheckpoint& one : lists[0]) {
    const auto has_it = [&](const std::vector<FoundCheckpoint>& list) {
      return absl::c_any_of(list, [&](const FoundCheckpoint& other) {
        return other.checkpoint().path() == one.checkpoint().path() &&
               other.checkpoint().manifest_crc32c() ==
                   one.checkpoint().manifest_crc32c();
      });
    };
    if (absl::c_all_of(lists, has_it)) found.push_back(one);
  }
  return found;
}

bool TakeFound(absl::Span<const FoundCheckpoint> found, const StartPoint& start,
               absl::Time now, JobStatus* job) {
  if (!start.from.has_value() || job->checkpoints().empty() ||
      job->checkpoints().rbegin()->path() != start.from->path()) {
    return false;
  }
  const auto is_there = [&](const CheckpointInfo& known) {
    return absl::c_any_of(found, [&](const FoundCheckpoint& one) {
      return one.checkpoint().path() == known.path();
    });
  };
  if (is_there(*start.from)) return false;
  std::vector<const FoundCheckpoint*> later;
  for (const FoundCheckpoint& one : found) {
    if (WasMadeAfter(*start.from, one.checkpoint())) later.push_back(&one);
  }
  absl::c_sort(later, [](const FoundCheckpoint* a, const FoundCheckpoint* b) {
    return std::pair(a->checkpoint().attempt(), a->checkpoint().clock()) <
           std::pair(b->checkpoint().attempt(), b->checkpoint().clock());
  });
  // By a regime that is not known it cannot go on.
  while (!later.empty() && !TakeRegimesOf(*later.back(), now, job)) {
    later.pop_back();
  }
  if (later.empty()) return false;
  RemoveIf(job, [&](const CheckpointInfo& known) {
    return FolderOf(known.path()) == FolderOf(start.from->path()) &&
           !is_there(known);
  });
  for (const FoundCheckpoint* const one : later) {
    WorkerReport report;
    *report.mutable_checkpoint() = one->checkpoint();
    TakeCheckpoint(report, /*first_clock=*/0, job, one->checkpoint().attempt());
  }
  return true;
}

bool IsUnseen(absl::Span<const std::string> problems, const StartPoint& start,
              const JobStatus& job) {
  return job.attempt() > 1 && start.from.has_value() && !problems.empty() &&
         absl::c_all_of(problems, [&](const std::string& problem) {
           return absl::StrContains(problem, start.from->path()) &&
                  (absl::StrContains(problem, kUnseenCheckpoint) ||
                   absl::StrContains(problem, kDeletedCheckpoint));
         });
}

}  // namespace syncline::scheduler
