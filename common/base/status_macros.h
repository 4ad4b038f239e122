#ifndef SYNCLINE_COMMON_BASE_STATUS_MACROS_H_
#define SYNCLINE_COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace syncline {

// The same code with "context: " before the message; payloads are kept. OK
// stays OK.
inline absl::Status Annotate(const absl::Status& status,
                             absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(),
                         absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    annotated.SetPayload(type, payload);
  });
  return annotated;
}

}  // namespace syncline

#define SYNCLINE_STATUS_CONCAT_INNER_(x, y) x##y
#define SYNCLINE_STATUS_CONCAT_(x, y) SYNCLINE_STATUS_CONCAT_INNER_(x, y)

// Returns the status from the enclosing function unless it is OK.
#define SYNCLINE_RETURN_IF_ERROR(expr)                   \
  do {                                                   \
    absl::Status syncline_status_ = (expr);              \
    if (!syncline_status_.ok()) return syncline_status_; \
  } while (false)

// Declares or assigns `lhs` from a StatusOr, or returns its status.
#define SYNCLINE_ASSIGN_OR_RETURN(lhs, expr) \
  SYNCLINE_ASSIGN_OR_RETURN_IMPL_(           \
      SYNCLINE_STATUS_CONCAT_(syncline_statusor_, __LINE__), lhs, expr)
#define SYNCLINE_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                                    \
  if (!statusor.ok()) return std::move(statusor).status();   \
  lhs = std::move(statusor).value()

#endif  // SYNCLINE_COMMON_BASE_STATUS_MACROS_H_
