#ifndef SYNCLINE_TESTS_TESTING_STATUS_MATCHERS_H_
#define SYNCLINE_TESTS_TESTING_STATUS_MATCHERS_H_

// Assertions on absl::Status and StatusOr that print the status.

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace syncline::testing_internal {
inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}
}  // namespace syncline::testing_internal

#define SYNCLINE_TEST_CONCAT_INNER_(x, y) x##y
#define SYNCLINE_TEST_CONCAT_(x, y) SYNCLINE_TEST_CONCAT_INNER_(x, y)

#define ASSERT_OK(expr)                                              \
  do {                                                               \
    const auto& syncline_result_ = (expr);                           \
    ASSERT_TRUE(syncline_result_.ok())                               \
        << ::syncline::testing_internal::StatusOf(syncline_result_); \
  } while (false)

#define EXPECT_OK(expr)                                              \
  do {                                                               \
    const auto& syncline_result_ = (expr);                           \
    EXPECT_TRUE(syncline_result_.ok())                               \
        << ::syncline::testing_internal::StatusOf(syncline_result_); \
  } while (false)

// Declares or assigns `lhs` from a StatusOr; fails the test if it has none.
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL_(           \
      SYNCLINE_TEST_CONCAT_(syncline_statusor_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                               \
  ASSERT_TRUE(statusor.ok()) << statusor.status();      \
  lhs = std::move(statusor).value()

#endif  // SYNCLINE_TESTS_TESTING_STATUS_MATCHERS_H_
