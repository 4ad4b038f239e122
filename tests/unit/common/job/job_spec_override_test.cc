// Goal: a command line sets any field of a job, and what it cannot set is
// refused with the reason.
// Method: settings over a small job, compared as text.

#include "common/job/job_spec_override.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kJob[] = R"pb(
  name: "mnist"
  model {
    path: "m.onnx"
    initialize { pattern: "w*" scheme: HE_UNIFORM }
    initialize { pattern: "b*" scheme: ZEROS }
    freeze: "x"
  }
  metrics: ACCURACY
  learning_rate { base: 0.001 schedule: COSINE }
)pb";

std::string Set(absl::string_view setting) {
  JobSpec spec = JobFromText(kJob);
  const auto path = OverrideField(setting, &spec);
  EXPECT_TRUE(path.ok()) << path.status();
  return spec.ShortDebugString();
}

std::string Refused(absl::string_view setting) {
  JobSpec spec = JobFromText(kJob);
  const auto path = OverrideField(setting, &spec);
  EXPECT_EQ(path.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(path.status().message());
}

TEST(JobSpecOverrideTest, SetsNumbersNamesAndText) {
  EXPECT_THAT(Set("learning_rate.base=0.1"),
              HasSubstr("learning_rate { base: 0.1 schedule: COSINE }"));
  EXPECT_THAT(Set(" training.epochs = 3 "),
              HasSubstr("training { epochs: 3 }"));
  EXPECT_THAT(Set("optimizer.kind=ADAM"),
              HasSubstr("optimizer { kind: ADAM }"));
  EXPECT_THAT(Set("data.shuffle=false"), HasSubstr("data { shuffle: false }"));
  EXPECT_THAT(Set("name=second try"), HasSubstr("name: \"second try\""));
  EXPECT_THAT(Set("name=\"quoted\""), HasSubstr("name: \"quoted\""));
  EXPECT_THAT(Set("data.train.csv.path=a=b.csv"),
              HasSubstr("csv { path: \"a=b.csv\" }"));
  EXPECT_THAT(Set("data.label.ignore=-1"), HasSubstr("ignore: -1"));
}

TEST(JobSpecOverrideTest, ReturnsThePath) {
  JobSpec spec = JobFromText(kJob);
  EXPECT_EQ(*OverrideField("learning_rate.base =0.1", &spec),
            "learning_rate.base");
}

TEST(JobSpecOverrideTest, ReplacesListsAndMessages) {
  EXPECT_THAT(Set("metrics=[AUC, LOG_LOSS]"),
              HasSubstr("metrics: AUC metrics: LOG_LOSS learning_rate"));
  EXPECT_THAT(Set("metrics=AUC"), HasSubstr("} metrics: AUC learning_rate"));
  EXPECT_THAT(Set("metrics=[]"), HasSubstr("} learning_rate"));
  EXPECT_THAT(Set("learning_rate={base: 1}"),
              HasSubstr("learning_rate { base: 1 }"));
  EXPECT_THAT(Set("model.freeze=a*"), HasSubstr("freeze: \"a*\""));
}

TEST(JobSpecOverrideTest, SetsEntriesOfLists) {
  EXPECT_THAT(Set("model.initialize[1].scheme=CONSTANT"),
              HasSubstr("pattern: \"b*\" scheme: CONSTANT"));
  EXPECT_THAT(Set("model.initialize[0]={pattern: \"v\"}"),
              HasSubstr("initialize { pattern: \"v\" } initialize { pattern: "
                        "\"b*\" scheme: ZEROS }"));
  EXPECT_THAT(Set("model.initialize[2].pattern=c"),
              HasSubstr("initialize { pattern: \"c\" }"));
  EXPECT_THAT(Set("model.freeze[1]=y"),
              HasSubstr("freeze: \"x\" freeze: \"y\""));
  EXPECT_THAT(Set("metrics[0]=AUC"), HasSubstr("} metrics: AUC learning_rate"));
}

TEST(JobSpecOverrideTest, RefusesWhatItCannotSet) {
  EXPECT_EQ(Refused("learning_rate.bse=1"),
            "--set learning_rate.bse=1: LearningRateSpec has no field 'bse'; "
            "did you mean 'base'?");
  EXPECT_THAT(Refused("learning_rate.base"), HasSubstr("must be path=value"));
  EXPECT_THAT(Refused("=1"), HasSubstr("JobSpec has no field ''"));
  EXPECT_THAT(Refused(""), HasSubstr("must be path=value"));
  EXPECT_THAT(Refused("training.epochs=many"), HasSubstr("integer"));
  EXPECT_THAT(Refused("training.epochs="), HasSubstr("--set training.epochs="));
  EXPECT_THAT(Refused("optimizer.kind=ADAMM"),
              AllOf(HasSubstr("ADAMM"), HasSubstr("it is one of SGD, ")));
  EXPECT_THAT(Refused("training.epochs=1 batch_size: 2"),
              HasSubstr("sets 'batch_size', too"));
  EXPECT_THAT(Refused("name.first=x"), HasSubstr("'name' has no fields"));
  EXPECT_THAT(Refused("name[0]=x"), HasSubstr("'name' is no list"));
  EXPECT_THAT(Refused("model.initialize.scale=1"),
              HasSubstr("a list of 2; say which entry"));
  EXPECT_THAT(Refused("model.initialize[3].scale=1"),
              HasSubstr("has 2 entries; [2] would be the next"));
  EXPECT_THAT(Refused("metrics[5]=AUC"), HasSubstr("has 1 entries"));
  EXPECT_THAT(Refused("metrics[x]=AUC"),
              HasSubstr("not a field with an index"));
  EXPECT_THAT(Refused("metrics[0]=[AUC, ACCURACY]"),
              HasSubstr("an entry of a list is one value"));
  EXPECT_THAT(Refused("name\xff=x"), HasSubstr("\\377"));
}

}  // namespace
}  // namespace syncline
