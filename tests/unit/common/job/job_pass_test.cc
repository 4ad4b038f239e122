// Goal: only members of the same attempt pass, and no message tells the secret.
// Method: passes that differ in one thing.

#include "common/job/job_pass.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const JobPass kOwn = {.attempt = 2, .secret = "0123456789abcdef"};

TEST(JobPassTest, TheSamePasses) {
  EXPECT_TRUE(CheckPass(kOwn, "job j-1", 2, "0123456789abcdef").ok());
}

TEST(JobPassTest, AnotherAttemptIsNamed) {
  const absl::Status status =
      CheckPass(kOwn, "job j-1 on ps:0", 1, "0123456789abcdef");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "job j-1 on ps:0: the caller is of attempt 1, this is attempt 2");
}

TEST(JobPassTest, AnotherSecretIsRefusedAndNotTold) {
  for (const std::string said : {"0123456789abcdeF", "0123", ""}) {
    const absl::Status status = CheckPass(kOwn, "job j-1", 2, said);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << said;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("job j-1"), HasSubstr("attempt 2"),
                      Not(HasSubstr("0123"))));
  }
}

TEST(JobPassTest, NoSecretPassesNoOne) {
  EXPECT_FALSE(CheckPass({.attempt = 1, .secret = ""}, "job", 1, "").ok());
}

TEST(JobPassTest, AnAssignmentWithoutPassIsRefused) {
  JobAssignment assignment;
  assignment.set_job_id("j-7");
  EXPECT_THAT(std::string(CheckAssignmentPass(assignment).message()),
              HasSubstr("j-7 has no attempt"));
  assignment.set_attempt(3);
  EXPECT_THAT(std::string(CheckAssignmentPass(assignment).message()),
              HasSubstr("no job_secret"));
  assignment.set_job_secret("s");
  EXPECT_TRUE(CheckAssignmentPass(assignment).ok());
  EXPECT_EQ(PassOf(assignment).attempt, 3u);
  EXPECT_EQ(PassOf(assignment).secret, "s");
}

}  // namespace
}  // namespace syncline
