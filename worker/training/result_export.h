#ifndef SYNCLINE_WORKER_TRAINING_RESULT_EXPORT_H_
#define SYNCLINE_WORKER_TRAINING_RESULT_EXPORT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/export/job_results.h"
#include "worker/export/result_upload.h"
#include "worker/export/table_export.h"
#include "worker/job/prepared_job.h"
#include "worker/training/job_reporter.h"
#include "worker/training/trainer.h"

namespace syncline::worker {

// Writes a job's results and gives them to ResultUpload. One thread.
//
//   the chief            trained.onnx, trained.safetensors, history.csv, tables
//   the rank that        metrics.json, best.onnx, best.safetensors
//     evaluates
class ResultExport {
 public:
  // The objects outlive this. `dir`: the job's folder, where the best
  // parameters so far are kept.
  ResultExport(const PreparedJob& job, std::string dir, ResultUpload* results,
               const JobReporter* reporter);

  // The parameters that the executor has are the best so far: writes them, for
  // the end of the job. A failure costs these files, not the job.
  void WriteBest(const Evaluation& evaluation, const StoringProgress& storing);

  // All results of the chief, after Trainer::Run. Returns when they are stored.
  // Errors: ResultUpload's, ParameterExchange's.
  absl::Status PutChiefResults(Trainer* trainer);
  // trained.onnx and trained.safetensors, of the executor's parameters, and the
  // tables, as the readers have them.
  using ReaderOfTable = std::function<TableReader(uint32_t table)>;
  absl::Status PutModelAndTables(const ReaderOfTable& reader_of);
  // Likewise all results of the job's evaluator.
  // `left_out`: none: the ps of the job know.
  absl::Status PutEvaluatorResults(
      absl::Span<const Evaluation> evaluations,
      std::optional<ParameterExchange::LeftOut> left_out = std::nullopt);

 private:
  // `totals` is null where this rank has not trained.
  absl::Status PutMetrics(absl::Span<const Evaluation> evaluations,
                          const WorkerProgress* totals,
                          std::optional<ParameterExchange::LeftOut> left_out);
  absl::Status PutBest();
  absl::Status PutText(const std::string& name, const std::string& content);
  absl::Status PutModel(const DenseTables& tables);
  // The tables that the model file can hold.
  absl::StatusOr<DenseTables> ReadTables(const ReaderOfTable& reader_of);
  // The others, as files of their own.
  absl::Status PutTables(const DenseTables& dense,
                         const ReaderOfTable& reader_of);

  const PreparedJob& job_;
  const std::string dir_;
  ResultUpload& results_;
  const JobReporter& reporter_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_RESULT_EXPORT_H_
