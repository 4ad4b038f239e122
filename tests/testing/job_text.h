#ifndef SYNCLINE_TESTS_TESTING_JOB_TEXT_H_
#define SYNCLINE_TESTS_TESTING_JOB_TEXT_H_

// Jobs in text, for tests that change one field or another.

#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job_spec.pb.h"

namespace syncline::testing {

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

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_JOB_TEXT_H_
