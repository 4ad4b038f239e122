#include "scheduler/core/cluster/reattachment.h"

#include "absl/strings/str_cat.h"

namespace syncline::scheduler {
namespace {

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

}  // namespace

std::string Reattachment::NotBackText() const {
  return absl::StrCat(
      "it has not come back within ", absl::FormatDuration(window_),
      " of the restart of the scheduler at ", TimeText(started_));
}

std::string Reattachment::DeadText() const {
  return absl::StrCat(
      "its process does not answer at its address any more; the scheduler was "
      "restarted at ",
      TimeText(started_));
}

std::string Reattachment::OtherText(absl::string_view why) const {
  return absl::StrCat("it came back, but ", why,
                      "; the scheduler was restarted at ", TimeText(started_));
}

}  // namespace syncline::scheduler
