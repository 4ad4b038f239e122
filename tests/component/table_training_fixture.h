#ifndef SYNCLINE_TESTS_COMPONENT_TABLE_TRAINING_FIXTURE_H_
#define SYNCLINE_TESTS_COMPONENT_TABLE_TRAINING_FIXTURE_H_

// The parts of table_training_test share a model with one embedding table, its
// samples, and clusters that train it.

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/regime/regime_schedule.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {

inline constexpr int64_t kVocabulary = 40;
inline constexpr int kDim = 4;

// Two fields of ids share a table: a bag of three, and one alone. ROWS is 40,
// or a name.
inline std::string ModelText(const std::string& rows) {
  return absl::StrCat(R"(
<
  ir_version: 8,
  opset_import: ["" : 13]
>
ctr (
  int64[N, 3] bag, int64[N] user, float[N, 2] x,
  float[)",
                      rows, R"(, 4] emb,
  float[4, 1] w, float[2, 1] v, float[1] b
) => (float[N, 1] logit)
<int64[1] one = {1}>
{
  items = Gather (emb, bag)
  sum = ReduceSum <keepdims = 0> (items, one)
  who = Gather (emb, user)
  both = Mul (sum, who)
  deep = MatMul (both, w)
  wide = Gemm (x, v, b)
  logit = Add (deep, wide)
})");
}

inline JobSpec MakeSpec() {
  return JobFromText(
      R"pb(
        name: "ctr"
        model {
          path: "model.onnxtxt"
          initialize { pattern: "w" scheme: CONSTANT value: 0.5 }
          initialize { pattern: "v" scheme: ZEROS }
          initialize { pattern: "b" scheme: ZEROS }
        }
        data {
          train { csv { path: "train.csv" } }
          test { csv { path: "test.csv" } }
          feeds { input: "bag" field: "1:4" }
          feeds { input: "user" field: "4" }
          feeds { input: "x" field: "5:7" }
          label { field: "0" }
        }
        loss { kind: SIGMOID_CROSS_ENTROPY }
        metrics: [ ACCURACY, AUC ]
        optimizer { kind: SGD }
        learning_rate { base: 0.5 }
        consistency { mode: SYNC }
        training { epochs: 2 batch_size: 16 seed: 7 threads: 1 }
        limits { step_timeout_seconds: 20 }
      )pb");
}

inline JobSpec DenseSpec() {
  JobSpec spec = MakeSpec();
  InitializerRule* rule = spec.mutable_model()->add_initialize();
  rule->set_pattern("emb");
  rule->set_scheme(InitializerRule::CONSTANT);
  rule->set_value(0.25f);
  return spec;
}

inline JobSpec TableSpecOf(OptimizerSpec::Kind optimizer = OptimizerSpec::SGD) {
  JobSpec spec = MakeSpec();
  spec.mutable_optimizer()->set_kind(optimizer);
  TableSpec* table = spec.add_tables();
  table->set_name("emb");
  table->set_scheme(InitializerRule::CONSTANT);
  table->set_value(0.25f);
  return spec;
}

// Ids repeat, and some are never seen. `offset` and `stride` make keys of them.
inline void WriteSamples(const std::string& path, int count, uint64_t seed,
                         int64_t offset = 0, int64_t stride = 1) {
  Random random(seed);
  std::ofstream file(path);
  for (int i = 0; i < count; ++i) {
    int64_t ids[4];
    int sum = 0;
    for (int64_t& id : ids) {
      id = static_cast<int64_t>(random.Below(kVocabulary - 5));
      sum += id % 2 == 0 ? 1 : -1;
    }
    file << (sum > 0 || (sum == 0 && random.Below(2) == 0) ? 1 : 0);
    for (const int64_t id : ids) file << "," << offset + stride * id;
    file << "," << random.Uniform() << "," << random.Uniform() << "\n";
  }
}

class TableTrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // 5 full steps of 32, then one with 10 samples, all of rank 0.
    WriteSamples(dir_.File("train.csv"), 170, 1);
    WriteSamples(dir_.File("test.csv"), 90, 2);
  }
  std::unique_ptr<TrainingCluster> MakeCluster(
      uint32_t workers, uint32_t ps, std::vector<TrainingRegime> regimes = {}) {
    return std::make_unique<TrainingCluster>(TrainingCluster::Options{
        .workers = workers,
        .ps = ps,
        .work_dir = dir_.File(absl::StrCat("c", ++clusters_)),
        .data_root = dir_.path(),
        .regimes = std::move(regimes)});
  }
  TrainingCluster::Outcome Train(uint32_t workers, uint32_t ps,
                                 const JobSpec& spec,
                                 const std::string& rows = "40") {
    return MakeCluster(workers, ps)->RunJob(spec, ModelText(rows));
  }

  TempDir dir_;
  int clusters_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_COMPONENT_TABLE_TRAINING_FIXTURE_H_
