#include "scheduler/service/state_owner.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"

namespace syncline::scheduler {
namespace {

constexpr char kName[] = "/owner";
constexpr size_t kBytesMax = 1 << 10;
// A look costs some microseconds, and there is an event for each message.
constexpr absl::Duration kLookPeriod = absl::Milliseconds(100);

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateOwner>> StateOwner::Claim(
    const std::string& directory, uint64_t epoch) {
  const std::string path = directory + kName;
  auto owner = absl::WrapUnique(new StateOwner(path, epoch));
  SYNCLINE_RETURN_IF_ERROR(owner->Look());
  SYNCLINE_RETURN_IF_ERROR(WriteFileAtomically(
      path, absl::StrCat(epoch, " ", HostName(), " ", getpid(), "\n")));
  return owner;
}

absl::Status StateOwner::Check() {
  const absl::Time now = MonotonicNow();
  if (now < look_at_) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(Look());
  look_at_ = now + kLookPeriod;
  return absl::OkStatus();
}

absl::Status StateOwner::Look() const {
  const auto text = ReadFile(path_, kBytesMax);
  if (!text.ok()) return absl::OkStatus();
  const std::vector<absl::string_view> parts =
      absl::StrSplit(absl::StripSuffix(*text, "\n"), ' ');
  uint64_t epoch = 0;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &epoch) ||
      epoch <= epoch_) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "a newer scheduler has this state: ", Printable(*text), " in ", path_,
      " (its epoch, host and process id); this "
      "one has epoch ",
      epoch_));
}

}  // namespace syncline::scheduler
