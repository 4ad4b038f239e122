// Goal: a note of the scheduler is one line. (Where logs are: scheduler_test,
// logs_test.)

#include "scheduler/core/cluster/log_sources.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::HasSubstr;

TEST(LogNoteTest, IsOneLineWhateverIsInIt) {
  const std::string note =
      LogNote("j-0001", "4bf92f3577b34da6a3ce929d0e0e4736", absl::UnixEpoch(),
              "its log cannot be read", "a\nb\"c");
  EXPECT_EQ(note.find('\n'), note.size() - 1);
  EXPECT_THAT(note, HasSubstr("ts=1970-01-01T00:00:00.000Z level=warning "
                              "role=scheduler job=j-0001 "
                              "trace=4bf92f3577b34da6a3ce929d0e0e4736 "
                              "msg=\"its log cannot be read\""));
  EXPECT_THAT(note, HasSubstr("error=\"a\\nb\\\"c\""));
}

TEST(LogTaskNameTest, IsWhatTaskTakes) {
  Task task;
  task.set_type(WORKER);
  task.set_index(12);
  EXPECT_EQ(LogTaskName(task), "worker:12");
}

}  // namespace
}  // namespace syncline::scheduler
