// Goal: metrics.json says what an evaluation and the chief have measured, also
// where that is 0 or no finite number.
// Method: messages with such numbers; the text, which is then read back.

#include "worker/export/job_results.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Evaluation WithLoss(double loss) {
  Evaluation evaluation;
  evaluation.set_epoch(1);
  evaluation.set_loss(loss);
  return evaluation;
}

JobStatus Read(const std::string& json) {
  JobStatus status;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &status).ok())
      << json;
  return status;
}

TEST(MetricsJsonTest, ALossOfExactlyZeroIsThere) {
  WorkerProgress totals;
  totals.set_loss(0);
  ASSERT_OK_AND_ASSIGN(const std::string json,
                       MetricsJson("j-1", {WithLoss(0)}, &totals));
  const JobStatus status = Read(json);
  EXPECT_TRUE(status.evaluations(0).has_loss());
  EXPECT_TRUE(status.progress().workers(0).has_loss());
  EXPECT_THAT(json, HasSubstr("\"loss\": 0"));
}

TEST(MetricsJsonTest, NumbersThatAreNotFiniteAreStrings) {
  WorkerProgress totals;
  totals.set_loss(std::nan(""));
  ASSERT_OK_AND_ASSIGN(
      const std::string json,
      MetricsJson("j-1", {WithLoss(std::nan("")), WithLoss(kInfinity)},
                  &totals));
  EXPECT_THAT(json, HasSubstr("\"loss\": \"NaN\""));
  EXPECT_THAT(json, HasSubstr("\"loss\": \"Infinity\""));
  const JobStatus status = Read(json);
  EXPECT_TRUE(std::isnan(status.evaluations(0).loss()));
  EXPECT_EQ(status.evaluations(1).loss(), kInfinity);
  EXPECT_TRUE(std::isnan(status.progress().workers(0).loss()));
}

TEST(MetricsJsonTest, SaysWhatWasSkipped) {
  JobProgress skipped;
  ASSERT_OK_AND_ASSIGN(std::string json,
                       MetricsJson("j-1", {}, nullptr, skipped));
  EXPECT_FALSE(Read(json).has_progress());
  skipped.set_skipped_clocks(12);
  ASSERT_OK_AND_ASSIGN(json, MetricsJson("j-1", {}, nullptr, skipped));
  EXPECT_EQ(Read(json).progress().skipped_clocks(), 12u);
  EXPECT_THAT(json, HasSubstr("\"skipped_clocks\": \"12\""));
  EXPECT_THAT(json, Not(HasSubstr("dropped_blocks")));
}

}  // namespace
}  // namespace syncline::worker
