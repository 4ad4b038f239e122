// Goal: frames survive any cutting into slices, are valid protobuf messages,
// and nothing malformed gets through.
// Method: round trips with random cuts; every truncation and single-byte
// change of a small frame; hand-made hostile ones.

#include "common/wire/frame.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

std::string Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// As the network may deliver it: cut anywhere, empty slices included.
grpc::ByteBuffer CutAtRandom(const std::string& bytes, Random* random) {
  std::vector<grpc::Slice> slices;
  const size_t longest = 1 + random->Below(bytes.size() + 1);
  for (size_t at = 0; at < bytes.size();) {
    const size_t n =
        std::min<size_t>(random->Below(longest + 1), bytes.size() - at);
    slices.emplace_back(bytes.substr(at, n));
    at += n;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer Whole(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status Decode(const std::string& bytes) {
  PushPullHeader header;
  PayloadView payload;
  return DecodeFrame(Whole(bytes), &header, &payload);
}

PushPullHeader SampleHeader() {
  PushPullHeader header;
  header.mutable_push()->mutable_caller()->set_job_id("j-0001");
  header.mutable_push()->set_clock(17);
  for (uint32_t id : {2, 3, 300}) {
    header.mutable_push()->add_blocks(id);
    header.mutable_pull()->add_blocks(id);
  }
  return header;
}

TEST(FrameTest, RoundTripsWhateverTheCut) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    std::string values(random.Below(5000), '\0');
    for (char& c : values) c = static_cast<char>(random.Next());
    const PushPullHeader sent = SampleHeader();
    const std::string bytes = Flatten(EncodeFrame(sent, {grpc::Slice(values)}));

    PushPullHeader header;
    PayloadView payload;
    const absl::Status decoded =
        DecodeFrame(CutAtRandom(bytes, &random), &header, &payload);
    ASSERT_TRUE(decoded.ok()) << decoded;
    ASSERT_EQ(header.SerializeAsString(), sent.SerializeAsString());
    ASSERT_EQ(payload.size_bytes(), values.size());
    for (int i = 0; i < 20; ++i) {
      const size_t offset = random.Below(values.size() + 1);
      const size_t size = random.Below(values.size() - offset + 1);
      std::string out(size, '\0');
      payload.CopyTo(offset, size, out.data());
      ASSERT_EQ(out, values.substr(offset, size));
    }
  }
}

TEST(FrameTest, IsAnOrdinaryProtobufMessage) {
  const std::string bytes = Flatten(EncodeFrame(
      SampleHeader(), {grpc::Slice("abcd"), grpc::Slice("efghijkl")}));
  PushPullRequest request;
  ASSERT_TRUE(request.ParseFromString(bytes));
  EXPECT_EQ(request.payload(), "abcdefghijkl");
  EXPECT_EQ(request.header().push().clock(), 17);
  EXPECT_EQ(request.SerializeAsString(), bytes);
}

TEST(FrameTest, TheDrawnLayout) {
  InitHeader header;
  header.add_blocks(5);  // 12 01 05
  EXPECT_EQ(Flatten(EncodeFrame(header, {grpc::Slice("xy")})),
            std::string("\x0a\x03\x12\x01\x05\x12\x02xy", 9));
  EXPECT_EQ(Flatten(EncodeFrame(InitHeader(), {})), std::string("\x0a\x00", 2));
}

TEST(FrameTest, PayloadIsSharedNotCopied) {
  std::string values(100000, 'v');
  std::vector<grpc::Slice> slices;
  slices.emplace_back(values.data(), values.size(), grpc::Slice::STATIC_SLICE);
  const grpc::ByteBuffer frame = EncodeFrame(SampleHeader(), std::move(slices));
  std::vector<grpc::Slice> sent;
  ASSERT_TRUE(frame.Dump(&sent).ok());
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[1].begin(), reinterpret_cast<const uint8_t*>(values.data()));
}

TEST(FrameTest, NoTruncationPasses) {
  const std::string bytes =
      Flatten(EncodeFrame(SampleHeader(), {grpc::Slice("abcdefgh")}));
  ASSERT_TRUE(Decode(bytes).ok());
  const size_t header_end = bytes.size() - 10;
  for (size_t size = 0; size < bytes.size(); ++size) {
    SCOPED_TRACE(absl::StrCat("size=", size));
    // Cut right after the header it is a complete frame without a payload.
    EXPECT_EQ(Decode(bytes.substr(0, size)).ok(), size == header_end);
  }
  EXPECT_FALSE(Decode(bytes + "z").ok());
}

TEST(FrameTest, ChangedBytesNeverBreakTheBounds) {
  const std::string bytes =
      Flatten(EncodeFrame(SampleHeader(), {grpc::Slice("abcdefgh")}));
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(value);
      PushPullHeader header;
      PayloadView payload;
      if (!DecodeFrame(Whole(changed), &header, &payload).ok()) continue;
      std::string out(payload.size_bytes(), '\0');
      payload.CopyTo(0, out.size(), out.data());
      ASSERT_LE(out.size(), bytes.size());
    }
  }
}

