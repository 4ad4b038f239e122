#include "scheduler/core/cluster/member_uses.h"

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {

absl::Status MemberUses::Check(const SetMemberUseRequest& request) const {
  if (request.use() != SetMemberUseRequest::SCHEDULE &&
      request.use() != SetMemberUseRequest::CORDON &&
      request.use() != SetMemberUseRequest::DRAIN) {
    return absl::InvalidArgumentError(
        absl::StrCat("use: ", static_cast<int>(request.use()),
                     " is unknown; expected SCHEDULE, CORDON or DRAIN"));
  }
  if (!IsUtf8(request.reason()) || request.reason().size() > kReasonBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "reason: must be UTF-8 of at most ", kReasonBytesMax, " bytes"));
  }
  // A line of its own would be taken for what another member is.
  if (absl::c_any_of(request.reason(),
                     [](char c) { return absl::ascii_iscntrl(c); })) {
    return absl::InvalidArgumentError("reason: must be one line of text");
  }
  const bool is_new = !uses_.contains(KeyOf(request.task()));
  if (request.use() != SetMemberUseRequest::SCHEDULE && is_new &&
      uses_.size() >= kMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        uses_.size(),
        " tasks are cordoned or drained, and no more can be remembered: "
        "uncordon those that are no more"));
  }
  return absl::OkStatus();
}

void MemberUses::Set(const SetMemberUseRequest& request) {
  if (request.use() == SetMemberUseRequest::SCHEDULE) {
    uses_.erase(KeyOf(request.task()));
  } else {
    uses_[KeyOf(request.task())] = request;
  }
}

const SetMemberUseRequest* MemberUses::Find(const Task& task) const {
  const auto it = uses_.find(KeyOf(task));
  return it == uses_.end() ? nullptr : &it->second;
}

bool MemberUses::IsDrained(const Task& task) const {
  const SetMemberUseRequest* const use = Find(task);
  return use != nullptr && use->use() == SetMemberUseRequest::DRAIN;
}

std::string UseText(const SetMemberUseRequest& use) {
  return absl::StrCat(
      TaskText(use.task()),
      use.use() == SetMemberUseRequest::DRAIN ? " is drained" : " is cordoned",
      use.reason().empty() ? "" : absl::StrCat(" (", use.reason(), ")"));
}

}  // namespace syncline::scheduler
