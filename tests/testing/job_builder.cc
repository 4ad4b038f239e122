#include "tests/testing/job_builder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/model/model.h"
#include "common/system/file.h"
#include "google/protobuf/text_format.h"

namespace syncline {
namespace {

constexpr uint64_t kModelBytesMax = 64 << 20;

constexpr char kDigitsJob[] = R"(
  name: "digits"
  model {
    path: "set by WriteJob"
    initialize { pattern: "w*" scheme: HE_NORMAL }
    initialize { pattern: "b*" scheme: ZEROS }
  }
  data {
    train { digits { count: 1024 seed: 1 } }
    feeds { input: "x" field: "image" scale: 0.00392157 }
  }
  loss { kind: SOFTMAX_CROSS_ENTROPY }
  optimizer { kind: SGD }
  learning_rate { base: 0.1 }
  training { epochs: 1 batch_size: 32 seed: 7 threads: 1 }
  resources { workers: 1 ps: 1 }
)";

}  // namespace

std::string MlpModel(int inputs, int hidden, int outputs) {
  return absl::Substitute(
      R"(<ir_version: 8, opset_import: ["" : 13]>
mlp (float[N,$0] x, float[$0,$1] w1, float[$1] b1, float[$1,$2] w2,
     float[$2] b2) => (float[N,$2] logits) {
  hidden = Gemm(x, w1, b1)
  active = Relu(hidden)
  logits = Gemm(active, w2, b2)
}
)",
      inputs, hidden, outputs);
}

std::string LogisticModel(int inputs) {
  return absl::Substitute(
      R"(<ir_version: 8, opset_import: ["" : 13]>
logistic (float[N,$0] x, float[$0,1] w, float[1] b) => (float[N,1] logit) {
  logit = Gemm(x, w, b)
}
)",
      inputs);
}

JobSpec DigitsJob() { return JobFromText(kDigitsJob); }

JobSpec EndlessJob() {
  JobSpec job = DigitsJob();
  job.set_name("endless");
  job.mutable_training()->set_epochs(1000000);
  return job;
}

JobSpec AdamDigitsJob(uint32_t workers, uint32_t epochs) {
  JobSpec job = DigitsJob();
  job.mutable_data()->mutable_train()->mutable_digits()->set_count(4'800);
  job.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  job.mutable_learning_rate()->set_base(0.002);
  job.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  job.mutable_training()->set_batch_size(8);
  job.mutable_training()->set_epochs(epochs);
  job.mutable_resources()->set_workers(workers);
  return job;
}

std::string WriteJob(const TempDir& dir, JobSpec job,
                     absl::string_view model_text) {
  const std::string model_name = absl::StrCat(job.name(), ".onnxtxt");
  dir.Write(model_name, model_text);
  job.mutable_model()->set_path(model_name);
  std::string text;
  SYNCLINE_CHECK(google::protobuf::TextFormat::PrintToString(job, &text));
  return dir.Write(absl::StrCat(job.name(), ".textproto"), text);
}

absl::StatusOr<Weights> ReadWeights(const std::string& file) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string bytes,
                            ReadFile(file, kModelBytesMax));
  SYNCLINE_ASSIGN_OR_RETURN(const auto model, Model::Parse(bytes, file));
  Weights weights;
  for (const Initializer& initializer : model->graph().initializers) {
    if (initializer.tensor.dtype != DType::kFloat32) continue;
    const auto values = initializer.tensor.floats();
    weights[model->graph().values[initializer.value].name].assign(
        values.begin(), values.end());
  }
  return weights;
}

double LargestDifference(const Weights& a, const Weights& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double largest = 0;
  if (a.size() != b.size()) return kInfinity;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) {
      return kInfinity;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(static_cast<double>(values[i]) -
                                         static_cast<double>(other->second[i]));
      if (std::isnan(difference)) return kInfinity;
      largest = std::max(largest, difference);
    }
  }
  return largest;
}

}  // namespace syncline
