// Goal: an annotated status keeps its code and payloads, and the macros return
// errors as they are and evaluate their expression once. Method: functions that
// use them.

#include "common/base/status_macros.h"

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

absl::Status Refused() {
  absl::Status status = absl::AbortedError("stale");
  status.SetPayload("type", absl::Cord("payload"));
  return status;
}

TEST(StatusMacrosTest, AnAnnotatedStatusKeepsCodeAndPayload) {
  const absl::Status status = Annotate(Refused(), "ps 1");
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(), "ps 1: stale");
  EXPECT_EQ(status.GetPayload("type"), absl::Cord("payload"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "ps 1").ok());
}

// How often the statement after the macro was reached.
absl::Status Return(const absl::Status& status, int* reached) {
  int evaluated = 0;
  SYNCLINE_RETURN_IF_ERROR((++evaluated, status));
  EXPECT_EQ(evaluated, 1);
  ++*reached;
  return absl::OkStatus();
}

TEST(StatusMacrosTest, ReturnsErrorsOnly) {
  int reached = 0;
  EXPECT_EQ(Return(Refused(), &reached), Refused());
  EXPECT_EQ(reached, 0);
  EXPECT_TRUE(Return(absl::OkStatus(), &reached).ok());
  EXPECT_EQ(reached, 1);
}

absl::StatusOr<int> AddOne(absl::StatusOr<std::unique_ptr<int>> number) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::unique_ptr<int> value,
                            std::move(number));
  int sum = 0;
  SYNCLINE_ASSIGN_OR_RETURN(sum, absl::StatusOr<int>(*value + 1));
  return sum;
}

TEST(StatusMacrosTest, AssignsValuesAndReturnsErrors) {
  EXPECT_EQ(AddOne(std::make_unique<int>(2)).value(), 3);
  EXPECT_EQ(AddOne(Refused()).status(), Refused());
}

}  // namespace
}  // namespace syncline
