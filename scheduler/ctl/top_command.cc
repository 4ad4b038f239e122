#include "scheduler/ctl/top_command.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "scheduler/ctl/interrupt_signals.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/top_text.h"

namespace syncline::ctl {
namespace {

constexpr absl::Duration kOncePeriod = absl::Seconds(1);
// Where to, and what is behind it is erased.
constexpr char kHome[] = "\x1b[H";
constexpr char kEraseLine[] = "\x1b[K\n";
constexpr char kEraseBelow[] = "\x1b[J";

absl::StatusOr<TopSnapshot> TakeSnapshot(JobsClient* client) {
  TopSnapshot snapshot;
  SYNCLINE_ASSIGN_OR_RETURN(snapshot.cluster, client->GetCluster());
  ListRequest request;
  for (const JobState state : {QUEUED, PREPARING, RUNNING}) {
    request.add_states(state);
  }
  SYNCLINE_ASSIGN_OR_RETURN(const ListResponse jobs, client->List(request));
  for (const JobStatus& job : jobs.jobs()) {
    snapshot.jobs.push_back(job);
    if (job.state() != RUNNING) continue;
    // The list is without the workers. A job that has gone since is as listed.
    auto whole = client->Get(job.job_id());
    if (whole.ok()) snapshot.jobs.back() = *std::move(whole);
  }
  return snapshot;
}

void PrintJson(const TopSnapshot& snapshot, const Console& console) {
  google::protobuf::Struct object;
  auto& fields = *object.mutable_fields();
  // Its own output is JSON.
  static_cast<void>(google::protobuf::util::JsonStringToMessage(
      ToJson(snapshot.cluster), fields["cluster"].mutable_struct_value()));
  auto* const jobs = fields["jobs"].mutable_list_value();
  for (const JobStatus& job : snapshot.jobs) {
    static_cast<void>(google::protobuf::util::JsonStringToMessage(
        ToJson(job), jobs->add_values()->mutable_struct_value()));
  }
  console.PrintJson(object);
}

// Over the one before, so that nothing flickers.
void PrintScreen(const std::string& text, const Console& console) {
  std::string screen = kHome;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::StrAppend(&screen, Printable(line), kEraseLine);
  }
  console.PrintLive(absl::StrCat(screen, kEraseBelow));
}

}  // namespace

int RunTop(const TopOptions& options, const Console& console) {
  InterruptSignals interrupts;
  JobsClient client(options.scheduler);
  auto before = TakeSnapshot(&client);
  if (!before.ok()) return console.PrintError(before.status());
  const bool once = options.once || console.json || !console.live;
  if (console.json) {
    PrintJson(*before, console);
    return kExitOk;
  }
  if (!once) PrintScreen(TopText(*before, TopSnapshot()), console);
  const absl::Duration period =
      once ? kOncePeriod : absl::Seconds(options.period_seconds);
  while (!interrupts.WaitFor(period)) {
    auto now = TakeSnapshot(&client);
    if (!now.ok()) return console.PrintError(now.status());
    if (once) {
      console.out << TopText(*now, *before) << std::flush;
      return kExitOk;
    }
    PrintScreen(TopText(*now, *before), console);
    before = std::move(now);
  }
  return once ? kExitCancelled : kExitOk;
}

}  // namespace syncline::ctl
