#ifndef SYNCLINE_TESTS_PEERS_STEP_RUNNER_H_
#define SYNCLINE_TESTS_PEERS_STEP_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/model/training_graph.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/row_optimizer.h"
#include "worker/compute/executor.h"

namespace syncline {

// Training steps on given batches, with the worker's executor and the ps's
// optimizer kernels and without a cluster: what is compared with another
// framework. Thread-compatible.
class StepRunner {
 public:
  struct Options {
    std::string model;  // the file
    // A file: of each graph input that is fed, in the model's order, float32 or
    // int64 [steps, batch_size, ...]; then labels, float32 [steps, batch_size,
    // ...].
    std::string batches;
    int64_t steps = 0;
    int64_t batch_size = 0;
    LossSpec::Kind loss = LossSpec::SOFTMAX_CROSS_ENTROPY;
    OptimizerParams optimizer;
    float rate = 0;
    // Initializers [rows, dim] that are tables: a step reads and updates only
    // the rows of its batch.
    std::vector<std::string> tables;
    // As in ModelSpec.
    std::vector<std::string> train, freeze;
    bool accept_merged = false;
    int threads = 1;
  };
  // Errors: InvalidArgument: files that do not fit each other.
  static absl::StatusOr<std::unique_ptr<StepRunner>> Create(
      const Options& options);

  // One step, on batch number `data` of the file. Returns the mean loss.
  absl::StatusOr<double> Step(int64_t data);
  // The model's output for a batch, in inference mode.
  absl::StatusOr<std::vector<float>> Outputs(int64_t data);

  struct Weight {
    std::string name;
    std::vector<float> values;
  };
  // As they are now, tables among them.
  std::vector<Weight> Weights();

 private:
  // A table in memory: rows with their optimizer state behind them.
  struct Table {
    std::unique_ptr<worker::RowBatch> batch;
    std::unique_ptr<RowOptimizer> optimizer;
    int64_t rows = 0;
    size_t dim = 0;
    size_t row_floats = 0;
    AlignedFloats memory;
    std::vector<const float*> gradients;  // of the batch's rows
    std::vector<float*> updated;          // likewise

    float* row(int64_t key) { return memory.data() + key * row_floats; }
  };

  explicit StepRunner(const Options& options) : options_(options) {}
  absl::Status Prepare();
  absl::Status AddTable(const Model& model, const TrainingTable& table);
  absl::Status ReadBatches(const Model& model);
  // Takes the batch's rows out of the tables.
  void GatherRows(const worker::Batch& batch);
  void Update();

  const Options options_;
  TrainingGraph training_;
  std::unique_ptr<worker::Executor> executor_;
  std::vector<std::vector<AlignedFloats>> slots_;  // by parameter
  std::vector<Table> tables_;
  std::vector<worker::RowBatch*> row_batches_;
  std::vector<worker::Batch> batches_;
  int64_t clock_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_PEERS_STEP_RUNNER_H_
