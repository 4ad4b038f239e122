#include "tests/testing/zipf_trainer.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "kernels/optimizer/row_initializer.h"
#include "kernels/optimizer/row_optimizer.h"
#include "scheduler/ctl/criteo_generator.h"
#include "tests/testing/eventually.h"

namespace syncline {
namespace {

constexpr double kExponent = 1.05;
constexpr float kLearningRate = 0.5f;
constexpr size_t kFillRows = 32768;  // a message has so many at most

int64_t KeyOf(uint64_t index) { return static_cast<int64_t>(Mix64(index)); }

}  // namespace

PsProcesses::Options ZipfTrainer::OnePs(std::vector<std::string> flags) {
  JobSpec spec;
  spec.mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  spec.mutable_learning_rate()->set_base(kLearningRate);
  spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  TableSpec* table = spec.add_tables();
  table->set_name(kTable);
  table->mutable_optimizer()->set_kind(OptimizerSpec::ROW_WISE_ADAGRAD);
  PsProcesses::Options options;
  options.assignment = TableJob(spec, {kDim}, 1, 1);
  options.flags = std::move(flags);
  return options;
}

ZipfTrainer::ZipfTrainer(const PsProcesses& ps, uint64_t rows)
    : map_(*TableMap::Create(TableMap::DefaultSlots(1), 1)),
      client_(ps.address(0), 0, map_, 0, kDim),
      rows_(rows),
      gradients_(kFillRows * kDim, 1.0f),
      pushes_(rows, 0) {}

std::vector<ZipfTrainer::Batch> ZipfTrainer::Draw(int count,
                                                  Random* random) const {
  const ctl::ZipfDistribution zipf(rows_, kExponent);
  std::vector<Batch> batches(count);
  for (Batch& batch : batches) {
    std::unordered_map<int64_t, uint64_t> drawn;
    for (size_t i = 0; i < kBatchRows; ++i) {
      const uint64_t index = zipf.Draw(random) - 1;
      drawn.emplace(KeyOf(index), index);
    }
    std::vector<int64_t> keys;
    for (const auto& [key, index] : drawn) keys.push_back(key);
    batch.rows = client_.MakeBatch(keys);
    for (const int64_t key : batch.rows.keys) {
      batch.indices.push_back(drawn[key]);
    }
  }
  return batches;
}

absl::Status ZipfTrainer::WarmUp() {
  constexpr int kPulls = 100;
  SYNCLINE_RETURN_IF_ERROR(client_.Init());
  std::vector<int64_t> keys;
  for (size_t i = 0; i < kFillRows; ++i) keys.push_back(KeyOf(rows_ + i));
  const RowBatch batch = client_.MakeBatch(keys);
  const std::vector<const RowBatch*> batches(kPulls, &batch);
  pulled_ += kPulls * keys.size();
  return client_.Pull(batches, kInFlight, nullptr);
}

absl::Status ZipfTrainer::Fill() {
  for (uint64_t first = 0; first < rows_; first += kFillRows) {
    std::vector<int64_t> keys;
    for (uint64_t i = first; i < std::min(rows_, first + kFillRows); ++i) {
      keys.push_back(KeyOf(i));
      ++pushes_[i];
    }
    const RowBatch batch = client_.MakeBatch(keys);
    const RowBatch* const one = &batch;
    SYNCLINE_RETURN_IF_ERROR(client_.Push({&one, 1}, gradients_, kInFlight));
  }
  return absl::OkStatus();
}

absl::Status ZipfTrainer::Train(absl::Span<const Batch> batches) {
  std::vector<const RowBatch*> rows;
  for (const Batch& batch : batches) {
    rows.push_back(&batch.rows);
    pulled_ += batch.indices.size();
    for (const uint64_t index : batch.indices) ++pushes_[index];
  }
  SYNCLINE_RETURN_IF_ERROR(client_.Pull(rows, kInFlight, nullptr));
  return client_.Push(rows, gradients_, kInFlight);
}

std::vector<float> ZipfTrainer::Expected(uint64_t index) const {
  const RowOptimizer optimizer(
      {.kind = OptimizerKind::kRowWiseAdagrad, .epsilon = 1e-10f}, kDim);
  std::vector<float> row(kDim + optimizer.state_floats());
  RowInitializer(RowInitializer::Scheme::kUniform, 0.05f, 0, kTable)
      .Fill(KeyOf(index), row.data(), kDim);
  optimizer.InitState(row.data() + kDim);
  for (uint32_t i = 0; i < pushes_[index]; ++i) {
    const float* const gradient = gradients_.data();
    float* const values = row.data();
    optimizer.Apply({.learning_rate = kLearningRate}, 1, &gradient, &values);
  }
  return row;
}

absl::Status ZipfTrainer::Verify(size_t count, Random* random) {
  std::unordered_map<int64_t, uint64_t> drawn;
  for (size_t i = 0; i < std::min(count, kFillRows); ++i) {
    const uint64_t index = random->Below(rows_);
    drawn.emplace(KeyOf(index), index);
  }
  std::vector<int64_t> keys;
  for (const auto& [key, index] : drawn) keys.push_back(key);
  const RowBatch batch = client_.MakeBatch(keys);
  const RowBatch* const one = &batch;
  pulled_ += keys.size();
  size_t compared = 0;
  absl::Status wrong;
  SYNCLINE_RETURN_IF_ERROR(client_.Pull(
      {&one, 1}, 1,
      [&](absl::Span<const int64_t> pulled, const PayloadView& values) {
        std::vector<float> got(pulled.size() * kDim);
        values.CopyTo(0, got.size() * sizeof(float), got.data());
        for (size_t i = 0; i < pulled.size(); ++i, ++compared) {
          const uint64_t index = drawn[pulled[i]];
          const std::vector<float> expected = Expected(index);
          const float* const row = got.data() + i * kDim;
          if (std::memcmp(row, expected.data(), kDim * sizeof(float)) == 0) {
            continue;
          }
          wrong.Update(absl::InternalError(
              absl::StrCat("row ", index, " is ", row[0], "... after ",
                           pushes_[index], " pushes, expected ", expected[0])));
        }
      }));
  SYNCLINE_RETURN_IF_ERROR(wrong);
  if (compared == keys.size()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(compared, " of ", keys.size(), " rows came"));
}

absl::StatusOr<ShardStatus::Table> ZipfTrainer::Status() {
  // Its figures are as of the last second.
  ShardStatus::Table table;
  absl::Status asked;
  const bool current = Eventually(absl::Seconds(60), [&] {
    const absl::StatusOr<ShardStatus> status = client_.Status();
    asked = status.status();
    if (!asked.ok()) return true;
    table = status->jobs(0).tables(0);
    return table.pulled_from_memory() + table.pulled_from_disk() +
               table.pulled_absent() ==
           pulled_;
  });
  SYNCLINE_RETURN_IF_ERROR(asked);
  if (current) return table;
  return absl::DeadlineExceededError(absl::StrCat(
      "of ", pulled_, " pulled rows the ps counts ", table.ShortDebugString()));
}

}  // namespace syncline
