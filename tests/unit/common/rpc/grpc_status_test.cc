// Goal: codes, messages and payloads survive both ways, and nothing grows
// beyond what a trailer may hold. Method: round trips.

#include "common/rpc/grpc_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

TEST(GrpcStatusTest, EveryCodeSurvives) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code),
                              code == 0 ? "" : "why");
    EXPECT_EQ(ToGrpcStatus(status).error_code(), code);
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
  }
}

TEST(GrpcStatusTest, PayloadsSurvive) {
  absl::Status status = absl::AbortedError("stale route");
  status.SetPayload("syncline/routing_version",
                    absl::Cord(std::string("\0\x07", 2)));
  status.SetPayload("other", absl::Cord(""));
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
}

TEST(GrpcStatusTest, ForeignDetailsAreIgnored) {
  const grpc::Status foreign(grpc::StatusCode::ABORTED, "x",
                             "\xff not a proto");
  EXPECT_EQ(FromGrpcStatus(foreign), absl::AbortedError("x"));
}

// A server without the service says no more.
TEST(GrpcStatusTest, ACallThatIsNotThereIsSaidInWords) {
  const absl::Status status =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("does not have this call: it is another kind of"));
}

TEST(GrpcStatusTest, LongMessagesAreCutBetweenCharacters) {
  std::string message = "x";
  while (message.size() < 2 * kStatusBytesMax) message += "\xc3\xa4";
  const std::string cut =
      ToGrpcStatus(absl::InternalError(message)).error_message();
  EXPECT_LT(cut.size(), kStatusBytesMax + 64);
  EXPECT_THAT(cut, HasSubstr("\xc3\xa4 ... and "));
  EXPECT_THAT(cut, HasSubstr(" bytes more"));
}

TEST(GrpcStatusTest, BytesThatAreNoUtf8AreEscaped) {
  absl::Status status = absl::NotFoundError("Gr\xf6\xdf");
  status.SetPayload("type", absl::Cord("x"));
  const absl::Status received = FromGrpcStatus(ToGrpcStatus(status));
  EXPECT_EQ(received.message(), "Gr\\xf6\\xdf");
  EXPECT_EQ(received.GetPayload("type"), "x");
}

TEST(GrpcStatusTest, OversizedPayloadsAreLeftOut) {
  absl::Status status = absl::AbortedError("x");
  status.SetPayload("big", absl::Cord(std::string(1 << 20, 'a')));
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), absl::AbortedError("x"));
}

}  // namespace
}  // namespace syncline
