#include "scheduler/core/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

constexpr size_t kFencedMax = 4096;
// Beyond any cluster; keeps a hostile index out of file names and pages.
constexpr uint32_t kIndexMax = 1 << 20;
// A DNS name has 253 bytes; brackets, colon and port come to it.
constexpr size_t kAddressBytesMax = 262;
constexpr size_t kHostNameBytesMax = 255;
constexpr size_t kVersionBytesMax = 64;
constexpr size_t kGpuTextBytesMax = 256;
constexpr size_t kJobIdBytesMax = 64;

// "0.1.0" -> "0.1".
std::string Release(absl::string_view version) {
  const std::vector<absl::string_view> parts = absl::StrSplit(version, '.');
  return parts.size() < 2 ? std::string(version)
                          : absl::StrCat(parts[0], ".", parts[1]);
}

std::pair<int, uint32_t> KeyOf(const Task& task) {
  return {static_cast<int>(task.type()), task.index()};
}

absl::Status CheckLength(absl::string_view field, const std::string& text,
                         size_t bytes_max) {
  if (text.size() <= bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " of ", text.size(), " bytes, at most ", bytes_max, " are taken"));
}

// A registration may be a stranger's: its texts are kept, shown and sent on.
absl::Status CheckTexts(const Register& request) {
  const Member& member = request.member();
  SYNCLINE_RETURN_IF_ERROR(
      CheckLength("address", member.address(), kAddressBytesMax));
  SYNCLINE_RETURN_IF_ERROR(
      CheckLength("http_address", member.http_address(), kAddressBytesMax));
  SYNCLINE_RETURN_IF_ERROR(
      CheckLength("hostname", member.hostname(), kHostNameBytesMax));
  SYNCLINE_RETURN_IF_ERROR(
      CheckLength("version", member.version(), kVersionBytesMax));
  SYNCLINE_RETURN_IF_ERROR(
      CheckLength("gpu.name", member.gpu().name(), kGpuTextBytesMax));
  SYNCLINE_RETURN_IF_ERROR(
      CheckLength("gpu.model", member.gpu().model(), kGpuTextBytesMax));
  SYNCLINE_RETURN_IF_ERROR(CheckLength(
      "gpu.convolutions", member.gpu().convolutions(), kGpuTextBytesMax));
  SYNCLINE_RETURN_IF_ERROR(
      CheckLength("job_id", request.job_id(), kJobIdBytesMax));
  if (member.address().empty()) {
    return absl::InvalidArgumentError("no address");
  }
  SYNCLINE_ASSIGN_OR_RETURN(const HostPort address,
                            ParseHostPort(member.address()));
  if (address.IsAnyInterface()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address ", member.address(), " names every interface and no host; ",
        "--advertise says how others reach the process"));
  }
  if (member.http_address().empty()) return absl::OkStatus();
  return ParseHostPort(member.http_address()).status();
}

// Its process is asked whether it lives; a newcomer has to wait for that alone.
absl::Status KeptFor(const Member& absent) {
  return absl::UnavailableError(absl::StrCat(
      TaskText(absent.task()), " is kept for ",
      MemberTextWithIncarnation(absent), ", host ", absent.hostname(), ", pid ",
      absent.pid(),
      ", which works for a job and may still come back: the scheduler has been "
      "restarted"));
}

}  // namespace

absl::Status Membership::CheckRequest(const Register& request) const {
  const Member& member = request.member();
  const TaskType type = member.task().type();
  if (type != CHIEF && type != WORKER && type != PS && type != EVALUATOR) {
    return absl::InvalidArgumentError(absl::StrCat(
        "task type ", static_cast<int>(type),
        " cannot register; expected chief, worker, ps or evaluator"));
  }
  if (!request.auto_index() && member.task().index() > kIndexMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(TaskText(member.task()), ": index above ", kIndexMax));
  }
  if (type == CHIEF && !request.auto_index() && member.task().index() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(TaskText(member.task()), ": the only chief is chief 0"));
  }
  if (member.incarnation() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(TaskText(member.task()), ": incarnation 0 is not valid"));
  }
  SYNCLINE_RETURN_IF_ERROR(
      Annotate(CheckTexts(request), TaskText(member.task())));
  if (Release(member.version()) != Release(version_)) {
    return absl::InvalidArgumentError(
        absl::StrCat(MemberText(member), " runs version \"", member.version(),
                     "\"; this scheduler runs ", version_, " and accepts ",
                     Release(version_), ".x"));
  }
  return absl::OkStatus();
}

Membership::TaskKey Membership::ChooseTask(const Register& request) const {
  const Member& member = request.member();
  TaskKey task = KeyOf(member.task());
  if (!request.auto_index()) return task;
  // A process that was here before keeps its index unless another process took
  // it.
  for (const auto& [held, incarnation] : last_holder_) {
    if (incarnation == member.incarnation() && held.first == task.first &&
        !live_.contains(held)) {
      return held;
    }
  }
  for (task.second = 0; live_.contains(task); ++task.second) {
  }
  return task;
}

