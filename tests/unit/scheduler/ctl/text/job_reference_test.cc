// Goal: the reference of the job file has each field, with what proto/ says of
// it, and fits a terminal. Method: it is compared with the descriptor that the
// daemons are compiled with; some entries by their text.

#include "scheduler/ctl/text/job_reference.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job_spec.pb.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ctl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Its part of the whole reference.
std::string SectionOf(const std::string& message) {
  const auto text = JobReference(message);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

TEST(JobReferenceTest, HasEveryFieldOfEveryMessage) {
  ASSERT_OK_AND_ASSIGN(const std::string all, JobReference(""));
  std::vector<const Descriptor*> open = {JobSpec::descriptor()};
  std::set<const Descriptor*> seen(open.begin(), open.end());
  while (!open.empty()) {
    const Descriptor* const type = open.back();
    open.pop_back();
    const std::string section = SectionOf(type->name());
    if (type == JobSpec::descriptor()) {
      EXPECT_THAT(all, StartsWith("JobSpec\n"));
    } else {
      EXPECT_THAT(all, HasSubstr(absl::StrCat("\n", type->name(), " (")));
    }
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor& field = *type->field(i);
      EXPECT_THAT(section, HasSubstr(absl::StrCat("\n  ", field.name(), " ")))
          << field.full_name();
      if (field.enum_type() != nullptr) {
        for (int v = 1; v < field.enum_type()->value_count(); ++v) {
          EXPECT_THAT(section, HasSubstr(absl::StrCat(
                                   "\n      ",
                                   field.enum_type()->value(v)->name(), "\n")));
        }
      }
      if (field.message_type() != nullptr &&
          seen.insert(field.message_type()).second) {
        open.push_back(field.message_type());
      }
    }
  }
  EXPECT_GT(seen.size(), 15u);
}

TEST(JobReferenceTest, FitsATerminal) {
  ASSERT_OK_AND_ASSIGN(const std::string all, JobReference(""));
  for (absl::string_view line : absl::StrSplit(all, '\n')) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(JobReferenceTest, AFieldIsFoundByItsPath) {
  ASSERT_OK_AND_ASSIGN(const std::string optimizer, JobReference("optimizer"));
  EXPECT_THAT(optimizer,
              AllOf(StartsWith("  optimizer "), HasSubstr("OptimizerSpec"),
                    HasSubstr("\n  clip_norm "), HasSubstr("\n      ADAM\n"),
                    Not(HasSubstr("LearningRateSpec"))));
  ASSERT_OK_AND_ASSIGN(const std::string csv, JobReference("data.train.csv"));
  EXPECT_THAT(csv, AllOf(HasSubstr("Only one of "),
                         HasSubstr("CsvSource (data.train.csv)"),
                         HasSubstr("\n  has_header ")));
  ASSERT_OK_AND_ASSIGN(const std::string epochs,
                       JobReference("training.epochs"));
  EXPECT_THAT(epochs, AllOf(HasSubstr("uint32\n"), HasSubstr("0 means 1"),
                            Not(HasSubstr("batch_size"))));
}

TEST(JobReferenceTest, WhatIsNotThereIsAnsweredWithWhatIs) {
  EXPECT_TRUE(absl::IsNotFound(JobReference("optimiser").status()));
  EXPECT_THAT(std::string(JobReference("optimizer.rate").status().message()),
              AllOf(HasSubstr("OptimizerSpec has no field \"rate\"; it has "),
                    HasSubstr("clip_norm")));
  EXPECT_THAT(std::string(JobReference("name.x").status().message()),
              HasSubstr("name is string, which has no fields"));
  EXPECT_TRUE(absl::IsNotFound(JobReference("a..b").status()));
}

}  // namespace
}  // namespace syncline::ctl
