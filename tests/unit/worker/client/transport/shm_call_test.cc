// Goal: memory that the ps might still use is never handed out again, and what
// it claims of an answer is checked.
// Method: the ps's side by hand, at each way in which an attempt can end.

#include "worker/client/transport/shm_call.h"

#include <cstring>
#include <string>

#include "absl/strings/cord.h"
#include "common/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "worker/client/transport/shared_link.h"

namespace syncline::worker {
namespace {

constexpr size_t kPage = AreaAllocator::kAlignment;
constexpr uint64_t kName = 77;

class ShmCallTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(region_, SharedRegion::Create(16 * kPage));
    link_ = std::make_shared<SharedLink>(region_, kName, FileDescriptor());
    header_.set_clock(3);
    request_ = EncodeFrame(header_, {grpc::Slice("abcd"), grpc::Slice("efgh")});
  }

  // The part of an attempt that the ps reads.
  SharedMemory Sent(const grpc::ByteBuffer& message) {
    PushHeader header;
    PayloadView payload;
    SharedMemory shared;
    EXPECT_OK(DecodeFrame(message, &header, &payload, &shared));
    EXPECT_EQ(header.clock(), 3);
    EXPECT_EQ(payload.size_bytes(), 0u);
    return shared;
  }
  SharedMemory Prepare(size_t answer_bytes) {
    const auto message = route_.Prepare(link_, request_, answer_bytes);
    EXPECT_TRUE(message.has_value());
    return message.has_value() ? Sent(*message) : SharedMemory();
  }
  static grpc::ByteBuffer Answer(const SharedMemory& shared) {
    return JoinFrame({.header = "", .shared = shared, .payload = {}});
  }
  static absl::Status Ended(absl::Status status, absl::string_view detail) {
    status.SetPayload(kSharedMemoryDetail, absl::Cord(detail));
    return status;
  }

  std::shared_ptr<SharedRegion> region_;
  std::shared_ptr<SharedLink> link_;
  ShmCall route_;
  PushHeader header_;
  grpc::ByteBuffer request_;
};

TEST_F(ShmCallTest, ThePayloadIsInMemoryAndTheAnswerIsTheArea) {
  const SharedMemory sent = Prepare(6);
  ASSERT_EQ(sent.payload_size(), 1);
  EXPECT_EQ(sent.payload(0).region(), kName);
  EXPECT_EQ(sent.payload(0).size(), 8u);
  EXPECT_EQ(
      std::memcmp(region_->data() + sent.payload(0).offset(), "abcdefgh", 8),
      0);
  std::memcpy(region_->data() + sent.answer().offset(), "answer", 6);
  SharedMemory written;
  *written.add_payload() = sent.answer();
  grpc::ByteBuffer response = Answer(written);
  ASSERT_OK_AND_ASSIGN(const size_t bytes, route_.TakeAnswer(&response));
  EXPECT_EQ(bytes, 6u);
  {
    ASSERT_OK_AND_ASSIGN(const FrameParts parts, SplitFrame(response));
    ASSERT_EQ(parts.payload.size(), 1u);
    EXPECT_EQ(parts.payload[0].begin(),
              region_->data() + sent.answer().offset());
  }
  route_.Clear();
  EXPECT_EQ(link_->used_bytes(), kPage);  // the answer's, until it was read
  response.Clear();
  EXPECT_EQ(link_->used_bytes(), 0u);
}

TEST_F(ShmCallTest, AnAnswerMayAlsoTravel) {
  Prepare(6);
  grpc::ByteBuffer response = EncodeFrame(header_, {grpc::Slice("answer")});
  ASSERT_OK_AND_ASSIGN(const size_t bytes, route_.TakeAnswer(&response));
  EXPECT_EQ(bytes, 0u);
  route_.Clear();
  EXPECT_EQ(link_->used_bytes(), 0u);
}

TEST_F(ShmCallTest, AnAnswerThatClaimsToBeElsewhereIsRefused) {
  const SharedRange offered = Prepare(4096).answer();
  const auto refused = [&](auto change) {
    ShmCall route;
    const auto message = route.Prepare(link_, request_, 4096);
    SharedMemory written;
    *written.add_payload() = Sent(*message).answer();
    change(&written);
    grpc::ByteBuffer response = Answer(written);
    return route.TakeAnswer(&response).status().code();
  };
  using Shared = SharedMemory;
  EXPECT_EQ(refused([](Shared* s) { s->mutable_payload(0)->set_region(1); }),
            absl::StatusCode::kInternal);
  EXPECT_EQ(refused([](Shared* s) { s->mutable_payload(0)->set_offset(0); }),
            absl::StatusCode::kInternal);
  EXPECT_EQ(refused([](Shared* s) { s->mutable_payload(0)->set_size(4097); }),
            absl::StatusCode::kInternal);
  EXPECT_EQ(refused([](Shared* s) { *s->add_payload() = s->payload(0); }),
            absl::StatusCode::kInternal);
  EXPECT_EQ(refused([](Shared*) {}), absl::StatusCode::kOk);
  EXPECT_EQ(offered.size(), 4096u);
}

