// One side of a channel, fed with what the other one sends: orders and losses
// are the simulation's (tests/simulation/collectives_test.cc).

#include "worker/collectives/peer_channel.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;

constexpr PeerTag kTag = {3, 64, 9};

PeerGroup SomeGroup() {
  PeerGroup group;
  group.job = "j-0001";
  group.epoch = 4;
  group.peers = {{"worker:0", "a:1"}, {"worker:1", "b:2"}};
  return group;
}

absl::Time At(int seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

class PeerChannelTest : public ::testing::Test {
 protected:
  void Send(size_t bytes, const PeerTag& tag = kTag) {
    out_.resize(bytes, 7);
    const ConstPeerMemory piece = {out_.data(), out_.size()};
    channel_.Send(tag, {&piece, 1}, At(10),
                  [this](absl::Status s) { sent_.push_back(s); });
  }
  void Receive(size_t bytes) {
    in_.resize(bytes);
    channel_.Receive(kTag, {in_.data(), in_.size()}, At(10), nullptr,
                     [this](absl::Status s) { received_.push_back(s); });
  }
  void Feed(FrameHeader header, size_t payload = 0) {
    std::vector<uint8_t> bytes(kFrameHeaderBytes + PaddedFrameBytes(payload));
    EncodeFrameHeader(header, bytes.data());
    const size_t taken = channel_.OnInput(bytes);
    if (channel_.failure().ok()) {
      EXPECT_EQ(taken, bytes.size());
    }
  }
  FrameHeader Data(uint64_t size, uint64_t offset, uint32_t length) const {
    FrameHeader header;
    header.epoch = 4;
    header.tag = kTag;
    header.size = size;
    header.offset = offset;
    header.length = length;
    return header;
  }
  FrameHeader Ready(uint64_t size) const {
    FrameHeader header = Data(size, 0, 0);
    header.type = FrameHeader::Type::kReady;
    return header;
  }
  // Writes everything; returns the headers that were written.
  std::vector<FrameHeader> Write() {
    std::vector<uint8_t> bytes;
    while (true) {
      const auto output = channel_.Output(4);
      if (output.empty()) break;
      size_t written = 0;
      for (const auto& piece : output) {
        bytes.insert(bytes.end(), piece.begin(), piece.end());
        written += piece.size();
      }
      channel_.OnWritten(written);
    }
    std::vector<FrameHeader> headers;
    for (size_t at = 0; at < bytes.size();) {
      const auto header = DecodeFrameHeader(absl::MakeSpan(bytes).subspan(at));
      EXPECT_TRUE(header.ok()) << header.status();
      if (!header.ok()) break;
      headers.push_back(*header);
      at += kFrameHeaderBytes + PaddedFrameBytes(header->length);
    }
    Run();
    return headers;
  }
  void Run() {
    for (auto& [done, status] : channel_.TakeCompleted()) done(status);
  }

  const PeerGroup group_ = SomeGroup();
  PeerChannel channel_{&group_, 1};
  std::vector<uint8_t> out_;
  std::vector<uint8_t> in_;
  std::vector<absl::Status> sent_;
  std::vector<absl::Status> received_;
};

TEST_F(PeerChannelTest, ALongMessageWaitsUntilItIsAskedFor) {
  Send(600'000);
  EXPECT_TRUE(Write().empty());
  Feed(Ready(600'000));
  const auto headers = Write();
  ASSERT_EQ(headers.size(), 3u);
  EXPECT_EQ(headers[1].offset, kFramePayloadMax);
  EXPECT_EQ(headers[2].length, 600'000 - 2 * kFramePayloadMax);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(sent_[0].ok());
}

TEST_F(PeerChannelTest, ShortMessagesGoAtOnceUntilTooManyAreUnasked) {
  constexpr size_t kMost = PeerChannel::kEagerBytes / PeerChannel::kEagerMax;
  for (uint32_t i = 0; i < kMost + 3; ++i) {
    Send(PeerChannel::kEagerMax, {3, 64, i});
  }
  EXPECT_EQ(Write().size(), kMost);
  FrameHeader ready = Ready(PeerChannel::kEagerMax);
  ready.tag.item = kMost + 1;
  Feed(ready);
  EXPECT_EQ(Write().size(), 1u);
  EXPECT_EQ(sent_.size(), kMost + 1);
}

TEST_F(PeerChannelTest, AMessageThatCameBeforeItsReceiveIsKept) {
  Feed(Data(100, 0, 100), 100);
  EXPECT_EQ(channel_.parked_bytes(), 100u);
  Receive(100);
  Run();
  EXPECT_EQ(received_.size(), 1u);
  EXPECT_EQ(channel_.parked_bytes(), 0u);
  EXPECT_EQ(Write().size(), 1u) << "the sender hears that it was taken";
}

TEST_F(PeerChannelTest, WhatWasNotAskedForIsBounded) {
  for (uint32_t i = 0; i < 10'000 && channel_.failure().ok(); ++i) {
    FrameHeader header = Data(8192, 0, 8192);
    header.tag.item = i;
    Feed(header, 8192);
  }
  EXPECT_EQ(channel_.failure().code(), absl::StatusCode::kDataLoss);
  EXPECT_LE(channel_.parked_bytes(), PeerChannel::kParkedBytesMax);
}

TEST_F(PeerChannelTest, FramesThatNobodyAskedForAreRefused) {
  Feed(Data(100'000, 0, 64), 64);
  EXPECT_EQ(channel_.failure().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(channel_.failure().message()),
              HasSubstr("rank 1 (worker:1 at b:2)"));
}

TEST_F(PeerChannelTest, APartThatIsNotTheNextIsRefused) {
  Receive(1000);
  Feed(Data(1000, 128, 64), 64);
  EXPECT_EQ(channel_.failure().code(), absl::StatusCode::kDataLoss);
}

TEST_F(PeerChannelTest, AskingTwiceIsRefused) {
  Feed(Ready(10));
  Feed(Ready(10));
  EXPECT_EQ(channel_.failure().code(), absl::StatusCode::kDataLoss);
}

// Before the message has begun: it would be sent, and freed, twice.
TEST_F(PeerChannelTest, AskingTwiceForAMessageIsRefused) {
  Send(100'000);
  Feed(Ready(100'000));
  EXPECT_EQ(channel_.failure(), absl::OkStatus());
  Feed(Ready(100'000));
  EXPECT_EQ(channel_.failure().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(channel_.failure().message()),
              HasSubstr("rank 1 (worker:1 at b:2) asked twice for message"));
}

TEST_F(PeerChannelTest, AskingAgainForAMessageThatWasAwaitedIsRefused) {
  Feed(Ready(100'000));
  Send(100'000);
  EXPECT_EQ(channel_.failure(), absl::OkStatus());
  Feed(Ready(100'000));
  EXPECT_EQ(channel_.failure().code(), absl::StatusCode::kDataLoss);
}

TEST_F(PeerChannelTest, AskingTwiceForAMessageThatGoesUnaskedIsRefused) {
  Send(100);
  Feed(Ready(100));
  EXPECT_EQ(channel_.failure(), absl::OkStatus());
  Feed(Ready(100));
  EXPECT_EQ(channel_.failure().code(), absl::StatusCode::kDataLoss);
}

TEST_F(PeerChannelTest, AnotherEpochEndsTheGroup) {
  FrameHeader header = Ready(1);
  header.epoch = 5;
  Feed(header);
  EXPECT_EQ(channel_.failure().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(channel_.failure().message()),
              HasSubstr("epoch 5, this is 4"));
}

TEST_F(PeerChannelTest, ADeadlineNamesWhatIsMissing) {
  Receive(1000);
  Feed(Data(1000, 0, 64), 64);
  channel_.OnTime(At(9));
  EXPECT_TRUE(channel_.failure().ok());
  EXPECT_EQ(channel_.next_deadline(), At(10));
  channel_.OnTime(At(10));
  EXPECT_EQ(channel_.failure().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(channel_.failure().message()),
              HasSubstr("64 of 1000 bytes"));
  EXPECT_THAT(std::string(channel_.failure().message()),
              HasSubstr("clock 3, kind 64, item 9"));
}

TEST_F(PeerChannelTest, NothingTouchesMemoryAfterTheEnd) {
  Send(600'000);
  Receive(1000);
  Feed(Ready(600'000));
  ASSERT_FALSE(channel_.Output(4).empty());
  channel_.OnWritten(kFrameHeaderBytes);  // a kReady
  ASSERT_FALSE(channel_.Output(4).empty());
  channel_.OnWritten(100);  // within a frame of the caller's memory
  channel_.Fail(absl::CancelledError("over"));
  Run();
  ASSERT_EQ(sent_.size() + received_.size(), 2u);
  EXPECT_FALSE(channel_.has_output()) << "no frame can follow half of one";
  Feed(Data(1000, 0, 1000), 1000);
  EXPECT_EQ(in_, std::vector<uint8_t>(1000)) << "written after the end";
  Receive(10);
  Run();
  EXPECT_EQ(received_.back().message(), "over");
}

TEST_F(PeerChannelTest, TheLastFrameSaysWhyARankLeaves) {
  Receive(1000);
  channel_.Fail(absl::CancelledError("over"));
  const auto headers = Write();
  ASSERT_EQ(headers.size(), 1u);
  EXPECT_EQ(headers[0].type, FrameHeader::Type::kBye);
  EXPECT_EQ(headers[0].tag.kind,
            static_cast<uint32_t>(absl::StatusCode::kCancelled));
}

// Why it has closed is its own to report: to others it is lost, until then.
TEST_F(PeerChannelTest, ARankThatClosesIsUnavailableAndOthersKeepTheirCode) {
  const struct {
    absl::Status said;
    absl::StatusCode heard;
  } kCases[] = {
      {absl::CancelledError("over"), absl::StatusCode::kUnavailable},
      {absl::FailedPreconditionError("over"),
       absl::StatusCode::kFailedPrecondition},
  };
  for (const auto& c : kCases) {
    PeerGroup other_group = SomeGroup();
    other_group.rank = 1;
    PeerChannel other(&other_group, 0);
    other.Fail(c.said);
    std::vector<uint8_t> bytes;
    for (const auto& piece : other.Output(4)) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    }
    PeerChannel channel(&group_, 1);
    channel.OnInput(bytes);
    EXPECT_EQ(channel.failure().code(), c.heard);
    EXPECT_THAT(std::string(channel.failure().message()),
                HasSubstr("rank 1 (worker:1 at b:2) has left: over"));
  }
}

TEST_F(PeerChannelTest, AnySplitOfTheStreamIsRead) {
  std::vector<uint8_t> stream;
  const auto add = [&](const FrameHeader& header, size_t payload) {
    const size_t at = stream.size();
    stream.resize(at + kFrameHeaderBytes + PaddedFrameBytes(payload));
    EncodeFrameHeader(header, stream.data() + at);
    for (size_t i = 0; i < payload; ++i) {
      stream[at + kFrameHeaderBytes + i] =
          static_cast<uint8_t>(header.offset + i);
    }
  };
  add(Data(200, 0, 128), 128);
  add(Data(200, 128, 72), 72);
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    PeerChannel channel(&group_, 1);
    std::vector<uint8_t> in(200);
    int calls = 0;
    channel.Receive(kTag, {in.data(), in.size()}, At(1), nullptr,
                    [&](absl::Status s) { calls += s.ok() ? 1 : 100; });
    const absl::Span<const uint8_t> all = stream;
    size_t taken = channel.OnInput(all.subspan(0, cut));
    taken += channel.OnInput(all.subspan(taken));
    EXPECT_EQ(taken, stream.size());
    for (auto& [done, status] : channel.TakeCompleted()) done(status);
    EXPECT_EQ(calls, 1);
    for (size_t i = 0; i < 200; ++i) ASSERT_EQ(in[i], i);
  }
}

TEST_F(PeerChannelTest, ASwapNeedsNoAsking) {
  out_.assign(100, 7);
  in_.assign(100, 0);
  ASSERT_TRUE(channel_.can_swap());
  channel_.StartSwap(kTag, out_, in_.data());
  EXPECT_FALSE(channel_.swap_has_come());
  FrameHeader header = Data(100, 0, 100);
  header.type = FrameHeader::Type::kSwap;
  Feed(header, 100);
  EXPECT_TRUE(channel_.swap_has_come());
  EXPECT_EQ(Write().size(), 1u);
  // One that came before.
  header.tag.item = 10;
  Feed(header, 100);
  channel_.StartSwap(header.tag, out_, in_.data());
  EXPECT_TRUE(channel_.swap_has_come());
  EXPECT_EQ(channel_.parked_bytes(), 0u);
}

TEST_F(PeerChannelTest, ASwapThatWasParkedLeavesAHalfReceivedMessageAlone) {
  out_.assign(100, 7);
  in_.assign(100, 0);
  FrameHeader swap = Data(100, 0, 100);
  swap.type = FrameHeader::Type::kSwap;
  swap.tag.item = 10;
  Feed(swap, 100);
  // Half of a message that nobody waits for yet.
  std::vector<uint8_t> bytes(kFrameHeaderBytes + 128, 5);
  EncodeFrameHeader(Data(128, 0, 128), bytes.data());
  const absl::Span<const uint8_t> all = bytes;
  EXPECT_EQ(channel_.OnInput(all.subspan(0, kFrameHeaderBytes + 64)),
            kFrameHeaderBytes + 64);
  channel_.StartSwap(swap.tag, out_, in_.data());
  EXPECT_TRUE(channel_.swap_has_come());
  channel_.OnInput(all.subspan(kFrameHeaderBytes + 64));
  ASSERT_EQ(channel_.failure(), absl::OkStatus());
  Receive(128);
  Run();
  ASSERT_EQ(received_.size(), 1u);
  EXPECT_EQ(received_[0], absl::OkStatus());
  EXPECT_EQ(in_, std::vector<uint8_t>(128, 5));
}

}  // namespace
}  // namespace syncline::worker
