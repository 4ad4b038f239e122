// Goal: members of a job whose data differ are told apart, by the first file
// that differs and with the member that has the other. Method: fingerprints
// that differ one way at a time.

#include "scheduler/core/data_comparison.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kChief[] = "chief 0 at a:1";
constexpr char kWorker[] = "worker 1 at b:2";

// Files of 10 bytes.
DataFingerprint Data(const std::vector<std::string>& names) {
  DataFingerprint data;
  DataFingerprint::Source* source = data.add_sources();
  source->set_field("data.train");
  source->set_samples(names.size() * 5);
  source->set_file_count(names.size());
  for (const std::string& name : names) {
    DataFingerprint::File* file = source->add_files();
    file->set_name(name);
    file->set_size_bytes(10);
    file->set_crc32c(7);
    source->set_crc32c(source->crc32c() + 100 + name[0]);
  }
  return data;
}

// The problems of a worker that prepares after the chief.
std::vector<std::string> Compare(const DataFingerprint& chief,
                                 const DataFingerprint& worker) {
  DataComparison comparison;
  EXPECT_THAT(comparison.Add(kChief, chief), IsEmpty());
  return comparison.Add(kWorker, worker);
}

TEST(DataComparisonTest, TheSameDataIsNoProblem) {
  EXPECT_THAT(Compare(Data({"a", "b"}), Data({"a", "b"})), IsEmpty());
  EXPECT_THAT(Compare(Data({"a"}), {}), IsEmpty()) << "a ps has none";
}

TEST(DataComparisonTest, AMissingFileIsNamedOnBothSides) {
  EXPECT_THAT(Compare(Data({"a", "b", "c"}), Data({"a", "c"})),
              ElementsAre(AllOf(StartsWith("data.train: \"b\" is missing here; "
                                           "chief 0 at a:1 has it"),
                                HasSubstr("must have the same data"))));
  EXPECT_THAT(
      Compare(Data({"a", "c"}), Data({"a", "b", "c"})),
      ElementsAre(HasSubstr("\"b\" is here; chief 0 at a:1 does not have it")));
  EXPECT_THAT(Compare(Data({"a", "b"}), Data({"a"})),
              ElementsAre(HasSubstr("\"b\" is missing here")));
  EXPECT_THAT(Compare(Data({"a"}), Data({"a", "b"})),
              ElementsAre(HasSubstr("\"b\" is here")));
  EXPECT_THAT(Compare(Data({"a", "b"}), Data({"b", "a"})),
              ElementsAre(HasSubstr("another order")));
}

TEST(DataComparisonTest, OtherSizesAndContentsAreNamed) {
  DataFingerprint changed = Data({"a", "b"});
  changed.mutable_sources(0)->mutable_files(1)->set_size_bytes(11);
  EXPECT_THAT(Compare(Data({"a", "b"}), changed),
              ElementsAre(HasSubstr(
                  "\"b\" has 11 bytes here, and 10 on chief 0 at a:1")));
  changed = Data({"a", "b"});
  changed.mutable_sources(0)->mutable_files(0)->set_crc32c(8);
  EXPECT_THAT(Compare(Data({"a", "b"}), changed),
              ElementsAre(HasSubstr("\"a\" has the same size here and on chief "
                                    "0 at a:1, but other content")));
}

TEST(DataComparisonTest, WhatIsNotListedCountsToo) {
  DataFingerprint changed = Data({"a"});
  changed.mutable_sources(0)->set_file_count(9000);
  EXPECT_THAT(Compare(Data({"a"}), changed),
              ElementsAre(HasSubstr("9000 files match here, and 1 on ")));
  changed = Data({"a"});
  changed.mutable_sources(0)->set_crc32c(1);
  EXPECT_THAT(Compare(Data({"a"}), changed),
              ElementsAre(HasSubstr("a file after the first 1 ")));
  changed = Data({"a"});
  changed.mutable_sources(0)->set_samples(6);
  EXPECT_THAT(Compare(Data({"a"}), changed),
              ElementsAre(HasSubstr("6 samples here, and 5 on ")));
}

TEST(DataComparisonTest, DrawnSamplesAreCompared) {
  DataFingerprint changed = Data({});
  changed.mutable_sources(0)->set_crc32c(1);
  EXPECT_THAT(Compare(Data({}), Data({})), IsEmpty());
  EXPECT_THAT(Compare(Data({}), changed),
              ElementsAre(HasSubstr("other samples are drawn here")));
}

TEST(DataComparisonTest, SourcesAreComparedByThemselves) {
  DataFingerprint both = Data({"a"});
  *both.add_sources() = Data({"t"}).sources(0);
  both.mutable_sources(1)->set_field("data.test");
  DataComparison comparison;
  EXPECT_THAT(comparison.Add(kWorker, Data({"b"})), IsEmpty());
  EXPECT_THAT(comparison.Add(kChief, both),
              ElementsAre(StartsWith("data.train: \"b\" is missing here; "
                                     "worker 1 at b:2 has it")));
  // The third member is compared with the first.
  EXPECT_THAT(comparison.Add("worker 2 at c:3", both),
              ElementsAre(HasSubstr("worker 1 at b:2")));
}

}  // namespace
}  // namespace syncline::scheduler
