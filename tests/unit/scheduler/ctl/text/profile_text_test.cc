// Goal: a profile can be read, by people, by programs and by trace viewers.
// Method: one profile and the exact text; the trace parsed as JSON.

#include "scheduler/ctl/text/profile_text.h"

#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMs = 1'000'000;

void Add(StepProfile::Kind kind, const std::string& node,
         const std::string& op_type, StepProfile* profile) {
  StepProfile::Activity* const activity = profile->add_activities();
  activity->set_kind(kind);
  activity->set_node(node);
  activity->set_op_type(op_type);
}

// Two steps of 10 ms: 2 ms forward, 4 ms backward, 3 ms waiting, 1 ms unknown.
StepProfile Profile() {
  StepProfile profile;
  profile.set_job_id("j-0001");
  profile.set_task("worker:1");
  profile.set_rank(2);
  Add(StepProfile::FORWARD, "fc\"1", "Gemm", &profile);
  Add(StepProfile::BACKWARD, "fc\"1", "Gemm", &profile);
  Add(StepProfile::BACKWARD, "act", "Relu", &profile);
  Add(StepProfile::WAIT, "", "", &profile);
  for (uint64_t s = 0; s < 2; ++s) {
    StepProfile::Step* const step = profile.add_steps();
    step->set_clock(100 + static_cast<int64_t>(s));
    step->set_begin_ns(s * 12 * kMs);
    step->set_duration_ns(10 * kMs);
    step->set_samples(32);
    uint64_t at = step->begin_ns();
    const uint64_t durations[] = {2, 3, 1, 3};
    for (uint32_t a = 0; a < 4; ++a) {
      profile.add_interval_activity(a);
      profile.add_interval_begin_ns(at);
      profile.add_interval_duration_ns(durations[a] * kMs);
      at += durations[a] * kMs;
    }
  }
  return profile;
}

TEST(ProfileTextTest, SaysWhatTheTimeOfAStepWentInto) {
  EXPECT_EQ(
      ProfileText(Profile()),
      R"(Job j-0001, worker:1 (rank 2): 2 steps from clock 100, 10.000 ms a step, 3,200 samples/s

  backward         4.000 ms   40.0%  operators
  wait             3.000 ms   30.0%  for the ps, which wait for other workers
  forward          2.000 ms   20.0%  operators
  other            1.000 ms   10.0%

  operator                          nodes      forward     backward   recomputed   share
  Gemm                                  1     2.000 ms     3.000 ms     0.000 ms   50.0%
  Relu                                  1     0.000 ms     1.000 ms     0.000 ms   10.0%

  slowest nodes                                forward     backward   recomputed   share
  fc"1 (Gemm)                                 2.000 ms     3.000 ms     0.000 ms   50.0%
  act (Relu)                                  0.000 ms     1.000 ms     0.000 ms   10.0%
)");
}

TEST(ProfileTextTest, JsonIsInSecondsAStep) {
  const std::string json = ToJson(ProfileJson(Profile()));
  for (const char* part :
       {R"("job_id":"j-0001")", R"("step_seconds":0.01)", R"("wait":0.003)",
        R"("first_clock":100)", R"("op_type":"Relu")"}) {
    EXPECT_THAT(json, HasSubstr(part));
  }
}

TEST(ProfileTextTest, TheTraceHasEveryIntervalInMicroseconds) {
  google::protobuf::Struct trace;
  const std::string text = ChromeTrace(Profile());
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(text, &trace).ok())
      << text;
  const auto& events = trace.fields().at("traceEvents").list_value().values();
  ASSERT_EQ(events.size(), 2 + 2 * 4 + 1);
  const auto field = [&](int i, const std::string& name) {
    return events.at(i).struct_value().fields().at(name);
  };
  EXPECT_EQ(field(1, "name").string_value(), "clock 101");
  EXPECT_EQ(field(1, "ts").number_value(), 12'000);
  EXPECT_EQ(field(2, "name").string_value(), "fc\"1");
  EXPECT_EQ(field(2, "cat").string_value(), "Gemm,forward");
  EXPECT_EQ(field(2, "ph").string_value(), "X");
  EXPECT_EQ(field(3, "ts").number_value(), 2'000);
  EXPECT_EQ(field(3, "dur").number_value(), 3'000);
  EXPECT_EQ(field(5, "name").string_value(), "wait");
  EXPECT_NE(field(5, "tid").number_value(), field(1, "tid").number_value());
  EXPECT_EQ(field(10, "args").struct_value().fields().at("name").string_value(),
            "job j-0001, worker:1");
}

TEST(ProfileTextTest, ColumnsThatDoNotFitAreNoticed) {
  EXPECT_TRUE(IsWellFormed(Profile()));
  EXPECT_FALSE(IsWellFormed(StepProfile()));
  StepProfile profile = Profile();
  profile.add_interval_begin_ns(1);
  EXPECT_FALSE(IsWellFormed(profile));
  profile = Profile();
  profile.set_interval_activity(3, 4);
  EXPECT_FALSE(IsWellFormed(profile));
}

}  // namespace
}  // namespace syncline::ctl
