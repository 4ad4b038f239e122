#include "scheduler/message_sizes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

// Membership's limits on a registration come to about 850.
constexpr size_t kParticipantBytesMax = 1 << 10;
// Evaluations, transitions with their reasons, names of artifacts.
constexpr size_t kHistoryBytesMax = 3 << 19;
// Tag and length of an entry.
constexpr size_t kEntryBytes = 6;

template <typename Message>
size_t BytesOf(absl::Span<const Message> entries) {
  size_t bytes = 0;
  for (const Message& entry : entries) {
    bytes += entry.ByteSizeLong() + kEntryBytes;
  }
  return bytes;
}

}  // namespace

absl::Status CheckMessageSizes(const JobSpec& spec,
                               absl::Span<const ParameterInfo> parameters,
                               absl::Span<const TableInfo> tables) {
  const size_t participants =
      size_t{spec.resources().workers()} + size_t{spec.resources().ps()} + 1;
  const size_t participant_bytes = participants * kParticipantBytesMax;
  const size_t model_bytes = BytesOf(parameters) + BytesOf(tables);
  const size_t spec_bytes = spec.ByteSizeLong();
  const size_t largest =
      spec_bytes + participant_bytes + std::max(model_bytes, kHistoryBytesMax);
  if (largest <= kCommandBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the job does not fit into the messages about it, which take ",
      kCommandBytesMax, " bytes: the spec has ", spec_bytes, ", ", participants,
      " participants (resources.workers, resources.ps) may have ",
      participant_bytes, ", ", parameters.size(), " parameters and ",
      tables.size(), " tables of the model have ", model_bytes,
      ", and what comes of the job may have ", kHistoryBytesMax));
}

}  // namespace syncline