TEST_F(ShmCallTest, AnErrorOfThePsFreesTheAnswerArea) {
  const SharedRange payload = Prepare(kPage).payload(0);
  EXPECT_TRUE(
      route_.OnError(Ended(absl::DeadlineExceededError("parked"), "ended")));
  EXPECT_EQ(link_->used_bytes(), kPage);  // the payload's
  // The next attempt has the same payload and may have the same area.
  const SharedMemory again = Prepare(kPage);
  EXPECT_EQ(again.payload(0).offset(), payload.offset());
  route_.Clear();
  EXPECT_EQ(link_->used_bytes(), kPage);  // lost: that attempt never ended
}

TEST_F(ShmCallTest, AnErrorOfGrpcLosesTheAnswerArea) {
  const SharedRange first = Prepare(kPage).answer();
  EXPECT_TRUE(route_.OnError(absl::DeadlineExceededError("here")));
  const SharedRange second = Prepare(kPage).answer();
  EXPECT_NE(first.offset(), second.offset());
  EXPECT_FALSE(link_->worn_out());
  EXPECT_TRUE(route_.OnError(absl::UnavailableError("gone")));
  Prepare(2 * kPage);
  EXPECT_TRUE(route_.OnError(absl::UnavailableError("gone")));
  Prepare(kPage);
  EXPECT_FALSE(route_.OnError(absl::UnavailableError("gone")));
  EXPECT_TRUE(link_->worn_out());
  route_.Clear();
  EXPECT_EQ(link_->used_bytes(), 5 * kPage);
}

TEST_F(ShmCallTest, APsThatForgotTheMemoryEndsTheLink) {
  Prepare(kPage);
  EXPECT_FALSE(
      route_.OnError(Ended(absl::FailedPreconditionError("?"), "unknown")));
}

TEST_F(ShmCallTest, APayloadStaysWhereAnAttemptMayReadIt) {
  Prepare(kPage);
  EXPECT_TRUE(route_.OnError(absl::UnavailableError("gone")));
  ASSERT_OK_AND_ASSIGN(const auto region, SharedRegion::Create(16 * kPage));
  const auto other = std::make_shared<SharedLink>(region, 5, FileDescriptor());
  ASSERT_TRUE(route_.Prepare(other, request_, 0).has_value());
  EXPECT_EQ(other->used_bytes(), kPage);
  EXPECT_EQ(link_->used_bytes(), 2 * kPage);
  route_.Clear();
  EXPECT_EQ(other->used_bytes(), 0u);
  EXPECT_EQ(link_->used_bytes(), kPage);
}

TEST_F(ShmCallTest, APayloadThatThePsCanReadIsNotCopied) {
  ASSERT_OK_AND_ASSIGN(const auto gradients, SharedRegion::Create(64 * kPage));
  link_->AddPayloads(gradients, 78, FileDescriptor());
  const auto part = [&](size_t offset, size_t size) {
    return grpc::Slice(gradients->data() + offset, size,
                       grpc::Slice::STATIC_SLICE);
  };
  const auto sent = [&](std::vector<grpc::Slice> parts) {
    ShmCall route;
    request_ = EncodeFrame(header_, std::move(parts));
    return Sent(*route.Prepare(link_, request_, 0));
  };
  const SharedMemory in_place =
      sent({part(5 * kPage, 4 * kPage), part(64, 3 * kPage)});
  ASSERT_EQ(in_place.payload_size(), 2);
  EXPECT_EQ(in_place.payload(0).region(), 78u);
  EXPECT_EQ(in_place.payload(0).offset(), 5 * kPage);
  EXPECT_EQ(in_place.payload(1).offset(), 64u);
  EXPECT_EQ(in_place.payload(1).size(), 3 * kPage);
  // Many small ones cost less in one piece; others are not there at all.
  const SharedMemory small = sent({part(0, 4), part(64, 4)});
  ASSERT_EQ(small.payload_size(), 1);
  EXPECT_EQ(small.payload(0).region(), kName);
  const std::string elsewhere(4 * kPage, 'x');
  const SharedMemory mixed = sent({part(0, 4 * kPage), grpc::Slice(elsewhere)});
  ASSERT_EQ(mixed.payload_size(), 1);
  EXPECT_EQ(mixed.payload(0).region(), kName);
}

TEST_F(ShmCallTest, WithoutRoomTheCallTravels) {
  SharedLink::Area most = link_->Allocate(15 * kPage);
  ASSERT_TRUE(most);
  EXPECT_FALSE(route_.Prepare(link_, request_, kPage).has_value());
  EXPECT_TRUE(route_.Prepare(link_, request_, 0).has_value());
  most = SharedLink::Area();
  EXPECT_TRUE(route_.Prepare(link_, request_, kPage).has_value());
}

}  // namespace
}  // namespace syncline::worker
