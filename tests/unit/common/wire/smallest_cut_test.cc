// Goal: a refused cut says at which clocks it can be, and a peer's nonsense is
// no such answer. Method: through a gRPC status and back.

#include "common/wire/smallest_cut.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "common/cuts/cut_id.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"

namespace syncline {
namespace {

using Clocks = std::vector<int64_t>;

absl::Status Refusal(const Clocks& clocks) {
  return WithSmallestCut(absl::OutOfRangeError("a worker is past it"), clocks);
}

TEST(SmallestCutTest, TravelsWithTheStatus) {
  const absl::Status there = FromGrpcStatus(ToGrpcStatus(Refusal({3, 0, 7})));
  EXPECT_EQ(there.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(SmallestCutOf(there, 3), (Clocks{3, 0, 7}));
}

TEST(SmallestCutTest, HoldsAThousandWorkers) {
  const Clocks clocks(1000, kCutClockMax);
  EXPECT_EQ(SmallestCutOf(FromGrpcStatus(ToGrpcStatus(Refusal(clocks))), 1000),
            clocks);
}

TEST(SmallestCutTest, IsNotThereOrIsNoAnswer) {
  EXPECT_EQ(SmallestCutOf(absl::OutOfRangeError("past"), 1), std::nullopt);
  EXPECT_EQ(SmallestCutOf(Refusal({3, 4}), 3), std::nullopt);
  EXPECT_EQ(SmallestCutOf(Refusal({3, -1}), 2), std::nullopt);
  EXPECT_EQ(SmallestCutOf(Refusal({kCutClockMax + 1}), 1), std::nullopt);
  EXPECT_EQ(SmallestCutOf(Refusal({std::numeric_limits<int64_t>::max()}), 1),
            std::nullopt);
  absl::Status garbled = absl::OutOfRangeError("past");
  garbled.SetPayload(kCutClocksDetail, absl::Cord("\xff\xff"));
  EXPECT_EQ(SmallestCutOf(garbled, 1), std::nullopt);
}

}  // namespace
}  // namespace syncline