TEST(FrameTest, SaysWhatIsWrong) {
  const auto message = [](std::string bytes) {
    const absl::Status status = Decode(bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message(""), HasSubstr("does not start with a header"));
  EXPECT_THAT(message("\x12\x01x"), HasSubstr("does not start with a header"));
  EXPECT_THAT(message("\x0a\xff\xff\xff\xff\xff\xff\x01"),
              HasSubstr("unreadable header size"));
  EXPECT_THAT(message("\x0a\xff\xff\xff\xff\x0f"),
              HasSubstr("a header of 4294967295 bytes, at most 65536"));
  EXPECT_THAT(message("\x0a\x05zz"), HasSubstr("5 bytes, but 2 are left"));
  EXPECT_THAT(message("\x0a\x01\xff"), HasSubstr("does not parse"));
  const std::string empty_header("\x0a\x00", 2);
  EXPECT_THAT(message(empty_header + "\x22\x01x"),
              HasSubstr("something other than a payload"));
  EXPECT_THAT(message(empty_header + "\x1a\x01x"),
              HasSubstr("the shared part does not parse"));
  EXPECT_THAT(message(empty_header + std::string("\x1a\x02\x12\x00", 4)),
              HasSubstr("shared memory where there is none"));
  EXPECT_THAT(
      message(empty_header + std::string("\x1a\x02\x0a\x00", 4) + "\x12\x01x"),
      HasSubstr("a payload in shared memory and another one"));
  EXPECT_THAT(message(empty_header + "\x1a"), HasSubstr("shared part size"));
  EXPECT_THAT(message(empty_header + "\x12"), HasSubstr("payload size"));
  EXPECT_THAT(message(empty_header + "\x12\x05xy"),
              HasSubstr("a payload of 5 bytes, but 2 are left"));
  EXPECT_THAT(message(empty_header + "\x12\x01xy"),
              HasSubstr("a payload of 1 bytes, but 2 are left"));
}

SharedMemory SampleShared() {
  SharedMemory shared;
  for (uint64_t i = 1; i <= 3; ++i) {
    SharedRange* const range = shared.add_payload();
    range->set_region(0xfedcba9876543210 + i);
    range->set_offset(i << 33);
    range->set_size(i);
  }
  shared.mutable_answer()->set_region(7);
  return shared;
}

TEST(FrameTest, SharedMemoryTakesThePlaceOfThePayload) {
  const PushPullHeader sent = SampleHeader();
  auto parts = SplitFrame(EncodeFrame(sent, {grpc::Slice("abcdefgh")}));
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->header, sent.SerializeAsString());
  ASSERT_EQ(parts->payload.size(), 1u);
  parts->payload.clear();
  parts->shared = SampleShared();
  const grpc::ByteBuffer frame = JoinFrame(*std::move(parts));

  PushPullRequest request;
  ASSERT_TRUE(request.ParseFromString(Flatten(frame)));
  EXPECT_EQ(request.shared().SerializeAsString(),
            SampleShared().SerializeAsString());
  EXPECT_FALSE(Decode(Flatten(frame)).ok());
  PushPullHeader header;
  PayloadView payload;
  SharedMemory shared;
  const absl::Status decoded = DecodeFrame(frame, &header, &payload, &shared);
  ASSERT_TRUE(decoded.ok()) << decoded;
  EXPECT_EQ(header.SerializeAsString(), sent.SerializeAsString());
  EXPECT_EQ(shared.SerializeAsString(), SampleShared().SerializeAsString());
  EXPECT_EQ(payload.size_bytes(), 0u);
}

TEST(FrameTest, AnAnswerMayBeSharedWhereThePayloadIsNot) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Random random(seed);
    FrameParts parts;
    parts.header = SampleHeader().SerializeAsString();
    parts.shared.mutable_answer()->set_size(4096);
    parts.payload.emplace_back("abcdefgh");
    const std::string bytes = Flatten(JoinFrame(parts));
    const auto again = SplitFrame(CutAtRandom(bytes, &random));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->header, parts.header);
    EXPECT_EQ(again->shared.answer().size(), 4096u);
    EXPECT_EQ(Flatten(JoinFrame(*again)), bytes);
  }
}

TEST(FrameTest, TheLargestChunkFitsTheReceiveLimit) {
  constexpr size_t kReceiveLimit = 4194304;  // gRPC's default
  PushPullHeader header = SampleHeader();
  // A chunk of the smallest blocks has the longest header.
  for (uint32_t id = 0; id < kChunkBytesMax / 4096; ++id) {
    header.mutable_push()->add_blocks(0xffffffff);
    header.mutable_pull()->add_blocks(0xffffffff);
  }
  const std::string values(kChunkBytesMax, 'v');
  EXPECT_LE(EncodeFrame(header, {grpc::Slice(values)}).Length(), kReceiveLimit);
}

}  // namespace
}  // namespace syncline
