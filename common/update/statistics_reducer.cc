#include "common/update/statistics_reducer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/wire/statistics_limits.h"

namespace syncline {
namespace {

std::string PointText(const StatisticsReducer::Point& at) {
  return absl::StrCat("clock ", at.clock, ", fold ", at.fold);
}

}  // namespace

StatisticsReducer::StatisticsReducer(std::vector<Worker> workers,
                                     std::string label)
    : workers_(std::move(workers)),
      label_(std::move(label)),
      standings_(workers_.size()) {}

void StatisticsReducer::OnPart(const Part& part, absl::Time now, Answers* out) {
  if (absl::Status valid = CheckCaller(part); !valid.ok()) {
    out->push_back({part.token, std::move(valid), {}});
    return;
  }
  const bool is_open_clock = part.at.clock == open_.clock;
  const bool is_old_absence =
      part.absent && (part.at.clock < open_.clock ||
                      (is_open_clock && standings_[part.rank].absent));
  if (is_old_absence) {
    out->push_back({part.token, absl::OkStatus(), {}});
    return;
  }
  if (!part.absent && part.at == reduced_) {
    out->push_back({part.token, absl::OkStatus(), sums_});
    return;
  }
  if (absl::Status valid = CheckPart(part); !valid.ok()) {
    out->push_back({part.token, std::move(valid), {}});
    return;
  }
  if (StartsClock(part.at)) {
    open_ = part.at;
    for (Standing& standing : standings_) standing.absent = false;
  }
  Standing& standing = standings_[part.rank];
  if (Missing(standing)) moved_at_ = now;
  standing.last = part.at;
  if (part.absent) {
    standing.absent = true;
    out->push_back({part.token, absl::OkStatus(), {}});
  } else {
    Park(part, out);
  }
  ReduceIfComplete(out);
}

absl::Status StatisticsReducer::CheckCaller(const Part& part) const {
  SYNCLINE_RETURN_IF_ERROR(closed_);
  if (part.rank >= workers_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": statistics from rank ", part.rank,
                     ", the job has ranks 0 to ", workers_.size() - 1));
  }
  const Worker& worker = workers_[part.rank];
  if (part.incarnation != worker.incarnation) {
    return absl::FailedPreconditionError(absl::StrCat(
        label_, ": statistics from incarnation ",
        IncarnationText(part.incarnation), " of ", worker.name,
        ", which was replaced by ", IncarnationText(worker.incarnation)));
  }
  return absl::OkStatus();
}

absl::Status StatisticsReducer::CheckPart(const Part& part) const {
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": statistics of ", PointText(part.at), " from ",
                     workers_[part.rank].name, why...));
  };
  const Standing& standing = standings_[part.rank];
  const bool opens = StartsClock(part.at);
  if (!opens && part.at != open_) return refuse(", expected ", Expected());
  if (!opens && standing.absent) {
    return refuse(", which takes part in this clock no more");
  }
  if (part.absent) {
    return standing.values.empty()
               ? absl::OkStatus()
               : refuse(", which has taken part in it and is absent now");
  }
  const size_t width = OpenWidth();
  const size_t count = part.values.size();
  if (count == 0 || count > kFoldedValuesMax) {
    return refuse(": ", count, " values, expected 1 to ", kFoldedValuesMax);
  }
  if (width > 0 && count != width) {
    return refuse(": ", count, " values, expected ", width,
                  " as from the others");
  }
  return absl::OkStatus();
}

bool StatisticsReducer::StartsClock(const Point& at) const {
  return at.clock > open_.clock && at.fold == 0 && OpenWidth() == 0;
}

std::string StatisticsReducer::Expected() const {
  if (open_.clock < 0) return "fold 0 of a clock";
  return OpenWidth() > 0 ? PointText(open_)
                         : absl::StrCat(PointText(open_), ", or a later clock");
}

std::string StatisticsReducer::MissingText() const {
  std::vector<std::string> names;
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    const Standing& standing = standings_[rank];
    if (!Missing(standing)) continue;
    names.push_back(absl::StrCat(
        workers_[rank].name,
        standing.last.clock < 0 ? " (not heard of yet)"
                                : absl::StrCat(" (last heard of in ",
                                               PointText(standing.last), ")")));
  }
  return absl::StrJoin(names, ", ");
}

size_t StatisticsReducer::OpenWidth() const {
  for (const Standing& standing : standings_) {
    if (!standing.values.empty()) return standing.values.size();
  }
  return 0;
}

void StatisticsReducer::Park(const Part& part, Answers* out) {
  Standing& standing = standings_[part.rank];
  End(&standing, absl::UnavailableError("a repeat has taken its place"), out);
  if (standing.values.empty()) {
    standing.values.assign(part.values.begin(), part.values.end());
  }
  standing.token = part.token;
  standing.deadline = part.deadline;
}

void StatisticsReducer::ReduceIfComplete(Answers* out) {
  const size_t width = OpenWidth();
  if (width == 0 || std::any_of(standings_.begin(), standings_.end(),
                                [this](const Standing& standing) {
                                  return Missing(standing);
                                })) {
    return;
  }
  sums_.assign(width, 0);
  for (const Standing& standing : standings_) {
    for (size_t i = 0; i < standing.values.size(); ++i) {
      sums_[i] += standing.values[i];
    }
  }
  reduced_ = open_;
  ++open_.fold;
  for (Standing& standing : standings_) {
    standing.values.clear();
    if (standing.token == 0) continue;
    out->push_back({std::exchange(standing.token, 0), absl::OkStatus(), sums_});
  }
}

void StatisticsReducer::End(Standing* standing, const absl::Status& status,
                            Answers* out) {
  if (standing->token == 0) return;
  out->push_back({std::exchange(standing->token, 0), status, {}});
}

void StatisticsReducer::OnCancel(uint64_t token, Answers* out) {
  for (Standing& standing : standings_) {
    if (standing.token != token) continue;
    End(&standing, absl::CancelledError("the caller gave up"), out);
  }
}

void StatisticsReducer::OnFrozen(absl::Duration frozen, absl::Time now) {
  for (Standing& standing : standings_) standing.deadline += frozen;
  moved_at_ = std::min(moved_at_ + frozen, std::max(moved_at_, now));
}

void StatisticsReducer::OnTick(absl::Time now, Answers* out) {
  for (Standing& standing : standings_) {
    if (standing.token == 0 || standing.deadline > now) continue;
    End(&standing,
        absl::DeadlineExceededError(
            absl::StrCat(label_, ": the batch statistics of ", PointText(open_),
                         " ran out of time; missing: ", MissingText())),
        out);
  }
}

void StatisticsReducer::Close(const absl::Status& status, Answers* out) {
  closed_ = status;
  for (Standing& standing : standings_) End(&standing, status, out);
}

size_t StatisticsReducer::parked_count() const {
  return std::count_if(
      standings_.begin(), standings_.end(),
      [](const Standing& standing) { return standing.token != 0; });
}

}  // namespace syncline
