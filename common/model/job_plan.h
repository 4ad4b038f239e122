#ifndef SYNCLINE_COMMON_MODEL_JOB_PLAN_H_
#define SYNCLINE_COMMON_MODEL_JOB_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/graph/tensor.h"

namespace syncline {

// The memory and the operations of a job's step, known before the job runs. The
// worker and the ps each fill in their part, with the code that plans a run.

// Memory with a name.
struct PlannedTensor {
  std::string name;
  std::string what;  // "parameter", "activation", "workspace"
  Dims dims;         // empty for a workspace
  int64_t bytes = 0;
};

// Operators of one kind in a worker's step. A multiplication and an addition
// are two FLOPs. Of Gemm, MatMul, Conv, ConvTranspose, Einsum, Attention and
// recurrent layers the products are counted; any other counts one for each
// number that it computes, and none for numbers that it only moves.
struct PlannedOperator {
  std::string op_type;
  int nodes = 0;
  double forward_flops = 0;
  double backward_flops = 0;
  double recomputed_flops = 0;  // forward, once more, in the backward pass

  double flops() const {
    return forward_flops + backward_flops + recomputed_flops;
  }
};

// A step of batches of one length (LengthBuckets).
struct PlannedLength {
  int64_t length = 0;
  int64_t arena_bytes = 0;  // as training_arena_bytes
  double flops = 0;
};

// The executor's part, for the job's largest batches.
struct ExecutorPlan {
  // "cuda": parameters, gradients and arena are in memory of a GPU, and
  // parameters and gradients once more in memory of the host. Empty: all is in
  // memory of the host.
  std::string device;
  int64_t parameters = 0;  // numbers
  // All values; where they are gathered for each use, the memory that they take
  // turns in.
  int64_t parameter_bytes = 0;
  int64_t gradient_bytes = 0;
  // Bytes that a training step and an evaluation (0: none, or no more than a
  // step) take for activations, their gradients and workspaces, beyond what
  // fits into the memory of parameters' gradients before these are written. One
  // of the two runs at a time, in the same memory.
  int64_t training_arena_bytes = 0;
  int64_t evaluation_arena_bytes = 0;
  // In memory of a GPU: batches, constants of the model and rows of tables that
  // steps and evaluations read there.
  int64_t staged_bytes = 0;
  // Likewise, of a worker in LOCAL that makes its own steps there: the values
  // that a round begins with, and the optimizer's state.
  int64_t local_bytes = 0;
  // Likewise, of a worker that updates all parameters there: values and the
  // optimizer's state.
  int64_t update_bytes = 0;
  std::vector<PlannedTensor> tensors;      // largest first
  std::vector<PlannedOperator> operators;  // dearest first
  std::vector<PlannedLength> lengths;      // ascending; the rest is of the last

  int64_t arena_bytes() const {
    return std::max(training_arena_bytes, evaluation_arena_bytes);
  }
  // Of the memory that limits the batch: the GPU's, or the host's.
  int64_t memory_bytes() const {
    return parameter_bytes + gradient_bytes + arena_bytes() + staged_bytes +
           local_bytes + update_bytes;
  }
  int64_t host_bytes() const {
    return device.empty() ? memory_bytes() : parameter_bytes + gradient_bytes;
  }
  int64_t device_bytes() const { return device.empty() ? 0 : memory_bytes(); }
};

// One worker; the chief takes the most, because it evaluates too. Or the
// evaluator.
struct WorkerPlan {
  ExecutorPlan executor;
  int64_t row_bytes = 0;      // rows of embedding tables: of batches, and kept
  int64_t batch_bytes = 0;    // batches read ahead; the data set is not in it
  int64_t message_bytes = 0;  // on their way to and from the ps, at most
  // Of compression: the residuals of gradients, a compressed gradient with its
  // copy, and the memory in which the largest elements are found.
  int64_t residual_bytes = 0;
  // In LOCAL: the values that a round begins with, which become what it has
  // changed. The workers' optimizer has slot_bytes of state.
  int64_t round_bytes = 0;
  // Late gradients that are compensated: the values that a step computes with.
  int64_t late_bytes = 0;
  // Of a job whose workers reduce among themselves, the rank that takes most:
  // values and optimizer state that it updates, gradients of other ranks and
  // sums.
  int64_t updated_bytes = 0;
  int64_t slot_bytes = 0;
  int64_t waiting_bytes = 0;
  // Likewise, for checkpoints: of blocks that change before they are written.
  int64_t copy_bytes = 0;
  // Where steps gather values for each use: all of them, which the chief has
  // from a cut, and each worker from the job's beginning, to the next step.
  int64_t whole_bytes = 0;

  // Of the host.
  int64_t memory_bytes() const {
    return executor.host_bytes() + row_bytes + batch_bytes + message_bytes +
           residual_bytes + round_bytes + late_bytes + updated_bytes +
           slot_bytes + waiting_bytes + copy_bytes + whole_bytes;
  }
};

// One ps.
struct PsPlan {
  int64_t value_bytes = 0;    // parameters
  int64_t slot_bytes = 0;     // optimizer state
  int64_t waiting_bytes = 0;  // gradients that wait for other workers, at most
  int64_t message_bytes = 0;  // on their way, at most
  // Of blocks that are pushed before a checkpoint has them: taken when the job
  // opens.
  int64_t copy_bytes = 0;

  int64_t memory_bytes() const {
    return value_bytes + slot_bytes + waiting_bytes + message_bytes +
           copy_bytes;
  }
};

// Rows of an embedding table: spread over the ps, and not in PsPlan.
struct PlannedTable {
  std::string name;
  int64_t dim = 0;
  int64_t rows = 0;       // 0: as many as there are keys
  int64_t row_bytes = 0;  // with key, optimizer state, its past and its place
};

struct JobPlan {
  WorkerPlan worker;
  // Where the job has something to evaluate: what an evaluator would take.
  std::optional<WorkerPlan> evaluator;
  std::vector<PsPlan> ps;
  std::vector<PlannedTable> tables;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_JOB_PLAN_H_
