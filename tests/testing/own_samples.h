#ifndef SYNCLINE_TESTS_TESTING_OWN_SAMPLES_H_
#define SYNCLINE_TESTS_TESTING_OWN_SAMPLES_H_

// A job whose result shows how often each sample was trained: sample i has the
// feature i alone and the target 1, so each of its updates takes the same share
// of what the element w[i] lacks. All elements are equal to the bit if all
// samples were trained equally often.

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/job_builder.h"

namespace syncline {

inline constexpr int kOwnSamples = 240;

// libsvm.
inline std::string OwnSamplesText() {
  std::string text;
  for (int i = 1; i <= kOwnSamples; ++i)
    absl::StrAppend(&text, "1 ", i, ":1\n");
  return text;
}

inline constexpr char kOwnSamplesModel[] = R"(
< ir_version: 8, opset_import: ["" : 13] >
own (float[N, 240] x, float[240, 1] w) => (float[N, 1] y) { y = MatMul (x, w) })";

// Leases its data, the file at `path`; an epoch is 60 clocks, in the same order
// each time, so that a sample's earlier update is within the bound, 12.
inline JobSpec OwnSamplesJob(const std::string& path, uint32_t epochs,
                             float rate) {
  JobSpec job = JobFromText(R"pb(
    name: "own"
    model {
      path: "model.onnxtxt"
      initialize { pattern: "*" scheme: ZEROS }
    }
    data {
      train { libsvm { dimension: 240 } }
      feeds { input: "x" field: "features" }
      label { field: "label" }
      sharing: LEASED
      shuffle: false
    }
    loss { kind: MEAN_SQUARED_ERROR }
    optimizer { kind: SGD }
    consistency { mode: BOUNDED_STALENESS staleness_bound: 12 }
    training { batch_size: 4 threads: 1 }
  )pb");
  job.mutable_data()->mutable_train()->mutable_libsvm()->set_path(path);
  job.mutable_training()->set_epochs(epochs);
  job.mutable_learning_rate()->set_base(rate);
  return job;
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_OWN_SAMPLES_H_
