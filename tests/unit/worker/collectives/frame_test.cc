// Frame headers: the drawn layout, every header there and back, and every byte
// changed.

#include "worker/collectives/frame.h"

#include <array>
#include <string>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using Bytes = std::array<uint8_t, kFrameHeaderBytes>;

FrameHeader SomeData() {
  FrameHeader header;
  header.type = FrameHeader::Type::kData;
  header.length = 36;
  header.epoch = 7;
  header.tag = {0x0102030405060708, 0x11121314, 0x21222324};
  header.size = 100;
  header.offset = 64;
  return header;
}

TEST(FrameTest, TheLayoutIsTheOneThatTheReadmeDraws) {
  Bytes bytes;
  EncodeFrameHeader(SomeData(), bytes.data());
  EXPECT_EQ(std::string(bytes.begin(), bytes.begin() + 4), "SLPM");
  EXPECT_EQ(bytes[4], 1);
  EXPECT_EQ(bytes[8], 36);
  EXPECT_EQ(bytes[12], 0x14);
  EXPECT_EQ(bytes[15], 0x11);
  EXPECT_EQ(bytes[16], 7);
  EXPECT_EQ(bytes[24], 0x08);
  EXPECT_EQ(bytes[31], 0x01);
  EXPECT_EQ(bytes[32], 100);
  EXPECT_EQ(bytes[40], 64);
  EXPECT_EQ(bytes[48], 0x24);
  EXPECT_EQ(bytes[51], 0x21);
}

TEST(FrameTest, AHeaderComesBack) {
  Bytes bytes;
  EncodeFrameHeader(SomeData(), bytes.data());
  const auto read = DecodeFrameHeader(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->type, FrameHeader::Type::kData);
  EXPECT_EQ(read->length, 36u);
  EXPECT_EQ(read->epoch, 7u);
  EXPECT_EQ(read->tag, SomeData().tag);
  EXPECT_EQ(read->size, 100u);
  EXPECT_EQ(read->offset, 64u);
}

TEST(FrameTest, NoChangedBitIsAccepted) {
  Bytes bytes;
  EncodeFrameHeader(SomeData(), bytes.data());
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    Bytes changed = bytes;
    changed[i / 8] = static_cast<uint8_t>(changed[i / 8] ^ (1 << (i % 8)));
    EXPECT_EQ(DecodeFrameHeader(changed).status().code(),
              absl::StatusCode::kDataLoss)
        << "bit " << i;
  }
}

TEST(FrameTest, HeadersThatCannotBeAreRefused) {
  const auto refuses = [](FrameHeader header) {
    Bytes bytes;
    EncodeFrameHeader(header, bytes.data());
    return !DecodeFrameHeader(bytes).ok();
  };
  FrameHeader header = SomeData();
  EXPECT_FALSE(refuses(header));
  header.offset = 60;
  EXPECT_TRUE(refuses(header)) << "an odd offset";
  header = SomeData();
  header.length = 37;
  EXPECT_TRUE(refuses(header)) << "beyond its message";
  header = SomeData();
  header.offset = ~uint64_t{63};
  EXPECT_TRUE(refuses(header)) << "an offset that overflows";
  header = SomeData();
  header.size = ~uint64_t{0};
  header.length = kFramePayloadMax + 64;
  EXPECT_TRUE(refuses(header)) << "too long";
  header = SomeData();
  header.length = 0;
  EXPECT_TRUE(refuses(header)) << "empty in a message that is not";
  header = SomeData();
  header.size = 1000;
  EXPECT_TRUE(refuses(header)) << "an odd length before the end";
  header = SomeData();
  header.type = FrameHeader::Type::kReady;
  EXPECT_TRUE(refuses(header)) << "a kReady with a payload";
  header = SomeData();
  header.type = FrameHeader::Type::kBye;
  header.length = kByeTextMax + 1;
  EXPECT_TRUE(refuses(header)) << "a long kBye";
  EXPECT_FALSE(DecodeFrameHeader({}).ok());
}

TEST(FrameTest, GarbageIsRefused) {
  Random random(1);
  Bytes bytes;
  for (int i = 0; i < 100'000; ++i) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
    EXPECT_FALSE(DecodeFrameHeader(bytes).ok());
  }
}

}  // namespace
}  // namespace syncline::worker
