// Goal: what is written is read again; no byte that is flipped or cut off is;
// what contradicts itself is refused by its field; the file is as README.md
// draws it.
// Method: one manifest, each byte of it flipped, each prefix of it, and changes
// one at a time. The drawn bytes are taken apart by hand.

#include "common/checkpoint/manifest.h"

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

JobAssignment Assignment() {
  JobAssignment assignment;
  assignment.set_job_id("j-0007");
  assignment.mutable_spec()->set_name("wide");
  assignment.set_attempt(2);
  ParameterInfo* const weight = assignment.add_parameters();
  weight->set_name("w");
  weight->add_dims(3);
  weight->add_dims(4);
  ParameterInfo* const mean = assignment.add_parameters();
  mean->set_name("m");
  mean->add_dims(4);
  mean->set_momentum(0.9f);
  TableInfo* const table = assignment.add_tables();
  table->set_name("emb");
  table->set_dim(8);
  table->set_slots(256);
  assignment.mutable_routing()->set_version(3);
  assignment.mutable_routing()->add_shard_ps(1);
  assignment.mutable_routing()->add_shard_ps(0);
  return assignment;
}

AwaitCheckpointResponse File(uint32_t shard, uint64_t bytes) {
  AwaitCheckpointResponse file;
  file.set_file(ShardFileName(shard, 2));
  file.set_bytes(bytes);
  file.set_crc32c(77 + shard);
  return file;
}

CheckpointParts Parts() {
  CheckpointParts parts;
  parts.cut_id = 0x2000000000c8400;
  parts.clocks = {1201, 1200};
  parts.total_clocks = 5000;
  parts.model_crc32c = 5;
  parts.shards = {File(0, 1000), File(1, 500)};
  parts.loss_scales.resize(2);
  parts.loss_scales[0].set_scale(1024);
  parts.loss_scales[1].set_scale(512);
  parts.loss_scales[1].set_good_steps(3);
  parts.time = absl::FromUnixMillis(1'700'000'000'250);
  parts.took = absl::Seconds(2);
  return parts;
}

CheckpointManifest Whole() { return MakeManifest(Assignment(), Parts()); }

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

TEST(ManifestTest, WhatIsWrittenIsRead) {
  const auto encoded = EncodeManifest(Whole());
  ASSERT_OK(encoded.status());
  const auto read = DecodeManifest("here", *encoded);
  ASSERT_OK(read.status());
  EXPECT_EQ(read->SerializeAsString(), Whole().SerializeAsString());
  EXPECT_EQ(read->clock(), 1200);
  EXPECT_EQ(read->workers(0).clock(), 1201);
  EXPECT_EQ(read->workers(1).loss_scale().good_steps(), 3u);
  const CheckpointInfo info = CheckpointInfoOf(*read, "/c/x", *encoded);
  EXPECT_EQ(info.path(), "/c/x");
  EXPECT_EQ(info.clock(), 1200);
  EXPECT_EQ(info.shards(), 2u);
  EXPECT_EQ(info.bytes(), 1500u);
  EXPECT_EQ(info.manifest_crc32c(), Crc32c(*encoded));
  EXPECT_EQ(info.attempt(), 2u);
  EXPECT_EQ(info.seconds(), 2);
  EXPECT_EQ(info.time().nanos(), 250'000'000);
}

TEST(ManifestTest, IsAsTheReadmeDrawsIt) {
  const auto encoded = EncodeManifest(Whole());
  ASSERT_OK(encoded.status());
  EXPECT_EQ(encoded->substr(0, 4), "SYCM");
  EXPECT_EQ(encoded->substr(4, 4), std::string("\1\0\0\0", 4));
  uint32_t bytes = 0;
  std::memcpy(&bytes, encoded->data() + 8, 4);
  EXPECT_EQ(bytes, encoded->size() - 16);
  uint32_t checksum = 0;
  std::memcpy(&checksum, encoded->data() + 12, 4);
  EXPECT_EQ(checksum, Crc32c(encoded->substr(0, 12) + encoded->substr(16)));
  CheckpointManifest by_hand;
  ASSERT_TRUE(by_hand.ParseFromString(encoded->substr(16)));
  EXPECT_EQ(by_hand.job_id(), "j-0007");
}

TEST(ManifestTest, NoByteThatIsFlippedIsRead) {
  const auto encoded = EncodeManifest(Whole());
  ASSERT_OK(encoded.status());
  for (size_t at = 0; at < encoded->size(); ++at) {
    std::string damaged = *encoded;
    damaged[at] ^= 0x10;
    const absl::Status status = DecodeManifest("the/path", damaged).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << at << status;
    ASSERT_THAT(MessageOf(status), HasSubstr("the/path"));
  }
}

