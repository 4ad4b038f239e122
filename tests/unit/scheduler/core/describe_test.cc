// Goal: tasks, members, counts and times are written alike in every message for
// people, and an incarnation stays secret. Method: examples, and times there
// and back.

#include "scheduler/core/describe.h"

#include "common/base/incarnation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Member Example() {
  Member member;
  member.mutable_task()->set_type(PS);
  member.mutable_task()->set_index(1);
  member.set_address("127.0.0.1:4567");
  member.set_incarnation(1234567890123);
  return member;
}

TEST(DescribeTest, TasksAndMembers) {
  EXPECT_EQ(TaskTypeName(CHIEF), "chief");
  EXPECT_EQ(TaskTypeName(WORKER), "worker");
  EXPECT_EQ(TaskTypeName(EVALUATOR), "evaluator");
  EXPECT_EQ(TaskTypeName(SCHEDULER), "scheduler");
  EXPECT_EQ(TaskTypeName(Task().type()), "unknown");
  EXPECT_EQ(TaskText(Example().task()), "ps 1");
  EXPECT_EQ(MemberText(Example()), "ps 1 at 127.0.0.1:4567");
}

TEST(DescribeTest, AnIncarnationIsItsShortText) {
  const std::string text = MemberTextWithIncarnation(Example());
  EXPECT_EQ(text, "ps 1 at 127.0.0.1:4567 (incarnation " +
                      IncarnationText(1234567890123) + ")");
  EXPECT_THAT(text, Not(HasSubstr("1234567890123")));
}

TEST(DescribeTest, Counts) {
  EXPECT_EQ(CountText(1, "worker"), "1 worker");
  EXPECT_EQ(CountText(0, "worker"), "0 workers");
  EXPECT_EQ(CountText(2, "worker"), "2 workers");
  EXPECT_EQ(CountText(2, "ps"), "2 ps");
}

TEST(DescribeTest, Durations) {
  EXPECT_EQ(SecondsText(absl::Milliseconds(5240)), "5.2 s");
  EXPECT_EQ(SecondsText(absl::ZeroDuration()), "0.0 s");
}

TEST(DescribeTest, FinalStates) {
  for (const JobState state : {SUCCEEDED, FAILED, CANCELLED}) {
    EXPECT_TRUE(IsFinal(state)) << state;
  }
  for (const JobState state : {QUEUED, PREPARING, RUNNING}) {
    EXPECT_FALSE(IsFinal(state)) << state;
  }
}

TEST(DescribeTest, JobNumbers) {
  EXPECT_EQ(JobNumber("j-0042"), 42u);
  EXPECT_EQ(JobNumber("j-1234567"), 1234567u);
  for (const char* text : {"", "42", "j-", "j-4x", "J-0042"}) {
    EXPECT_EQ(JobNumber(text), 0u) << text;
  }
}

TEST(DescribeTest, WorkersOfTwoKindsAreWarnedOf) {
  JobStatus job;
  job.add_workers();
  job.add_workers();
  EXPECT_EQ(DeviceWarning(job), "");
  job.mutable_workers(1)->mutable_member()->mutable_gpu()->set_name("cuda:0");
  EXPECT_THAT(
      DeviceWarning(job),
      ::testing::HasSubstr("\nwarning: 1 of 2 workers compute on a GPU"));
  // They do not, where the job says so.
  job.mutable_spec()->mutable_resources()->set_device(ResourcesSpec::CPU);
  EXPECT_EQ(DeviceWarning(job), "");
  job.mutable_spec()->mutable_resources()->set_device(ResourcesSpec::AUTO);
  job.mutable_workers(0)->mutable_member()->mutable_gpu()->set_name("cuda:0");
  EXPECT_EQ(DeviceWarning(job), "");
}

TEST(DescribeTest, ConvolutionsOfTwoLibrariesAreWarnedOf) {
  JobStatus job;
  for (int i = 0; i < 3; ++i) {
    Member* const member = job.add_workers()->mutable_member();
    member->mutable_task()->set_type(WORKER);
    member->mutable_task()->set_index(i);
    member->mutable_gpu()->set_convolutions("cuDNN 9.19.0");
  }
  EXPECT_EQ(DeviceWarning(job), "");
  job.mutable_workers(1)->mutable_member()->mutable_gpu()->set_convolutions(
      "own kernels");
  EXPECT_THAT(DeviceWarning(job),
              ::testing::HasSubstr(
                  "\nwarning: convolutions are computed by cuDNN "
                  "9.19.0 (worker 0, worker 2) and own kernels (worker "
                  "1): "));
  job.mutable_spec()->mutable_resources()->set_device(ResourcesSpec::CPU);
  EXPECT_EQ(DeviceWarning(job), "");
}

TEST(DescribeTest, GpusOfTwoModelsAreWarnedOf) {
  JobStatus job;
  for (int i = 0; i < 2; ++i) {
    Member* const member = job.add_workers()->mutable_member();
    member->mutable_task()->set_type(WORKER);
    member->mutable_task()->set_index(i);
    member->mutable_gpu()->set_model("NVIDIA H200");
  }
  EXPECT_EQ(DeviceWarning(job), "");
  Gpu* const second = job.mutable_workers(1)->mutable_member()->mutable_gpu();
  second->set_model("NVIDIA A100");
  EXPECT_THAT(DeviceWarning(job),
              ::testing::HasSubstr("\nwarning: the workers' GPUs are NVIDIA "
                                   "A100 (worker 1) and NVIDIA H200 (worker "
                                   "0): "));
  // Each difference is told.
  second->set_convolutions("own kernels");
  EXPECT_THAT(
      DeviceWarning(job),
      ::testing::AllOf(::testing::HasSubstr("the workers' GPUs are"),
                       ::testing::HasSubstr("convolutions are computed by")));
  job.mutable_spec()->mutable_resources()->set_device(ResourcesSpec::CPU);
  EXPECT_EQ(DeviceWarning(job), "");
}

TEST(DescribeTest, TimesComeBackToTheNanosecond) {
  for (const absl::Time time :
       {absl::UnixEpoch(), absl::FromUnixNanos(1'700'000'000'123'456'789),
        absl::UnixEpoch() - absl::Nanoseconds(1)}) {
    const google::protobuf::Timestamp timestamp = ToTimestamp(time);
    EXPECT_GE(timestamp.nanos(), 0);
    EXPECT_LT(timestamp.nanos(), 1'000'000'000);
    EXPECT_EQ(FromTimestamp(timestamp), time);
  }
}

}  // namespace
}  // namespace syncline::scheduler