absl::Status Membership::CheckFree(const TaskKey& task,
                                   const Register& request) const {
  const Member& member = request.member();
  const auto holder = live_.find(task);
  if (holder != live_.end() && IsAbsent(holder->second.session)) {
    return KeptFor(holder->second.member);
  }
  if (holder != live_.end()) {
    return absl::AlreadyExistsError(absl::StrCat(
        TaskText(holder->second.member.task()), " is held by a live process: ",
        MemberTextWithIncarnation(holder->second.member), ", host ",
        holder->second.member.hostname(), ", pid ",
        holder->second.member.pid()));
  }
  // A process that asks for any index gives up the task that it was fenced
  // from.
  if (!request.auto_index() && fenced_.contains(member.incarnation())) {
    return absl::FailedPreconditionError(
        absl::StrCat(MemberTextWithIncarnation(member),
                     " was replaced by a newer incarnation"));
  }
  if (task.first == CHIEF && task.second != 0) {
    return absl::AlreadyExistsError("the cluster has a chief already");
  }
  return absl::OkStatus();
}

// One process may be several members, with one address.
absl::Status Membership::CheckAddressFree(const Member& member) const {
  for (const auto& [task, entry] : live_) {
    const Member& other = entry.member;
    if (other.address() != member.address() ||
        (other.hostname() == member.hostname() &&
         other.pid() == member.pid())) {
      continue;
    }
    if (IsAbsent(entry.session)) return KeptFor(other);
    return absl::AlreadyExistsError(absl::StrCat(
        TaskText(member.task()), ", host ", member.hostname(), ", pid ",
        member.pid(), ", advertises the address of a live process: ",
        MemberTextWithIncarnation(other), ", host ", other.hostname(), ", pid ",
        other.pid(), "; give each its own --advertise"));
  }
  return absl::OkStatus();
}

absl::StatusOr<const Membership::Entry*> Membership::Admit(
    SessionId session, const Register& request, absl::Time now) {
  SYNCLINE_RETURN_IF_ERROR(CheckRequest(request));
  SYNCLINE_CHECK(FindIncarnation(request.member().incarnation()) == nullptr);
  if (live_.size() >= kMembersMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(MemberText(request.member()),
                     " is not taken: the cluster has ", live_.size(),
                     " members, and no scheduler takes more; `synctl cluster` "
                     "lists them, with those that are not confirmed"));
  }
  const TaskKey task = ChooseTask(request);
  SYNCLINE_RETURN_IF_ERROR(CheckFree(task, request));
  SYNCLINE_RETURN_IF_ERROR(CheckAddressFree(request.member()));

  TakeOver(task, request.member().incarnation());

  Entry& entry = live_[task];
  entry.member = request.member();
  entry.member.mutable_task()->set_index(task.second);
  entry.session = session;
  entry.last_heard = now;
  by_session_[session] = task;
  return &entry;
}

void Membership::TakeOver(const TaskKey& task, uint64_t incarnation) {
  // A process that moved to another index holds only that one.
  std::erase_if(last_holder_, [&](const auto& held) {
    return held.second == incarnation && held.first != task;
  });
  fenced_.erase(incarnation);
  uint64_t& holder = last_holder_[task];
  if (holder != 0 && holder != incarnation) Fence(holder);
  holder = incarnation;
}

void Membership::Fence(uint64_t incarnation) {
  if (!fenced_.insert(incarnation).second) return;
  fenced_order_.push_back(incarnation);
  if (fenced_order_.size() <= kFencedMax) return;
  fenced_.erase(fenced_order_.front());
  fenced_order_.pop_front();
}

bool Membership::Keep(SessionId session, const Member& member,
                      absl::Time last_heard) {
  SYNCLINE_CHECK(IsAbsent(session));
  const TaskKey task = KeyOf(member.task());
  if (live_.contains(task) ||
      FindIncarnation(member.incarnation()) != nullptr) {
    return false;
  }
  TakeOver(task, member.incarnation());
  live_[task] = {member, session, last_heard};
  by_session_[session] = task;
  return true;
}

void Membership::Remove(SessionId session) {
  const auto it = by_session_.find(session);
  if (it == by_session_.end()) return;
  live_.erase(it->second);
  by_session_.erase(it);
}

void Membership::Rebind(SessionId older, SessionId session, absl::Time now) {
  auto moved = by_session_.extract(older);
  SYNCLINE_CHECK(!moved.empty());
  moved.key() = session;
  Entry& entry = live_.at(moved.mapped());
  entry.session = session;
  entry.last_heard = now;
  by_session_.insert(std::move(moved));
}

void Membership::RecordHeartbeat(SessionId session, absl::Time now) {
  const auto it = by_session_.find(session);
  if (it == by_session_.end()) return;
  Entry& entry = live_.at(it->second);
  entry.last_heard = std::max(entry.last_heard, now);
}

std::vector<SessionId> Membership::Expired(absl::Time now,
                                           absl::Duration lease) const {
  std::vector<SessionId> expired;
  for (const auto& [task, entry] : live_) {
    if (now - entry.last_heard > lease) expired.push_back(entry.session);
  }
  return expired;
}

const Membership::Entry* Membership::Find(SessionId session) const {
  const auto it = by_session_.find(session);
  return it == by_session_.end() ? nullptr : &live_.at(it->second);
}

const Membership::Entry* Membership::FindIncarnation(
    uint64_t incarnation) const {
  for (const auto& [task, entry] : live_) {
    if (entry.member.incarnation() == incarnation) return &entry;
  }
  return nullptr;
}

std::vector<const Membership::Entry*> Membership::All() const {
  std::vector<const Entry*> all;
  all.reserve(live_.size());
  for (const auto& [task, entry] : live_) all.push_back(&entry);
  return all;
}

}  // namespace syncline::scheduler
