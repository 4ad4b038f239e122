#include "scheduler/ctl/text/event_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/ctl/text/job_text.h"

namespace syncline::ctl {

std::string EventText(const JobEvent& event, absl::TimeZone zone) {
  const std::string time =
      absl::FormatTime("%Y-%m-%d %H:%M:%S", ToTime(event.time()), zone);
  const std::string clock =
      event.attempt() == 0
          ? ""
          : absl::StrCat("clock ",
                         FormatCount(static_cast<uint64_t>(event.clock())));
  return absl::StrFormat("%s  %-12s  %-10s  %s", time, clock, event.kind(),
                         event.text());
}

}  // namespace syncline::ctl
