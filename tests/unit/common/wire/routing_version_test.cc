// Goal: a refusal brings the version of a routing over the wire, and nothing
// else is taken for one. Method: errors with and without the detail.

#include "common/wire/routing_version.h"

#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "common/rpc/grpc_status.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(RoutingVersionTest, TravelsWithTheError) {
  for (const uint64_t version :
       {uint64_t{1}, std::numeric_limits<uint64_t>::max()}) {
    const absl::Status refusal =
        WithRoutingVersion(absl::AbortedError("elsewhere"), version);
    EXPECT_EQ(RoutingVersionOf(FromGrpcStatus(ToGrpcStatus(refusal))), version);
    EXPECT_EQ(refusal.message(), "elsewhere");
  }
}

TEST(RoutingVersionTest, OtherErrorsHaveNone) {
  EXPECT_EQ(RoutingVersionOf(absl::OkStatus()), std::nullopt);
  EXPECT_EQ(RoutingVersionOf(absl::AbortedError("no detail")), std::nullopt);
  EXPECT_EQ(
      RoutingVersionOf(WithRoutingVersion(absl::UnavailableError("away"), 3)),
      std::nullopt);
  for (const char* detail : {"", "x", "-1", "0", "18446744073709551616"}) {
    absl::Status refusal = absl::AbortedError("bad");
    refusal.SetPayload(kRoutingVersionDetail, absl::Cord(detail));
    EXPECT_EQ(RoutingVersionOf(refusal), std::nullopt) << detail;
  }
}

}  // namespace
}  // namespace syncline
