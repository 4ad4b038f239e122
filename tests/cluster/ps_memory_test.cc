// Goal: a ps stays within the memory that is promised, whatever the consistency
// mode: parameters and optimizer slots times 1.2, and 64 MiB; in sync also the
// gradients of all workers but one. Method: real processes train a perceptron
// large enough (45 MiB of parameters, 136 MiB with Adam's slots) that one
// gradient too many shows; the most the ps ever had resident is read from
// /proc.

#include <ostream>
#include <string>

#include "absl/strings/substitute.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/process_memory.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

constexpr int kHidden = 3072;
constexpr int kSteps = 6;
constexpr double kParameterBytes =
    4.0 *
    (784 * kHidden + kHidden + kHidden * kHidden + kHidden + kHidden * 10 + 10);

struct MemoryCase {
  const char* name;
  int workers;
  ConsistencySpec::Mode mode;
  int waiting_gradients;
  const char* optimizer = "kind: ADAM";
  int slots = 2;
  NonFinitePolicy non_finite = FAIL_JOB;
};

void PrintTo(const MemoryCase& c, std::ostream* out) { *out << c.name; }

std::string DeepMlpModel() {
  return absl::Substitute(
      R"(<ir_version: 8, opset_import: ["" : 13]>
mlp (float[N,784] x, float[784,$0] w1, float[$0] b1, float[$0,$0] w2,
     float[$0] b2, float[$0,10] w3, float[10] b3) => (float[N,10] logits) {
  sum1 = Gemm(x, w1, b1)
  active1 = Relu(sum1)
  sum2 = Gemm(active1, w2, b2)
  active2 = Relu(sum2)
  logits = Gemm(active2, w3, b3)
}
)",
      kHidden);
}

class PsMemoryTest : public testing::TestWithParam<MemoryCase> {};

TEST_P(PsMemoryTest, StaysWithinItsBound) {
  const MemoryCase& c = GetParam();
  JobSpec job = DigitsJob();
  job.mutable_data()->mutable_train()->mutable_digits()->set_count(
      kSteps * c.workers * job.training().batch_size());
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      c.optimizer, job.mutable_optimizer()));
  job.mutable_learning_rate()->set_base(0.001);
  job.mutable_consistency()->set_mode(c.mode);
  job.set_non_finite(c.non_finite);
  if (c.mode == ConsistencySpec::BOUNDED_STALENESS) {
    job.mutable_consistency()->set_staleness_bound(2);
  }
  job.mutable_resources()->set_workers(c.workers);
  // A ps that reads gradients in a worker's memory has that memory resident
  // too, without it being its own: /proc cannot tell.
  TestCluster cluster(
      {.ps = 1, .workers = c.workers, .ps_flags = {"--shared-memory=off"}});
  ASSERT_OK(cluster.Start());
  ASSERT_OK(cluster.Train(WriteJob(cluster.dir(), job, DeepMlpModel())));

  const double most = static_cast<double>(
      ProcessMemoryBytes(cluster.daemon("ps-0").pid(), "VmHWM"));
  const double limit = PsMemoryLimitBytes(
      (1 + c.slots) * kParameterBytes, c.waiting_gradients * kParameterBytes);
  EXPECT_GT(most, (1 + c.slots) * kParameterBytes) << "not measured";
  EXPECT_LE(most / kMiB, limit / kMiB);
  RecordProperty("most_mib", static_cast<int>(most / kMiB));
  RecordProperty("limit_mib", static_cast<int>(limit / kMiB));
}

INSTANTIATE_TEST_SUITE_P(
    Modes, PsMemoryTest,
    testing::Values(MemoryCase{"SyncOneWorker", 1, ConsistencySpec::SYNC, 0},
                    MemoryCase{"SyncThreeWorkers", 3, ConsistencySpec::SYNC, 2},
                    MemoryCase{"ThreeSlots", 1, ConsistencySpec::SYNC, 0,
                               "kind: RMSPROP momentum: 0.9 centered: true", 3},
                    // A folded gradient waits for the norm, as with clip_norm.
                    MemoryCase{"SkipStep", 2, ConsistencySpec::SYNC, 2,
                               "kind: LAMB", 2, SKIP_STEP},
                    MemoryCase{"AsyncTwoWorkers", 2, ConsistencySpec::ASYNC, 0},
                    MemoryCase{"AsyncThreeWorkers", 3, ConsistencySpec::ASYNC,
                               0},
                    MemoryCase{"SspThreeWorkers", 3,
                               ConsistencySpec::BOUNDED_STALENESS, 0}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace syncline
