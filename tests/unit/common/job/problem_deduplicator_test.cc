// Goal: what was reported once is not said again in other words, and nothing
// else is held back. Method: job files with a bad field, and the problems that
// the validator and the model's check would add.

#include "common/job/problem_deduplicator.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_parser.h"
#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::vector<std::string> News(absl::string_view text,
                              const std::vector<std::string>& problems) {
  const JobReading reading = ReadJobSpec(text, "job");
  EXPECT_THAT(reading.problems, testing::SizeIs(1)) << text;
  return ProblemDeduplicator(reading).KeepNew(problems);
}

TEST(ProblemDeduplicatorTest, AFieldIsReportedOnce) {
  EXPECT_THAT(News("name: 7", {"name: '' is not 1..64 characters"}), IsEmpty());
  EXPECT_THAT(News("training { epochs: -1 batch_size: 9999999 }",
                   {"training.epochs: a", "training.batch_size: too large"}),
              ElementsAre("training.batch_size: too large"));
}

TEST(ProblemDeduplicatorTest, WhatIsInAndAroundIt) {
  EXPECT_THAT(News("learning_rate: 3", {"learning_rate.base: 0 must be > 0"}),
              IsEmpty());
  EXPECT_THAT(News("data { train { csv: 1 } }",
                   {"data.train: needs one of idx, csv, libsvm, digits"}),
              IsEmpty());
  EXPECT_THAT(News("data { feeds { input: 3 } }",
                   {"data.feeds: graph input 'x' is not fed"}),
              IsEmpty());
}

TEST(ProblemDeduplicatorTest, WhatNamesIt) {
  EXPECT_THAT(News("data { test: 3 }",
                   {"metrics: nothing is evaluated without data.test"}),
              IsEmpty());
  EXPECT_THAT(News("model { initialize { pattern: 1 } }",
                   {"data.feeds: graph input 'w' is not fed, and no rule of "
                    "model.initialize makes it a parameter"}),
              IsEmpty());
  // Only a part of what is named: the problem stands.
  EXPECT_THAT(News("data { train { digits { count: -1 } } }",
                   {"data.feeds[0].field: 'x' is not a field of data.train"}),
              testing::SizeIs(1));
}

TEST(ProblemDeduplicatorTest, AMisspelledFieldIsNotMissingToo) {
  EXPECT_THAT(
      News("lerning_rate { base: 1 }",
           {"learning_rate.base: 0 must be > 0", "loss.kind: required"}),
      ElementsAre("loss.kind: required"));
  EXPECT_THAT(News("data { feeds { inputt: 'x' } }",
                   {"data.feeds[0].input: is required",
                    "data.feeds[0].field: is required"}),
              ElementsAre("data.feeds[0].field: is required"));
  EXPECT_THAT(News("data { train { cvs { path: 'a' } } }",
                   {"data.train: needs one of idx, csv, libsvm, digits"}),
              IsEmpty());
}

TEST(ProblemDeduplicatorTest, AnUnreadEnumDecidesNothing) {
  const char* const kTexts[] = {
      "optimizer { kind: SGDD momentum: 0.5 }",
      "learning_rate { base: 1 schedule: STEPS step_clocks: 3 }",
      "consistency { mode: SPP staleness_bound: 3 }",
      "loss { kind: MSE }",
      "model { initialize { pattern: '*' scheme: CONST value: 3 } }",
  };
  for (const char* text : kTexts) {
    const JobReading reading = ReadJobSpec(text, "job");
    const std::string path = reading.unread_paths.at(0);
    ProblemDeduplicator deduplicator(reading);
    for (const std::string& problem :
         deduplicator.KeepNew(ValidateJobSpec(reading.spec))) {
      EXPECT_NE(problem.substr(0, problem.find('.')),
                path.substr(0, path.find('.')) == "model"
                    ? "model.initialize"
                    : path.substr(0, path.find('.')))
          << text << ": " << problem;
    }
  }
}

TEST(ProblemDeduplicatorTest, NothingIsMissingInAFileThatEndsEarly) {
  const JobReading reading =
      ReadJobSpec("training { batch_size: 9999999 }\nmodel {", "job");
  EXPECT_FALSE(reading.complete);
  EXPECT_THAT(
      ProblemDeduplicator(reading).KeepNew(ValidateJobSpec(reading.spec)),
      ElementsAre(StartsWith("training.batch_size")));
}

TEST(ProblemDeduplicatorTest, AReportCountsForTheNextOne) {
  const JobSpec spec;
  ProblemDeduplicator deduplicator(spec);
  EXPECT_THAT(deduplicator.KeepNew({"data.feeds[0].input: is required"}),
              testing::SizeIs(1));
  EXPECT_THAT(
      deduplicator.KeepNew({"data.feeds[0].input: '' is not an input",
                            "data.feeds: graph input 'x' is not fed",
                            "job: has a field number 99", "no path at all"}),
      ElementsAre("job: has a field number 99", "no path at all"));
}

// A stranger's job may have a million problems, and each is compared with all
// that were reported before.
TEST(ProblemDeduplicatorTest, OfVeryManyProblemsTheFirstAreKept) {
  const JobSpec spec;
  ProblemDeduplicator deduplicator(spec);
  std::vector<std::string> problems;
  for (int i = 0; i < 100'000; ++i) {
    problems.push_back(absl::StrCat("data.feeds[", i, "].input: is fed twice"));
  }
  const std::vector<std::string> kept = deduplicator.KeepNew(problems);
  ASSERT_EQ(kept.size(), 201u);
  EXPECT_EQ(kept[0], problems[0]);
  EXPECT_EQ(kept[199], problems[199]);
  EXPECT_EQ(kept[200], "and 99800 more problems");
}

TEST(FindResemblingTest, FindsMisspellingsAndNothingElse) {
  const auto name_of = [](absl::string_view name) {
    const auto* field = FindResembling(*JobSpec::descriptor(), name);
    return field == nullptr ? std::string() : field->name();
  };
  EXPECT_EQ(name_of("lerning_rate"), "learning_rate");
  EXPECT_EQ(name_of("traning"), "training");
  EXPECT_EQ(name_of("optimiser"), "optimizer");
  EXPECT_EQ(name_of("metric"), "metrics");
  EXPECT_EQ(name_of("learningRates"), "learning_rate");
  EXPECT_EQ(name_of("foo"), "");
  EXPECT_EQ(name_of(""), "");
  EXPECT_EQ(name_of(std::string(100'000, 'n')), "");
}

TEST(FindResemblingTest, FindsAnotherWordForTheSame) {
  const auto name_of = [](const google::protobuf::Descriptor* message,
                          absl::string_view name) {
    const auto* field = FindResembling(*message, name);
    return field == nullptr ? std::string() : field->name();
  };
  const auto* const checkpoint = CheckpointSpec::descriptor();
  EXPECT_EQ(name_of(checkpoint, "every_steps"), "every_clocks");
  EXPECT_EQ(name_of(checkpoint, "everySteps"), "every_clocks");
  EXPECT_EQ(name_of(checkpoint, "folder"), "");
  EXPECT_EQ(name_of(checkpoint, "every_so_many_steps"), "")
      << "one word of four is too little";
  EXPECT_EQ(name_of(checkpoint, "__"), "");
  EXPECT_EQ(name_of(TrainingSpec::descriptor(), "max_steps"), "max_clocks");
  EXPECT_EQ(name_of(TrainingSpec::descriptor(), "number_of_epochs"), "");
}

}  // namespace
}  // namespace syncline
