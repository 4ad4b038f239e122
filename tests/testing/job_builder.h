#ifndef SYNCLINE_TESTS_TESTING_JOB_BUILDER_H_
#define SYNCLINE_TESTS_TESTING_JOB_BUILDER_H_

// Jobs for tests: in text, so that a test changes one field or another, and
// written to files as a user writes them.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job_spec.pb.h"
#include "tests/testing/temp_dir.h"

namespace syncline {

// Classes of images, evaluated.
inline constexpr char kImageJob[] = R"(
  name: "mnist"
  model { path: "model.onnxtxt" initialize { pattern: "*" scheme: ZEROS } }
  data {
    train { idx { images: "i.gz" labels: "l.gz" } }
    test { idx { images: "ti.gz" labels: "tl.gz" } }
    feeds { input: "image" field: "image" }
  }
  loss { kind: SOFTMAX_CROSS_ENTROPY }
  optimizer { kind: SGD }
  learning_rate { base: 0.1 }
)";

// Classes of samples of four numbers, for a model with values of its own.
inline constexpr char kSmallJob[] = R"(
  name: "a"
  model { path: "m" }
  data {
    train { libsvm { path: "t" dimension: 4 } }
    feeds { input: "x" field: "features" }
  }
  loss { kind: SOFTMAX_CROSS_ENTROPY }
  optimizer { kind: SGD }
  learning_rate { base: 0.1 }
)";

// The job in `text` with `edit` merged into it.
inline JobSpec JobFromText(const std::string& text,
                           const std::string& edit = "") {
  using google::protobuf::TextFormat;
  JobSpec spec;
  EXPECT_TRUE(TextFormat::ParseFromString(text, &spec));
  EXPECT_TRUE(TextFormat::MergeFromString(edit, &spec)) << edit;
  return spec;
}

// inputs-hidden-outputs with Relu, in ONNX text syntax: weights w1, b1, w2, b2
// are declared, without values.
std::string MlpModel(int inputs, int hidden, int outputs);
// inputs-1, a logit: weights w, b.
std::string LogisticModel(int inputs);

// 784-32-10 on generated digits, SGD, sync, one worker and one ps: needs no
// files, and an epoch is 32 steps of 32 samples. With MlpModel(784, 32, 10).
JobSpec DigitsJob();
// The same with so many epochs that it goes on until it is cancelled.
JobSpec EndlessJob();

// 784-16-10 on generated digits, with what a checkpoint must keep for the same
// bits: Adam's slots and a schedule. SYNC, `workers` of one thread each and one
// ps; an epoch is 2,000 batches of 8 samples, shared out among the workers.
// With MlpModel(784, 16, 10).
JobSpec AdamDigitsJob(uint32_t workers, uint32_t epochs);

// Writes "NAME.textproto" and the model beside it; sets model.path. Returns the
// job file's path.
std::string WriteJob(const TempDir& dir, JobSpec job,
                     absl::string_view model_text);

// The float32 initializers of an ONNX file, by name.
using Weights = std::map<std::string, std::vector<float>>;
absl::StatusOr<Weights> ReadWeights(const std::string& file);

// Largest |a - b| over all weights; infinity if names or sizes differ.
double LargestDifference(const Weights& a, const Weights& b);

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_JOB_BUILDER_H_
