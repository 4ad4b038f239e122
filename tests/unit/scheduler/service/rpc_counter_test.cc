// Goal: calls count under the names of the scheduler's methods, and nothing
// that a caller makes up becomes a series. Method: paths. That calls are
// counted with their codes: scheduler_test.

#include "scheduler/service/rpc_counter.h"

#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

TEST(RpcCounterTest, MethodsOfTheSchedulerHaveNames) {
  EXPECT_EQ(SchedulerMethod("/syncline.Jobs/Submit"), "Submit");
  EXPECT_EQ(SchedulerMethod("/syncline.Daemons/UploadArtifact"),
            "UploadArtifact");
}

TEST(RpcCounterTest, OtherPathsHaveNone) {
  for (const char* path :
       {"", "/", "Submit", "/syncline.Jobs/", "/syncline.Jobs/Made/Up",
        "/syncline.Jobs/MadeUp", "/syncline.ParameterServer/Push",
        "/syncline.Daemons/Submit", "syncline.Jobs/Submit"}) {
    EXPECT_EQ(SchedulerMethod(path), "") << path;
  }
}

}  // namespace
}  // namespace syncline::scheduler
