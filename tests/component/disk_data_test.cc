// Goal: a job whose samples are kept on disk trains what it would with them in
// memory, its evaluation too, and shuffles them if it is to.
// Method: ps and workers in this process, click logs of two pieces and a bit;
// not shuffled, both ways of keeping them are the same job, bit for bit.

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/job/job_spec_validator.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

constexpr char kModel[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 13]
>
clicks (
  float[N, 13] dense, int64[N, 26] categories, float[rows, 1] emb,
  float[13, 1] w, float[1] b
) => (float[N, 1] logit)
<int64[1] one = {1}>
{
  items = Gather (emb, categories)
  wide = ReduceSum <keepdims = 0> (items, one)
  deep = Gemm (dense, w, b)
  logit = Add (wide, deep)
})";

JobSpec MakeSpec(bool shuffle, uint32_t window) {
  JobSpec spec = JobFromText(
      R"pb(
        name: "clicks"
        model {
          path: "model.onnxtxt"
          initialize { pattern: "w" scheme: ZEROS }
          initialize { pattern: "b" scheme: ZEROS }
        }
        data {
          train { criteo { path: "train.tsv" } }
          test { criteo { path: "test.tsv" } }
          feeds { input: "dense" field: "dense" scale: 0.1 }
          feeds { input: "categories" field: "categories" }
          label { field: "label" }
        }
        loss { kind: SIGMOID_CROSS_ENTROPY }
        metrics: [ AUC ]
        optimizer { kind: SGD }
        learning_rate { base: 0.2 }
        consistency { mode: SYNC }
        training { epochs: 1 batch_size: 100 seed: 7 threads: 1 }
        limits { step_timeout_seconds: 30 }
        tables { name: "emb" scheme: ZEROS }
      )pb");
  spec.mutable_data()->set_shuffle(shuffle);
  for (DataSource* source : {spec.mutable_data()->mutable_train(),
                             spec.mutable_data()->mutable_test()}) {
    source->mutable_criteo()->set_window_samples(window);
  }
  return spec;
}

// The label follows from the first category.
void WriteLines(const std::string& path, int count, uint64_t seed) {
  Random random(seed);
  std::ofstream file(path);
  for (int i = 0; i < count; ++i) {
    const uint64_t value = random.Below(16);
    file << (value + random.Below(4) > 8 ? 1 : 0);
    for (int k = 0; k < 13; ++k) file << "\t" << random.Below(100);
    file << "\t" << absl::StrCat(absl::Hex(value));
    for (int k = 1; k < 26; ++k) {
      file << "\t" << absl::StrCat(absl::Hex(random.Below(50)));
    }
    file << "\n";
  }
}

TEST(DiskDataTest, SamplesOnDiskAreThoseInMemory) {
  const TempDir dir;
  WriteLines(dir.File("train.tsv"), 9000, 1);
  WriteLines(dir.File("test.tsv"), 1000, 2);
  TrainingCluster cluster({.workers = 2,
                           .ps = 1,
                           .work_dir = dir.File("work"),
                           .data_root = dir.path()});
  const auto memory = cluster.RunJob(MakeSpec(false, 0), kModel);
  ASSERT_EQ(memory.status, absl::OkStatus());
  const auto disk = cluster.RunJob(MakeSpec(false, 4096), kModel);
  ASSERT_EQ(disk.status, absl::OkStatus());
  EXPECT_EQ(disk.weights, memory.weights) << "bit for bit";
  EXPECT_EQ(disk.evaluations.back().auc(), memory.evaluations.back().auc());
  EXPECT_GT(disk.evaluations.back().auc(), 0.7);

  const auto shuffled = cluster.RunJob(MakeSpec(true, 4096), kModel);
  ASSERT_EQ(shuffled.status, absl::OkStatus());
  EXPECT_NE(shuffled.weights, memory.weights);
  EXPECT_GT(shuffled.evaluations.back().auc(), 0.7);
  const auto again = cluster.RunJob(MakeSpec(true, 4096), kModel);
  EXPECT_EQ(again.weights, shuffled.weights) << "the seed decides";
}

}  // namespace
}  // namespace syncline
