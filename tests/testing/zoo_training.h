#ifndef SYNCLINE_TESTS_TESTING_ZOO_TRAINING_H_
#define SYNCLINE_TESTS_TESTING_ZOO_TRAINING_H_

// Trains models of the zoo for a few steps with the worker's executor.

#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/job/job_spec_validator.h"
#include "common/model/training_graph.h"
#include "common/model/zoo/zoo.h"
#include "kernels/device/device.h"
#include "worker/compute/executor.h"

namespace syncline {

inline constexpr int64_t kZooSamples = 16;
// Of models that take any.
inline const LengthDimension kZooLength = {"sequence", 6};

struct ZooCase {
  std::string name;  // of the test
  std::string model;
  std::map<std::string, std::string> settings;
  float rate = 0.1f;
};

inline std::ostream& operator<<(std::ostream& out, const ZooCase& c) {
  return out << c.name;
}

// Ids are below this in every case.
inline constexpr int64_t kZooIds = 11;

inline void FillFeeds(const Graph& graph, Random* random,
                      worker::Batch* batch) {
  for (const ValueId id : graph.inputs) {
    const Value& input = graph.values[id];
    const absl::Span<const int64_t> dims(input.dims);
    const int64_t count = kZooSamples * ElementCount(dims.subspan(1));
    std::vector<float>& numbers = batch->feeds.emplace_back();
    std::vector<int64_t>& ids = batch->int_feeds.emplace_back();
    if (input.dtype == DType::kInt64) {
      const uint64_t most = input.name == "token_types" ? 2 : kZooIds;
      for (int64_t i = 0; i < count; ++i) {
        ids.push_back(static_cast<int64_t>(random->Below(most)));
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        numbers.push_back(static_cast<float>(random->Normal()));
      }
    }
  }
}

// The logit of a click is one number; else there are classes.
inline void FillLabels(const Dims& output, Random* random,
                       worker::Batch* batch) {
  const uint64_t classes =
      output.back() == 1 ? 2 : static_cast<uint64_t>(output.back());
  int64_t labels = kZooSamples;
  for (size_t i = 1; i + 1 < output.size(); ++i) labels *= output[i];
  for (int64_t i = 0; i < labels; ++i) {
    batch->labels.push_back(static_cast<float>(random->Below(classes)));
  }
  batch->label_width = labels / kZooSamples;
}

// The mean loss of each of `steps` of plain SGD on one random batch, on
// `device` (null: this machine's processors). Errors: of the model, and of the
// device.
inline absl::StatusOr<std::vector<double>> TrainZooModel(
    const ZooCase& c, int steps, Device* device = nullptr) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string bytes,
                            WriteZooModel(c.model, c.settings));
  SYNCLINE_ASSIGN_OR_RETURN(const auto model,
                            Model::Parse(bytes, c.model, {}, {}, kZooLength));
  const Graph& graph = model->graph();
  const Dims& output = graph.values[graph.outputs[0]].dims;
  JobSpec spec;
  for (const ValueId id : graph.inputs) {
    spec.mutable_data()->add_feeds()->set_input(graph.values[id].name);
  }
  spec.mutable_loss()->set_kind(output.back() == 1
                                    ? LossSpec::SIGMOID_CROSS_ENTROPY
                                    : LossSpec::SOFTMAX_CROSS_ENTROPY);
  spec.mutable_training()->set_batch_size(kZooSamples);
  std::vector<std::string> problems;
  const TrainingGraph training =
      ResolveTrainingGraph(WithDefaults(spec), *model, &problems);
  if (!problems.empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto executor,
      worker::Executor::Create(
          model, training,
          {.device = device, .loss = spec.loss(), .batch_size = kZooSamples}));
  Random random(1);
  worker::Batch batch;
  batch.size = kZooSamples;
  FillFeeds(graph, &random, &batch);
  FillLabels(output, &random, &batch);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    SYNCLINE_ASSIGN_OR_RETURN(const auto result,
                              executor->TrainStep(batch, step, [](int) {}));
    losses.push_back(result.loss_sum / kZooSamples);
    for (size_t i = 0; i < training.parameters.size(); ++i) {
      const auto gradient = executor->gradient(static_cast<int>(i));
      const auto values = executor->parameter(static_cast<int>(i));
      for (size_t k = 0; k < values.size(); ++k) {
        values[k] -= c.rate * gradient[k] / kZooSamples;
      }
    }
  }
  return losses;
}

// Of a transformer.
inline std::map<std::string, std::string> SmallModel(
    std::map<std::string, std::string> settings) {
  settings.insert({{"layers", "2"},
                   {"width", "16"},
                   {"heads", "2"},
                   {"length", "6"},
                   {"vocabulary", "11"}});
  return settings;
}

inline std::map<std::string, std::string> ClickModel(
    std::map<std::string, std::string> settings) {
  settings.insert({{"dense", "3"}, {"categories", "4"}, {"rows", "11"}});
  return settings;
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_ZOO_TRAINING_H_
