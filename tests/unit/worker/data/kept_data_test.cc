// Goal: an attempt finds what the one before has read for the same job, and
// nothing else; what is forgotten is freed. Method: a data set of two samples,
// kept and asked for by other names.

#include "worker/data/kept_data.h"

#include <memory>
#include <utility>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

KeptData::Source TwoDigits() {
  DataSpec data;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "train { digits { count: 2 } } feeds { input: 'x' field: 'image' }",
      &data));
  auto dataset = Dataset::Open(data.train(), data, "", {{784}}, 10, 1);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  KeptData::Source source;
  source.dataset = *std::move(dataset);
  source.print.set_samples(2);
  return source;
}

TEST(KeptDataTest, FindsWhatWasKeptOfTheJobAndTheVersion) {
  KeptData kept;
  kept.Begin("j-1");
  const KeptData::Source source = TwoDigits();
  kept.Keep("j-1", "data.train", "v1", source);
  kept.Begin("j-1");  // its next attempt
  const auto found = kept.Find("j-1", "data.train", "v1");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->dataset, source.dataset);
  EXPECT_EQ(found->print.samples(), 2);
  EXPECT_FALSE(kept.Find("j-1", "data.test", "v1").has_value());
  EXPECT_FALSE(kept.Find("j-2", "data.train", "v1").has_value());
  EXPECT_FALSE(kept.Find("j-1", "data.train", "v2").has_value());
}

TEST(KeptDataTest, AnotherJobFreesIt) {
  KeptData kept;
  kept.Begin("j-1");
  KeptData::Source source = TwoDigits();
  const std::weak_ptr<const Dataset> dataset = source.dataset;
  kept.Keep("j-1", "data.train", "v1", std::exchange(source, {}));
  kept.Forget("j-2");
  EXPECT_FALSE(dataset.expired()) << "it was not that job's";
  kept.Begin("j-2");
  EXPECT_TRUE(dataset.expired());
  EXPECT_FALSE(kept.Find("j-1", "data.train", "v1").has_value());
}

TEST(KeptDataTest, AnotherVersionIsForgottenBeforeItIsReadAnew) {
  KeptData kept;
  kept.Begin("j-1");
  KeptData::Source source = TwoDigits();
  const std::weak_ptr<const Dataset> dataset = source.dataset;
  kept.Keep("j-1", "data.train", "v1", std::exchange(source, {}));
  EXPECT_FALSE(kept.Find("j-1", "data.train", "").has_value());
  EXPECT_TRUE(dataset.expired());
}

TEST(KeptDataTest, WhatAnAttemptDoesNotUseIsForgotten) {
  KeptData kept;
  kept.Begin("j-1");
  kept.Keep("j-1", "data.train", "v1", TwoDigits());
  kept.Keep("j-1", "data.test", "v1", TwoDigits());
  kept.KeepOnly("j-2", {});
  kept.KeepOnly("j-1", {"data.train", "data.none"});
  EXPECT_TRUE(kept.Find("j-1", "data.train", "v1").has_value());
  EXPECT_FALSE(kept.Find("j-1", "data.test", "v1").has_value());
}

TEST(KeptDataTest, ANewVersionReplacesTheOld) {
  KeptData kept;
  kept.Begin("j-1");
  KeptData::Source source = TwoDigits();
  const std::weak_ptr<const Dataset> dataset = source.dataset;
  kept.Keep("j-1", "data.train", "v1", std::exchange(source, {}));
  kept.Keep("j-1", "data.train", "v2", TwoDigits());
  EXPECT_TRUE(dataset.expired());
  EXPECT_TRUE(kept.Find("j-1", "data.train", "v2").has_value());
  EXPECT_FALSE(kept.Find("j-1", "data.train", "v1").has_value());
}

// A stop may come while the data are still being read.
TEST(KeptDataTest, NothingIsKeptOfAJobThatIsForgotten) {
  KeptData kept;
  kept.Keep("j-1", "data.train", "v1", TwoDigits());
  EXPECT_FALSE(kept.Find("j-1", "data.train", "v1").has_value()) << "not begun";
  kept.Begin("j-1");
  kept.Forget("j-1");
  kept.Keep("j-1", "data.train", "v1", TwoDigits());
  EXPECT_FALSE(kept.Find("j-1", "data.train", "v1").has_value());
  kept.Begin("j-1");
  kept.Keep("j-1", "data.train", "v1", TwoDigits());
  kept.ForgetAll();
  EXPECT_FALSE(kept.Find("j-1", "data.train", "v1").has_value());
}

}  // namespace
}  // namespace syncline::worker
