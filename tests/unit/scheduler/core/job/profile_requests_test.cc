// Goal: a worker is asked for a bounded number of profiles, each under a name
// of its own, and is asked again for those that it has not stored.
// Method: requests, stored artifacts and their limits, one after the other.

#include "scheduler/core/job/profile_requests.h"

#include <string>
#include <vector>

#include "common/job/profile_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ProfileRequestsTest : public ::testing::Test {
 protected:
  ProfileRequestsTest() { job_.set_job_id("j-0003"); }

  std::string Add(uint32_t rank) {
    const auto steps = requests_.Add(rank, 5, job_);
    return steps.ok() ? steps->artifact()
                      : std::string(steps.status().message());
  }
  std::vector<std::string> Of(uint32_t rank) const {
    std::vector<std::string> names;
    for (const ProfileSteps& steps : requests_.Of(rank)) {
      names.push_back(steps.artifact());
    }
    return names;
  }

  JobStatus job_;
  ProfileRequests requests_;
};

TEST_F(ProfileRequestsTest, EachHasTheSmallestFreeNumber) {
  job_.add_artifacts()->set_name("profiles/1-rank-0.pb");
  EXPECT_EQ(Add(0), "profiles/2-rank-0.pb");
  EXPECT_EQ(Add(1), "profiles/3-rank-1.pb");
  const auto steps = requests_.Add(0, 7, job_);
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ(steps->job_id(), "j-0003");
  EXPECT_EQ(steps->steps(), 7u);
  EXPECT_THAT(Of(0),
              ElementsAre("profiles/2-rank-0.pb", "profiles/4-rank-0.pb"));
}

// A worker records in order: an earlier profile does not come any more.
TEST_F(ProfileRequestsTest, AStoredProfileEndsTheWorkersEarlierRequests) {
  Add(0);
  Add(1);
  Add(0);
  Add(0);
  requests_.OnStored("trained.onnx");
  requests_.OnStored("profiles/3-rank-0.pb");
  EXPECT_THAT(Of(0), ElementsAre("profiles/4-rank-0.pb"));
  EXPECT_THAT(Of(1), ElementsAre("profiles/2-rank-1.pb"));
  requests_.OnStored("profiles/4-rank-0.pb");
  EXPECT_THAT(Of(0), IsEmpty());
}

TEST_F(ProfileRequestsTest, AWorkerAndAJobHaveLimits) {
  for (size_t i = 0; i < kProfilesPerWorkerMax; ++i) Add(0);
  EXPECT_THAT(Add(0), HasSubstr("worker 0 of job j-0003 has"));
  EXPECT_EQ(requests_.Of(0).size(), kProfilesPerWorkerMax);
  for (int i = 1; i <= kProfilesPerJobMax; ++i) {
    job_.add_artifacts()->set_name("profiles/" + std::to_string(i) +
                                   "-rank-1.pb");
  }
  EXPECT_THAT(Add(1), HasSubstr("no more are kept of one job"));
}

}  // namespace
}  // namespace syncline::scheduler
