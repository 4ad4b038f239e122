#include "worker/training/result_export.h"

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "worker/export/event_file.h"
#include "worker/export/file_growth.h"
#include "worker/training/skipped_counts.h"

namespace syncline::worker {
namespace {

constexpr absl::Duration kExportActivityPeriod = absl::Seconds(1);
// A small part of the shortest step timeout.
constexpr absl::Duration kGrowthPeriod = absl::Milliseconds(100);
// Results do not wait longer for a ps that does not say what it skipped.
constexpr absl::Duration kSkippedTimeout = absl::Seconds(5);
// TensorBoard looks for "tfevents" in a name.
constexpr char kEventFile[] = "tensorboard/events.out.tfevents.";
constexpr char kBestModel[] = "best.onnx";
constexpr char kBestWeights[] = "best.safetensors";

}  // namespace

ResultExport::ResultExport(const PreparedJob& job, std::string dir,
                           ResultUpload* results, const JobReporter* reporter)
    : job_(job),
      dir_(std::move(dir)),
      results_(*results),
      reporter_(*reporter) {}

// The model and the figures before the files of rows, which may be large.
absl::Status ResultExport::PutChiefResults(Trainer* trainer) {
  const auto reader_of = [trainer](uint32_t table) {
    return trainer->ReaderOf(table);
  };
  SYNCLINE_ASSIGN_OR_RETURN(const DenseTables tables, ReadTables(reader_of));
  SYNCLINE_RETURN_IF_ERROR(PutModel(tables));
  SYNCLINE_RETURN_IF_ERROR(PutText("history.csv", trainer->HistoryCsv()));
  const auto evaluations = job_.has_evaluator() ? absl::Span<const Evaluation>()
                                                : trainer->evaluations();
  SYNCLINE_RETURN_IF_ERROR(
      PutText(absl::StrCat(kEventFile, "chief"),
              EventFile(trainer->History(absl::Now()), evaluations)));
  if (!job_.has_evaluator()) {
    const WorkerProgress totals = trainer->Totals();
    SYNCLINE_RETURN_IF_ERROR(
        PutMetrics(trainer->evaluations(), &totals, trainer->left_out()));
  }
  SYNCLINE_RETURN_IF_ERROR(PutBest());
  SYNCLINE_RETURN_IF_ERROR(PutTables(tables, reader_of));
  SYNCLINE_RETURN_IF_ERROR(results_.Finish());
  return tables.empty() ? absl::OkStatus() : trainer->EndTables();
}

absl::Status ResultExport::PutModelAndTables(const ReaderOfTable& reader_of) {
  SYNCLINE_ASSIGN_OR_RETURN(const DenseTables tables, ReadTables(reader_of));
  SYNCLINE_RETURN_IF_ERROR(PutModel(tables));
  return PutTables(tables, reader_of);
}

absl::Status ResultExport::PutModel(const DenseTables& tables) {
  SYNCLINE_RETURN_IF_ERROR(
      results_.Put("trained.onnx", [&](const std::string& path) {
        return ExportModel(job_, tables, path);
      }));
  return results_.Put("trained.safetensors", [&](const std::string& path) {
    return WriteWeights(job_, tables, path);
  });
}

absl::Status ResultExport::PutEvaluatorResults(
    absl::Span<const Evaluation> evaluations,
    std::optional<ParameterExchange::LeftOut> left_out) {
  SYNCLINE_RETURN_IF_ERROR(
      PutMetrics(evaluations, /*totals=*/nullptr, left_out));
  SYNCLINE_RETURN_IF_ERROR(PutText(absl::StrCat(kEventFile, "evaluator"),
                                   EventFile({}, evaluations)));
  SYNCLINE_RETURN_IF_ERROR(PutBest());
  return results_.Finish();
}

void ResultExport::WriteBest(const Evaluation& evaluation,
                             const StoringProgress& storing) {
  const std::string folder = absl::StrCat(dir_, "/best");
  storing(0);
  // An earlier epoch's files must not pass for this one's.
  absl::Status written = RemoveTree(folder);
  if (written.ok()) written = MakeDirs(folder);
  const FileGrowth growth(folder, kGrowthPeriod, storing);
  if (written.ok()) {
    written = ExportModel(job_, {}, absl::StrCat(folder, "/", kBestModel));
  }
  if (written.ok()) {
    written = WriteWeights(job_, {}, absl::StrCat(folder, "/", kBestWeights));
  }
  if (written.ok()) return;
  RemoveTree(folder).IgnoreError();
  LogWarning("the best parameters so far could not be written and are lost")
      .Job(job_.assignment.job_id())
      .Field("epoch", evaluation.epoch())
      .Field("clock", evaluation.clock())
      .Status(written);
}

absl::Status ResultExport::PutBest() {
  for (const char* const name : {kBestModel, kBestWeights}) {
    const std::string file = absl::StrCat(dir_, "/best/", name);
    if (!FileSize(file).ok()) continue;
    SYNCLINE_RETURN_IF_ERROR(
        results_.Put(name, [&](const std::string& path) -> absl::Status {
          if (std::rename(file.c_str(), path.c_str()) == 0) {
            return absl::OkStatus();
          }
          return FileError(errno, "move", file);
        }));
  }
  return absl::OkStatus();
}

absl::Status ResultExport::PutMetrics(
    absl::Span<const Evaluation> evaluations, const WorkerProgress* totals,
    std::optional<ParameterExchange::LeftOut> left_out) {
  absl::StatusOr<JobProgress> skipped = JobProgress();
  if (left_out.has_value()) {
    skipped->set_skipped_clocks(left_out->skipped_clocks);
    skipped->set_dropped_blocks(left_out->dropped_blocks);
  } else {
    skipped =
        AskSkippedCounts(job_.assignment, MonotonicNow() + kSkippedTimeout);
  }
  if (!skipped.ok()) {
    LogWarning("metrics.json does not say how many steps were skipped")
        .Job(job_.assignment.job_id())
        .Status(skipped.status());
    skipped = JobProgress();
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::string metrics,
      MetricsJson(job_.assignment.job_id(), evaluations, totals, *skipped));
  return PutText("metrics.json", metrics);
}

absl::Status ResultExport::PutText(const std::string& name,
                                   const std::string& content) {
  return results_.Put(name, [&](const std::string& path) {
    return WriteFileAtomically(path, content);
  });
}

absl::StatusOr<DenseTables> ResultExport::ReadTables(
    const ReaderOfTable& reader_of) {
  DenseTables dense(job_.training.tables.size());
  uint64_t bytes_left = kDenseTableBytesMax;
  for (size_t t = 0; t < dense.size(); ++t) {
    const TrainingTable& table = job_.training.tables[t];
    absl::Time tell_at = MonotonicNow();
    const TableReader reader =
        Counted(reader_of(static_cast<uint32_t>(t)), [&](uint64_t rows) {
          if (MonotonicNow() < tell_at) return;
          tell_at = MonotonicNow() + kExportActivityPeriod;
          reporter_.SendActivity(absl::StrCat("reading table ", table.name,
                                              ", ", rows, " rows so far"));
        });
    SYNCLINE_ASSIGN_OR_RETURN(
        dense[t], ReadDenseTable(table.rows, table.dim, bytes_left, reader,
                                 job_.rows->current()[t]->PaddingRows()));
    if (dense[t].has_value()) bytes_left -= dense[t]->size() * sizeof(float);
  }
  if (!dense.empty()) reporter_.SendActivity("");
  return dense;
}

absl::Status ResultExport::PutTables(const DenseTables& dense,
                                     const ReaderOfTable& reader_of) {
  for (size_t t = 0; t < dense.size(); ++t) {
    if (dense[t].has_value()) continue;
    const TrainingTable& table = job_.training.tables[t];
    SYNCLINE_RETURN_IF_ERROR(results_.Put(
        TableArtifact(table.name, t), [&](const std::string& path) {
          return WriteTableRows(path, table.name, table.dim,
                                reader_of(static_cast<uint32_t>(t)));
        }));
  }
  return absl::OkStatus();
}

}  // namespace syncline::worker
