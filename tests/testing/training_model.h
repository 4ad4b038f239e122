#ifndef SYNCLINE_TESTS_TESTING_TRAINING_MODEL_H_
#define SYNCLINE_TESTS_TESTING_TRAINING_MODEL_H_

// A model in ONNX text syntax made ready to train, without a job around it:
// graph inputs are fed in order, weights are graph inputs that the text
// declares with names starting with "w_" (trained; with "w_running_" kept as
// running means) or "frozen_".

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/model.h"
#include "common/model/training_graph.h"
#include "worker/compute/executor.h"

namespace syncline::testing {

struct TrainingModel {
  std::shared_ptr<const Model> model;
  TrainingGraph training;
};

// `signature` is "(float[N,4] x, float[4,2] w_a) => (float[N,2] y)", `body` the
// nodes. The loss is on the first output. Weights with "frozen_" are
// initializers without gradient; give them values through `initializers`, as
// ONNX text ("float[2] frozen_a = {1, 2}"). `length` as for Model::Parse.
inline TrainingModel MakeTrainingModel(const std::string& signature,
                                       const std::string& initializers,
                                       const std::string& body, int opset = 13,
                                       const LengthDimension& length = {}) {
  const std::string text = absl::StrCat(
      "<ir_version: 8, opset_import: [\"\" : ", opset, "]>\ng ", signature,
      initializers.empty() ? "" : absl::StrCat("\n<", initializers, ">"),
      "\n{\n", body, "\n}\n");
  TrainingModel result;
  auto model = Model::Parse(text, "test", {"w_*"}, {}, length);
  EXPECT_TRUE(model.ok()) << model.status() << "\n" << text;
  if (!model.ok()) return result;
  result.model = *std::move(model);
  const Graph& graph = result.model->graph();
  for (size_t i = 0; i < graph.initializers.size(); ++i) {
    const Value& value = graph.values[graph.initializers[i].value];
    if (!absl::StartsWith(value.name, "w_")) continue;
    result.training.parameters.push_back({.value = graph.initializers[i].value,
                                          .name = value.name,
                                          .dims = value.dims,
                                          .initializer = static_cast<int>(i)});
    if (absl::StartsWith(value.name, "w_running_")) {
      result.training.parameters.back().momentum = 0.9f;
    }
  }
  result.training.feeds = graph.inputs;
  result.training.loss_output = graph.outputs[0];
  return result;
}

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_TRAINING_MODEL_H_
