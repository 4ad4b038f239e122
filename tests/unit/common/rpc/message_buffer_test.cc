// Goal: a message comes out of a buffer as it went in, in however many slices
// it arrives, and other bytes are refused. Method: round trips.

#include "common/rpc/message_buffer.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/cluster.pb.h"

namespace syncline {
namespace {

Member Example() {
  Member member;
  member.set_address("10.0.0.7:4000");
  member.set_incarnation(0x9f3c);
  return member;
}

TEST(MessageBufferTest, AMessageComesBack) {
  Member read;
  ASSERT_TRUE(FromByteBuffer(ToByteBuffer(Example()), &read));
  EXPECT_EQ(read.SerializeAsString(), Example().SerializeAsString());
}

TEST(MessageBufferTest, AnEmptyMessageComesBack) {
  Member read = Example();
  ASSERT_TRUE(FromByteBuffer(ToByteBuffer(Member()), &read));
  EXPECT_EQ(read.SerializeAsString(), "");
}

TEST(MessageBufferTest, SlicesAreJoined) {
  const std::string bytes = Example().SerializeAsString();
  std::vector<grpc::Slice> slices;
  for (const char byte : bytes) slices.emplace_back(std::string(1, byte));
  Member read;
  ASSERT_TRUE(
      FromByteBuffer(grpc::ByteBuffer(slices.data(), slices.size()), &read));
  EXPECT_EQ(read.SerializeAsString(), bytes);
}

TEST(MessageBufferTest, OtherBytesAreRefused) {
  const grpc::Slice cut("\x0a\x7f");  // a field of 127 bytes that do not follow
  Member read;
  EXPECT_FALSE(FromByteBuffer(grpc::ByteBuffer(&cut, 1), &read));
  EXPECT_FALSE(FromByteBuffer(grpc::ByteBuffer(), &read));  // has no bytes
}

}  // namespace
}  // namespace syncline