TEST(ManifestTest, NoPrefixAndNothingThatFollowsIsRead) {
  const auto encoded = EncodeManifest(Whole());
  ASSERT_OK(encoded.status());
  for (size_t size = 0; size < encoded->size(); ++size) {
    ASSERT_EQ(DecodeManifest("p", encoded->substr(0, size)).status().code(),
              absl::StatusCode::kDataLoss)
        << size;
  }
  EXPECT_EQ(DecodeManifest("p", *encoded + "x").status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(ManifestTest, AnotherFormatIsNamed) {
  auto encoded = EncodeManifest(Whole());
  ASSERT_OK(encoded.status());
  (*encoded)[4] = 9;
  const uint32_t checksum =
      Crc32c(encoded->substr(0, 12) + encoded->substr(16));
  std::memcpy(encoded->data() + 12, &checksum, 4);
  const absl::Status status = DecodeManifest("p", *encoded).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(status), HasSubstr("format 9"));
}

TEST(ManifestTest, WhatContradictsItselfIsRefusedByItsField) {
  using Change = std::function<void(CheckpointManifest*)>;
  const std::vector<std::pair<std::string, Change>> cases = {
      {"format: 2", [](auto* m) { m->set_format(2); }},
      {"job_id", [](auto* m) { m->clear_job_id(); }},
      {"cut_id", [](auto* m) { m->clear_cut_id(); }},
      {"total_clocks: -1", [](auto* m) { m->set_total_clocks(-1); }},
      {"workers: there is none", [](auto* m) { m->clear_workers(); }},
      {"workers[1].clock: -1",
       [](auto* m) { m->mutable_workers(1)->set_clock(-1); }},
      {"workers[0].loss_scale.scale: 0",
       [](auto* m) {
         m->mutable_workers(0)->mutable_loss_scale()->set_scale(0);
       }},
      {"clock: 1199", [](auto* m) { m->set_clock(1199); }},
      {"shards: there are 0", [](auto* m) { m->clear_shards(); }},
      {"shards[1]: its file is '../x'",
       [](auto* m) { m->mutable_shards(1)->set_file("../x"); }},
      {"shards[0]: its file is",
       [](auto* m) { m->mutable_shards(0)->set_bytes(0); }},
      {"shards: none has a file",
       [](auto* m) {
         m->mutable_shards(0)->clear_file();
         m->mutable_shards(1)->clear_file();
       }},
  };
  for (const auto& [message, change] : cases) {
    CheckpointManifest manifest = Whole();
    change(&manifest);
    const absl::Status status = EncodeManifest(manifest).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(MessageOf(status), HasSubstr(message));
  }
  CheckpointManifest one_is_empty = Whole();
  one_is_empty.mutable_shards(1)->clear_file();
  EXPECT_OK(EncodeManifest(one_is_empty).status());
}

TEST(ManifestTest, OneThatIsTooLargeIsNotWritten) {
  CheckpointManifest manifest = Whole();
  manifest.mutable_spec()->set_name(std::string(kManifestBytesMax, 'x'));
  EXPECT_EQ(EncodeManifest(manifest).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(ManifestTest, AnotherModelIsNamedByWhatDiffers) {
  using Change = std::function<void(JobAssignment*)>;
  EXPECT_OK(CheckSameModel(Whole(), Assignment()));
  const std::vector<std::pair<std::string, Change>> cases = {
      {"tensor 0 is 'w', the job's is 'v'",
       [](auto* a) { a->mutable_parameters(0)->set_name("v"); }},
      {"'w' has the shape [3,4], the job's [3,5]",
       [](auto* a) { a->mutable_parameters(0)->set_dims(1, 5); }},
      {"it has the tensor 'm', which the job has not",
       [](auto* a) { a->mutable_parameters()->RemoveLast(); }},
      {"it has no tensor 'z', which the job has",
       [](auto* a) { a->add_parameters()->set_name("z"); }},
      {"'m' is a running mean in one",
       [](auto* a) { a->mutable_parameters(1)->clear_momentum(); }},
      {"it has 1 tables, the job 0", [](auto* a) { a->clear_tables(); }},
      {"table 0 is 'emb' with rows of 8, the job's is 'emb' with 9",
       [](auto* a) { a->mutable_tables(0)->set_dim(9); }},
  };
  for (const auto& [message, change] : cases) {
    JobAssignment assignment = Assignment();
    change(&assignment);
    const absl::Status status = CheckSameModel(Whole(), assignment);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(MessageOf(status), HasSubstr(message));
  }
}

TEST(ManifestTest, ItsShardsAreOnAsManyPs) {
  const JobAssignment assignment = AssignmentOf(Whole());
  EXPECT_EQ(assignment.ps_size(), 2);
  EXPECT_EQ(assignment.routing().version(), 3u);
  EXPECT_EQ(assignment.routing().shard_ps_size(), 0);
}

TEST(CheckpointNameTest, IsReadAsItIsWritten) {
  const CheckpointName name{1200, 0x00100000004b0400};
  EXPECT_EQ(name.ToString(), "000000001200-00100000004b0400");
  EXPECT_EQ(CheckpointName::Parse(name.ToString()), name);
  EXPECT_EQ(CheckpointName::Of(7, {5, 3, 4}), (CheckpointName{3, 7}));
  for (const char* other :
       {"", "manifest", "000000001200-00100000004b04",
        "00000000120x-0010000000"
        "4b0400",
        "000000001200_00100000004b0400", "000000001200-00100000004B0400",
        "000000001200-00100000004b0400.tmp", "-00000000001-00100000004b0400"}) {
    EXPECT_FALSE(CheckpointName::Parse(other).has_value()) << other;
  }
  EXPECT_EQ(ShardFileName(1, 4), "shard-00001-of-00004.state");
}

}  // namespace
}  // namespace syncline
