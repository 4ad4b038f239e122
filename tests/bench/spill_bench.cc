// A table of eight times its memory against the same table with memory for all
// of it, in real ps processes: keys with Zipf's frequencies, drawn afresh for
// every repetition, each batch pulled and then pushed. And the same for as long
// as one likes, with an eye on the memory of the process.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "tests/bench/benchmarks.h"
#include "tests/testing/process_memory.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/zipf_trainer.h"

namespace syncline {
namespace {

constexpr int kBatches = 64;  // of a repetition
// Pulled, then pushed: about what eight workers have under way.
constexpr int kGroup = 8;
constexpr size_t kVerifiedRows = 4096;

// Rows are compared by both sides before this is believed.
absl::StatusOr<double> RowsPerSecond(
    const std::vector<ZipfTrainer::Batch>& batches, ZipfTrainer* trainer) {
  size_t rows = 0;
  const absl::Time begin = absl::Now();
  for (size_t i = 0; i < batches.size(); i += kGroup) {
    const auto group = absl::MakeSpan(batches).subspan(i, kGroup);
    SYNCLINE_RETURN_IF_ERROR(trainer->Train(group));
    for (const ZipfTrainer::Batch& batch : group) rows += batch.indices.size();
  }
  return 2 * static_cast<double>(rows) /
         absl::ToDoubleSeconds(absl::Now() - begin);
}

// Reports where the rows pulled since `before` were found.
void ReportTiers(const ShardStatus::Table& before,
                 const ShardStatus::Table& after, Report* report) {
  const double memory = static_cast<double>(after.pulled_from_memory() -
                                            before.pulled_from_memory());
  const double disk =
      static_cast<double>(after.pulled_from_disk() - before.pulled_from_disk());
  report->Add("pulled rows found in memory", "%",
              100 * memory / (memory + disk));
  report->Add(
      "rows written to disk, of pulled", "%",
      100 * static_cast<double>(after.spilled_rows() - before.spilled_rows()) /
          (memory + disk));
  report->Set("rows in memory", after.rows_in_memory());
  report->Set("rows on disk", after.rows_on_disk());
  report->Set("disk bytes of a row there",
              after.disk_bytes() / std::max<uint64_t>(1, after.rows_on_disk()));
}

class LongRun {
 public:
  LongRun(ZipfTrainer* trainer, Random* random)
      : trainer_(trainer), random_(random) {}

  absl::Status Run(absl::Duration length, Report* report) {
    const absl::Time end = absl::Now() + length;
    uint64_t rows = 0;
    int clocks = 0;
    while (absl::Now() < end) {
      const std::vector<ZipfTrainer::Batch> batches =
          trainer_->Draw(kGroup, random_);
      SYNCLINE_RETURN_IF_ERROR(trainer_->Train(batches));
      clocks += kGroup;
      for (const auto& batch : batches) rows += batch.indices.size();
      SYNCLINE_RETURN_IF_ERROR(trainer_->Verify(256, random_));
    }
    report->Set("long run, seconds", absl::ToInt64Seconds(length));
    report->Set("long run, batches of 8,192 draws", clocks);
    report->Set("long run, rows pushed", rows);
    return absl::OkStatus();
  }

 private:
  ZipfTrainer* const trainer_;
  Random* const random_;
};

}  // namespace

absl::Status RunSpillBench(const BenchOptions& options, Report* report) {
  const uint64_t budget = options.smoke ? 16 << 20 : 64 << 20;
  const uint64_t rows = 8 * budget / ZipfTrainer::kRowBytes;
  const TempDir spill;
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto roomy,
      PsProcesses::Start(ZipfTrainer::OnePs({"--table-memory=4GiB"})));
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto tight,
      PsProcesses::Start(ZipfTrainer::OnePs(
          {absl::StrCat("--table-memory=", budget), "--table-disk=8GiB",
           absl::StrCat("--spill-dir=", spill.path())})));
  ZipfTrainer in_memory(*roomy, rows);
  ZipfTrainer spilling(*tight, rows);
  SYNCLINE_RETURN_IF_ERROR(in_memory.WarmUp());
  SYNCLINE_RETURN_IF_ERROR(spilling.WarmUp());
  const double base = static_cast<double>(tight->MemoryBytes(0, "VmRSS"));
  SYNCLINE_RETURN_IF_ERROR(in_memory.Fill());
  const absl::Time filling = absl::Now();
  SYNCLINE_RETURN_IF_ERROR(spilling.Fill());
  const double fill_seconds = absl::ToDoubleSeconds(absl::Now() - filling);

  Random random(4);
  ShardStatus::Table before;
  for (int i = -1; i < options.repetitions; ++i) {
    if (i == 0) {
      SYNCLINE_ASSIGN_OR_RETURN(before, spilling.Status());
    }
    // The rows that belong into memory have to get there first.
    const int batches = i < 0 && !options.smoke ? 8 * kBatches : kBatches;
    const auto drawn = spilling.Draw(batches, &random);
    SYNCLINE_ASSIGN_OR_RETURN(const double all,
                              RowsPerSecond(drawn, &in_memory));
    SYNCLINE_ASSIGN_OR_RETURN(const double some,
                              RowsPerSecond(drawn, &spilling));
    if (i < 0) continue;
    report->Add("all in memory", "M rows/s", all / 1e6);
    report->Add("an eighth in memory", "M rows/s", some / 1e6);
  }
  SYNCLINE_ASSIGN_OR_RETURN(const ShardStatus::Table after, spilling.Status());
  report->AddRatio("an eighth / all in memory", "an eighth in memory",
                   "all in memory", 0.3);
  report->Set("rows", rows);
  report->Set("batches of a repetition", kBatches);
  ReportTiers(before, after, report);
  if (after.pulled_from_disk() == before.pulled_from_disk()) {
    return absl::InternalError("no row came from disk: nothing was measured");
  }
  report->Add("rows pushed to fill the table", "M rows/s",
              static_cast<double>(rows) / fill_seconds / 1e6);
  SYNCLINE_RETURN_IF_ERROR(in_memory.Verify(kVerifiedRows, &random));
  SYNCLINE_RETURN_IF_ERROR(spilling.Verify(kVerifiedRows, &random));

  SYNCLINE_RETURN_IF_ERROR(
      LongRun(&spilling, &random)
          .Run(absl::Seconds(options.smoke ? 2 : options.seconds), report));
  const double most = static_cast<double>(tight->MemoryBytes(0, "VmHWM"));
  const double budget_bytes = static_cast<double>(budget);
  report->Add("budget", "MiB", budget_bytes / kMiB);
  report->Add("memory of the ps without rows", "MiB", base / kMiB);
  report->Add("memory at most (VmHWM)", "MiB", most / kMiB);
  report->Add("memory at most above that, of the budget", "%",
              100 * (most - base) / budget_bytes);
  return absl::OkStatus();
}

}  // namespace syncline
