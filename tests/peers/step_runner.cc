#include "tests/peers/step_runner.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/job/job_spec_validator.h"
#include "common/system/malloc_policy.h"
#include "common/wire/table_map.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

JobSpec SpecOf(const StepRunner::Options& options) {
  JobSpec spec;
  for (const std::string& table : options.tables) {
    spec.add_tables()->set_name(table);
  }
  for (const std::string& pattern : options.train) {
    spec.mutable_model()->add_train(pattern);
  }
  for (const std::string& pattern : options.freeze) {
    spec.mutable_model()->add_freeze(pattern);
  }
  spec.mutable_model()->set_accept_merged(options.accept_merged);
  spec.mutable_loss()->set_kind(options.loss);
  spec.mutable_training()->set_batch_size(options.batch_size);
  return spec;
}

// Takes [count] elements off the front.
template <typename T>
absl::Status Take(absl::string_view* bytes, int64_t count,
                  std::vector<T>* out) {
  const size_t size = static_cast<size_t>(count) * sizeof(T);
  if (bytes->size() < size) {
    return absl::InvalidArgumentError("the file of batches is too short");
  }
  out->resize(count);
  std::memcpy(out->data(), bytes->data(), size);
  bytes->remove_prefix(size);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepRunner>> StepRunner::Create(
    const Options& options) {
  std::unique_ptr<StepRunner> runner(new StepRunner(options));
  SYNCLINE_RETURN_IF_ERROR(runner->Prepare());
  return runner;
}

absl::Status StepRunner::Prepare() {
  JobSpec spec = SpecOf(options_);
  SYNCLINE_ASSIGN_OR_RETURN(std::string bytes, ReadAll(options_.model));
  SYNCLINE_ASSIGN_OR_RETURN(const std::shared_ptr<Model> model,
                            ParseJobModel(spec, bytes, "the model"));
  std::string().swap(bytes);  // = keeps the memory
  const Graph& graph = model->graph();
  for (const ValueId id : graph.inputs) {
    spec.mutable_data()->add_feeds()->set_input(graph.values[id].name);
  }
  std::vector<std::string> problems;
  training_ = ResolveTrainingGraph(WithDefaults(spec), *model, &problems);
  if (!problems.empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      executor_,
      worker::Executor::Create(model, training_,
                               {.loss = spec.loss(),
                                .batch_size = options_.batch_size,
                                .eval_batch_size = options_.batch_size,
                                .threads = options_.threads}));
  // As a worker does, whose parameters the executor has and rows the ps.
  for (const auto& parameter : training_.parameters) {
    model->ReleaseValues({parameter.initializer});
    std::vector<AlignedFloats>& slots = slots_.emplace_back();
    for (int i = 0; i < OptimizerSlots(options_.optimizer); ++i) {
      slots.emplace_back(ElementCount(parameter.dims));
    }
  }
  for (const TrainingTable& table : training_.tables) {
    SYNCLINE_RETURN_IF_ERROR(AddTable(*model, table));
    model->ReleaseValues({table.initializer});
  }
  executor_->UseTables(row_batches_);
  SYNCLINE_RETURN_IF_ERROR(ReadBatches(*model));
  ReturnFreedMemory();
  return absl::OkStatus();
}

absl::Status StepRunner::AddTable(const Model& model,
                                  const TrainingTable& table) {
  if (!RowOptimizer::Supports(options_.optimizer.kind)) {
    return absl::InvalidArgumentError("tables do not have this optimizer");
  }
  SYNCLINE_ASSIGN_OR_RETURN(const TableMap map,
                            TableMap::Create(TableMap::DefaultSlots(1), 1));
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<Dims> shapes,
                            model.InferShapes(1));
  worker::RowBatch::Options rows;
  rows.name = table.name;
  rows.dim = table.dim;
  rows.samples_max = options_.batch_size;
  rows.with_gradients = true;
  for (const TrainingTable::Lookup& lookup : table.lookups) {
    rows.lookups.push_back(
        {.feed = lookup.feed,
         .ids_per_sample = ElementCount(shapes[training_.feeds[lookup.feed]])});
  }
  Table added;
  added.dim = table.dim;
  added.rows = table.rows;
  added.batch = std::make_unique<worker::RowBatch>(rows, map);
  added.optimizer =
      std::make_unique<RowOptimizer>(options_.optimizer, added.dim);
  added.row_floats = added.dim + added.optimizer->state_floats();
  added.memory = AlignedFloats(added.rows * added.row_floats);
  const absl::Span<const float> values =
      model.graph().initializers[table.initializer].tensor.floats();
  for (int64_t key = 0; key < added.rows; ++key) {
    std::copy_n(values.data() + key * added.dim, added.dim, added.row(key));
    added.optimizer->InitState(added.row(key) + added.dim);
  }
  row_batches_.push_back(added.batch.get());
  tables_.push_back(std::move(added));
  return absl::OkStatus();
}

