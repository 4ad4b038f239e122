// Goal: what one rank sends of a bucket another one reads as its owner would
// have the sender's gradient itself, and sizes and bytes that are of no block
// are refused.
// Method: two ranks' sides in one process, whose messages are copied by hand.

#include "worker/peers/compressed_gradients.h"

#include <cstring>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CompressedGradientsTest : public ::testing::Test {
 protected:
  CompressedGradientsTest()
      : map_(*OwnedBlocks({{"a", 200'000}, {"b", 30}}, 2)),
        buckets_(MakeBuckets(map_, {})) {
    Random random(7);
    for (const size_t count : {200'000, 30}) {
      std::vector<float>& of = gradients_.emplace_back(count);
      for (float& g : of) g = static_cast<float>(random.Normal());
    }
    for (const auto& of : gradients_) tensors_.gradients.push_back(of);
    for (uint32_t b = 0; b < buckets_.size(); ++b) {
      if (buckets_[b].owner == 1) bucket_ = b;
    }
  }

  CompressedGradients Side() {
    return CompressedGradients(
        {.compressor = {.compression = {.kind =
                                            GradientCompression::Kind::kInt8}}},
        &map_, buckets_, &tensors_);
  }
  void CompressAll(CompressedGradients* side) {
    for (uint32_t t = 0; t < gradients_.size(); ++t) {
      side->Compress(t, gradients_[t], /*clock=*/0, /*samples=*/3);
    }
  }

  ComingBucket& Coming(CompressedGradients* owner) {
    return owner->From(/*rank=*/0, bucket_);
  }
  void CopySizes(const CompressedGradients::Message& message,
                 CompressedGradients* owner) {
    const absl::Span<uint32_t> sizes = Coming(owner).Sizes(buckets_[bucket_]);
    ASSERT_EQ(sizes.size() * sizeof(uint32_t), message.sizes.size);
    std::memcpy(sizes.data(), message.sizes.data, message.sizes.size);
  }

  const BlockMap map_;
  const std::vector<Bucket> buckets_;
  std::vector<std::vector<float>> gradients_;
  DenseTensors tensors_;
  uint32_t bucket_ = 0;  // of rank 1
};

void Copy(const ConstPeerMemory& from, uint8_t* to) {
  std::memcpy(to, from.data, from.size);
}

TEST_F(CompressedGradientsTest, ARankReadsWhatAnotherSends) {
  CompressedGradients sender = Side();
  CompressedGradients owner = Side();
  CompressAll(&sender);
  const CompressedGradients::Message message = sender.MessageOf(bucket_);
  CopySizes(message, &owner);
  const auto blocks = Coming(&owner).Blocks(map_, buckets_[bucket_]);
  ASSERT_OK(blocks.status());
  ASSERT_EQ(blocks->size, message.blocks.bytes);
  uint8_t* to = blocks->data;
  for (const ConstPeerMemory& piece : message.blocks.blocks) {
    Copy(piece, to);
    to += piece.size;
  }
  const auto received = Coming(&owner).Take(map_, buckets_[bucket_]);
  ASSERT_OK(received.status());
  EXPECT_EQ(received->bytes, message.blocks.bytes);
  EXPECT_LT(message.blocks.bytes, buckets_[bucket_].elements * 4 / 3);

  const size_t count = buckets_[bucket_].elements;
  std::vector<float> theirs(count);
  std::vector<float> own(count);
  received->values->CopyTo(0, count, theirs.data());
  sender.OwnSource(bucket_)->CopyTo(0, count, own.data());
  EXPECT_EQ(theirs, own);
}

TEST_F(CompressedGradientsTest, RefusesSizesThatNoBlockHas) {
  CompressedGradients owner = Side();
  for (uint32_t& size : Coming(&owner).Sizes(buckets_[bucket_])) size = ~0u;
  EXPECT_THAT(
      std::string(
          Coming(&owner).Blocks(map_, buckets_[bucket_]).status().message()),
      AllOf(HasSubstr("compressed block "),
            HasSubstr("has 4294967295 bytes, at most ")));
}

TEST_F(CompressedGradientsTest, RefusesBytesThatAreNoBlock) {
  CompressedGradients sender = Side();
  CompressedGradients owner = Side();
  CompressAll(&sender);
  CopySizes(sender.MessageOf(bucket_), &owner);
  const auto blocks = Coming(&owner).Blocks(map_, buckets_[bucket_]);
  ASSERT_OK(blocks.status());
  std::memset(blocks->data, 0x7f, blocks->size);
  EXPECT_THAT(
      std::string(
          Coming(&owner).Take(map_, buckets_[bucket_]).status().message()),
      HasSubstr("bytes 1 to 3 are not 0"));
}

TEST_F(CompressedGradientsTest, CountsWhatIsReceivedAtMost) {
  const GradientCompressor::Options int8 = {
      .compression = {.kind = GradientCompression::Kind::kInt8}};
  const auto own = static_cast<uint64_t>(map_.shard_elements(1));
  EXPECT_EQ(CompressedGradients::ReceivedBytes(int8, map_, 1) / 10,
            (own + own / 8) / 10);
  // All the largest elements may be of one rank's blocks.
  const GradientCompressor::Options top = {
      .compression = {.kind = GradientCompression::Kind::kTopK,
                      .fraction = 0.9}};
  EXPECT_GE(CompressedGradients::ReceivedBytes(top, map_, 1), own * 4);
}

}  // namespace
}  // namespace syncline::worker
