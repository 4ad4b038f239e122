#include "scheduler/ctl/events_command.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "scheduler/ctl/interrupt_signals.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/reconnects.h"
#include "scheduler/ctl/text/event_text.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/job_text.h"

namespace syncline::ctl {
namespace {

// Leaves out what was printed before: a stream that is opened again begins with
// the first event.
class Printer {
 public:
  explicit Printer(const Console& console) : console_(console) {}

  void Print(const JobEvent& event) {
    const absl::Time time = ToTime(event.time());
    std::string bytes = event.SerializeAsString();
    if (time < last_ || (time == last_ && at_last_.contains(bytes))) return;
    if (time > last_) at_last_.clear();
    last_ = time;
    at_last_.insert(std::move(bytes));
    if (console_.json) {
      console_.PrintJson(event);
    } else {
      console_.out << EventText(event, absl::LocalTimeZone()) << std::endl;
    }
  }

 private:
  const Console& console_;
  absl::Time last_ = absl::InfinitePast();
  std::set<std::string> at_last_;  // events of that time
};

}  // namespace

int RunEvents(const EventsOptions& options, const Console& console) {
  InterruptSignals interrupts;
  JobsClient client(options.scheduler);
  Printer printer(console);
  Reconnects reconnects;
  for (;;) {
    const absl::Status ended = client.Events(
        options.job_id, options.follow,
        [&](const JobEvent& event) {
          reconnects.OnHeard();
          printer.Print(event);
        },
        &interrupts);
    if (ended.ok()) return kExitOk;
    const absl::Status again =
        options.follow ? reconnects.Await(ended, MonotonicNow(), &interrupts)
                       : ended;
    if (!again.ok()) return console.PrintError(again);
  }
}

}  // namespace syncline::ctl