absl::Status StepRunner::ReadBatches(const Model& model) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string bytes, ReadAll(options_.batches));
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<Dims> shapes,
                            model.InferShapes(options_.batch_size));
  absl::string_view rest = bytes;
  batches_.resize(options_.steps);
  for (worker::Batch& batch : batches_) {
    batch.size = options_.batch_size;
    batch.feeds.resize(training_.feeds.size());
    batch.int_feeds.resize(training_.feeds.size());
  }
  for (size_t f = 0; f < training_.feeds.size(); ++f) {
    const ValueId id = training_.feeds[f];
    const bool ids = model.graph().values[id].dtype == DType::kInt64;
    const int64_t count = ElementCount(shapes[id]);
    for (worker::Batch& batch : batches_) {
      SYNCLINE_RETURN_IF_ERROR(ids ? Take(&rest, count, &batch.int_feeds[f])
                                   : Take(&rest, count, &batch.feeds[f]));
    }
  }
  const int64_t labels = static_cast<int64_t>(rest.size() / sizeof(float)) /
                         std::max<int64_t>(options_.steps, 1);
  for (worker::Batch& batch : batches_) {
    SYNCLINE_RETURN_IF_ERROR(Take(&rest, labels, &batch.labels));
    batch.label_width = labels / options_.batch_size;
  }
  return rest.empty()
             ? absl::OkStatus()
             : absl::InvalidArgumentError("the file of batches is too long");
}

void StepRunner::GatherRows(const worker::Batch& batch) {
  for (Table& table : tables_) {
    table.batch->Collect(batch);
    const absl::Span<const int64_t> keys = table.batch->keys();
    for (size_t i = 0; i < keys.size(); ++i) {
      std::copy_n(table.row(keys[i]), table.dim, table.batch->value(i));
    }
  }
}

void StepRunner::Update() {
  const OptimizerStep step = {
      .learning_rate = options_.rate,
      .gradient_scale = 1.0f / static_cast<float>(options_.batch_size),
      .t = clock_ + 1};
  for (size_t i = 0; i < slots_.size(); ++i) {
    const int index = static_cast<int>(i);
    const absl::Span<float> values = executor_->parameter(index);
    const float* const gradient = executor_->gradient(index).data();
    if (const auto momentum = training_.parameters[i].momentum) {
      AverageIn(*momentum, step.gradient_scale, gradient, values.data(),
                values.size());
      continue;
    }
    // A ps has lanes for this.
    ParallelFor(static_cast<int64_t>(values.size()), kElementsPerThread,
                [&](int64_t begin, int64_t end) {
                  float* slots[kOptimizerSlotsMax] = {};
                  for (size_t s = 0; s < slots_[i].size(); ++s) {
                    slots[s] = slots_[i][s].data() + begin;
                  }
                  ApplyOptimizer(options_.optimizer, step, gradient + begin,
                                 values.data() + begin, slots, end - begin);
                });
  }
  for (Table& table : tables_) {
    const absl::Span<const int64_t> keys = table.batch->keys();
    table.gradients.clear();
    table.updated.clear();
    for (size_t i = 0; i < keys.size(); ++i) {
      table.gradients.push_back(table.batch->gradient(i));
      table.updated.push_back(table.row(keys[i]));
    }
    table.optimizer->Apply(step, keys.size(), table.gradients.data(),
                           table.updated.data());
  }
}

absl::StatusOr<double> StepRunner::Step(int64_t data) {
  const worker::Batch& batch = batches_[data];
  GatherRows(batch);
  SYNCLINE_ASSIGN_OR_RETURN(const auto result,
                            executor_->TrainStep(batch, clock_, [](int) {}));
  Update();
  ++clock_;
  return result.loss_sum / static_cast<double>(batch.size);
}

absl::StatusOr<std::vector<float>> StepRunner::Outputs(int64_t data) {
  GatherRows(batches_[data]);
  SYNCLINE_ASSIGN_OR_RETURN(const auto result,
                            executor_->Evaluate(batches_[data]));
  return std::vector<float>(result.scores.begin(), result.scores.end());
}

std::vector<StepRunner::Weight> StepRunner::Weights() {
  std::vector<Weight> weights;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const absl::Span<float> values = executor_->parameter(static_cast<int>(i));
    weights.push_back(
        {training_.parameters[i].name, {values.begin(), values.end()}});
  }
  for (Table& table : tables_) {
    Weight& weight = weights.emplace_back();
    weight.name = table.batch->name();
    for (int64_t key = 0; key < table.rows; ++key) {
      weight.values.insert(weight.values.end(), table.row(key),
                           table.row(key) + table.dim);
    }
  }
  return weights;
}

}  // namespace syncline
