// Goal: compressed blocks of a push are read as float32 across their borders,
// and what does not fit its header is refused by name.
// Method: a layout of one shard of two, checked and read as the service does.

#include "server/service/compressed_payload.h"

#include <numeric>
#include <string>
#include <vector>

#include "common/wire/compression.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

class Bytes : public ByteSource {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  void CopyBytes(size_t first, size_t count, void* out) const override {
    ASSERT_LE(first + count, bytes_.size());
    bytes_.copy(static_cast<char*>(out), count, first);
  }
  PayloadPart part() const { return {this, bytes_.size()}; }

 private:
  const std::string bytes_;
};

ShardLayout Layout(GradientCompression compression = {
                       .kind = GradientCompression::Kind::kInt8}) {
  const std::vector<TensorSize> tensors = {{"a", 40}, {"b", 50}, {"c", 30}};
  return ShardLayout(
      *BlockMap::Create(tensors, 1), 0, {},
      RegimeSchedule(TrainingRegime{.compression = compression}));
}

struct Push {
  PushHeader header;
  std::string payload;
  std::vector<float> values;
};

Push MakePush() {
  Push push;
  push.header.set_sample_count(1);
  push.header.set_blocks_in_clock(3);
  push.header.set_compression(CompressionSpec::INT8);
  uint32_t id = 0;
  for (const size_t count : {40, 50, 30}) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), static_cast<float>(100 * id));
    push.values.insert(push.values.end(), values.begin(), values.end());
    std::string block;
    EncodeWhole(values.data(), count, &block);
    push.header.add_blocks(id++);
    push.header.add_block_bytes(static_cast<uint32_t>(block.size()));
    push.payload += block;
  }
  return push;
}

std::string ErrorOf(const Push& push, const ShardLayout& layout) {
  const Bytes bytes(push.payload);
  const auto checked = layout.CheckPush(push.header, bytes.part());
  if (!checked.ok()) return std::string(checked.status().message());
  const auto source = ReadCompressedBlocks(push.header, checked->facts.blocks,
                                           layout, bytes.part());
  return std::string(source.status().message());
}

TEST(CompressedPayloadTest, ReadsAcrossBlocks) {
  const ShardLayout layout = Layout();
  const Push push = MakePush();
  const Bytes bytes(push.payload);
  const auto checked = layout.CheckPush(push.header, bytes.part());
  ASSERT_TRUE(checked.ok()) << checked.status();
  const auto source = ReadCompressedBlocks(push.header, checked->facts.blocks,
                                           layout, bytes.part());
  ASSERT_TRUE(source.ok()) << source.status();
  for (size_t first = 0; first < push.values.size(); ++first) {
    for (size_t n = 1; first + n <= push.values.size(); n += 7) {
      std::vector<float> values(n);
      (*source)->CopyTo(first, n, values.data());
      ASSERT_TRUE(std::equal(values.begin(), values.end(),
                             push.values.begin() + first));
    }
  }
}

TEST(CompressedPayloadTest, RefusesWhatDoesNotFit) {
  const ShardLayout layout = Layout();
  Push push = MakePush();
  push.payload += std::string(4, '\0');
  EXPECT_THAT(ErrorOf(push, layout), HasSubstr("the payload has 496 bytes"));
  push = MakePush();
  push.header.mutable_block_bytes()->RemoveLast();
  EXPECT_THAT(ErrorOf(push, layout), HasSubstr("block_bytes has 2 sizes"));
  push = MakePush();
  push.header.set_block_bytes(0, push.header.block_bytes(0) + 4);
  push.header.set_block_bytes(1, push.header.block_bytes(1) - 4);
  EXPECT_THAT(ErrorOf(push, layout), HasSubstr("compressed block 0: has 168"));
  push = MakePush();
  push.payload[0] = 9;
  EXPECT_THAT(ErrorOf(push, layout),
              HasSubstr("compressed block 0: encoding 9 is not known"));
  push = MakePush();
  push.header.set_compression(CompressionSpec::TOP_K);
  EXPECT_THAT(ErrorOf(push, layout),
              HasSubstr("push.compression is TOP_K, the job's is INT8"));
  push = MakePush();
  push.header.clear_compression();
  EXPECT_THAT(ErrorOf(push, layout), HasSubstr("is NONE, the job's is INT8"));
  push = MakePush();
  EXPECT_THAT(ErrorOf(push, Layout({})),
              HasSubstr("is INT8, the job's is NONE"));
  // The sizes must not pass for each other's by an overflow.
  push = MakePush();
  push.header.set_block_bytes(0, 0xffffffff);
  push.header.set_block_bytes(1, 0xffffffff);
  EXPECT_THAT(ErrorOf(push, layout), HasSubstr("the payload has"));
}

// Its sizes fit the payload, which has no source.
TEST(CompressedPayloadTest, RefusesABlockWithoutBytes) {
  const ShardLayout layout = Layout();
  PushHeader header;
  header.set_sample_count(1);
  header.set_blocks_in_clock(3);
  header.set_compression(CompressionSpec::INT8);
  header.add_blocks(1);
  header.add_block_bytes(0);
  const PayloadPart nothing = {};
  const auto checked = layout.CheckPush(header, nothing);
  ASSERT_TRUE(checked.ok()) << checked.status();
  const auto source =
      ReadCompressedBlocks(header, checked->facts.blocks, layout, nothing);
  EXPECT_TRUE(absl::IsInvalidArgument(source.status()));
  EXPECT_THAT(std::string(source.status().message()),
              HasSubstr("compressed block 1: has 0 bytes"));
}

// A close brings no block, and is not compressed.
TEST(CompressedPayloadTest, AnEmptyCloseIsAsEver) {
  PushHeader header;
  EXPECT_TRUE(Layout().CheckPush(header, {}).ok());
}

}  // namespace
}  // namespace syncline::ps
