#include "common/job/blame_text.h"

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

JobStatus Job(const std::string& progress) {
  JobStatus job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "workers { rank: 0 member { task { type: CHIEF } } } "
      "workers { rank: 1 member { task { type: WORKER index: 4 } } } "
      "progress { clock: 500 " +
          progress + " }",
      &job));
  return job;
}

TEST(BlameTextTest, WhoCameLast) {
  EXPECT_THAT(BlameLines(Job("blame { rank: 0 clocks: 69 seconds: 1.25 } "
                             "blame { rank: 1 clocks: 431 seconds: 82.4 }"),
                         4),
              ElementsAre("worker:4 closed 431 clocks last, 82 s",
                          "chief:0 closed 69 clocks last, 1.2 s"));
}

TEST(BlameTextTest, WhoWasLeftBehindComesFirst) {
  EXPECT_THAT(
      BlameLines(Job("blame { rank: 0 clocks: 10 seconds: 9 } "
                     "blame { rank: 1 left_behind_clocks: 120 "
                     "dropped_samples: 3840 }"),
                 1),
      ElementsAre(
          "worker:4 was left behind at 120 clocks, 3840 samples that it sent "
          "too late"));
}

TEST(BlameTextTest, NobodyWorthALine) {
  EXPECT_THAT(BlameLines(Job(""), 4), IsEmpty());
  EXPECT_THAT(BlameLines(Job("blame { rank: 1 clocks: 3 seconds: 0.01 }"), 4),
              IsEmpty());
}

}  // namespace
}  // namespace syncline
