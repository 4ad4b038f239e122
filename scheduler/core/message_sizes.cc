#include "scheduler/core/message_sizes.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace syncline::scheduler {
namespace {

// Membership's limits on a registration come to about 850.
constexpr size_t kParticipantBytesMax = 1 << 10;
// Evaluations, transitions with their reasons, names of artifacts.
constexpr size_t kHistoryBytesMax = 3 << 19;
// Tag and length of an entry.
constexpr size_t kEntryBytes = 6;
// JobTableStatus: the job, and of each ps its rank and age.
constexpr size_t kAnswerBytes = 128;
constexpr size_t kPsBytes = 32;
// Tag and length of a hot key, exactly: it has four numbers.
constexpr size_t kHotKeyBytes = 3;
// Hot keys of a table that are shown, of 16 that a ps reports.
constexpr std::array<int, 4> kHotKeyCounts = {16, 4, 1, 0};

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
  const size_t participants = size_t{std::max(spec.resources().workers(),
                                              spec.resources().max_workers())} +
                              size_t{spec.resources().ps()} + 1;
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

absl::StatusOr<int> HotKeysThatFit(absl::Span<const PsReport* const> reports) {
  // By kHotKeyCounts: what the answer takes.
  std::array<size_t, kHotKeyCounts.size()> bytes;
  bytes.fill(kAnswerBytes);
  size_t tables = 0;
  for (const PsReport* report : reports) {
    for (size_t& sum : bytes) sum += kPsBytes;
    for (const ShardStatus::Table& table : report->tables()) {
      size_t without = table.ByteSizeLong() + kEntryBytes;
      std::array<size_t, kHotKeyCounts.size()> keys{};
      for (int k = 0; k < table.hot_keys_size(); ++k) {
        const size_t key = table.hot_keys(k).ByteSizeLong() + kHotKeyBytes;
        without -= key;
        for (size_t c = 0; c < keys.size(); ++c) {
          if (k < kHotKeyCounts[c]) keys[c] += key;
        }
      }
      for (size_t c = 0; c < keys.size(); ++c) bytes[c] += without + keys[c];
      ++tables;
    }
  }
  for (size_t c = 0; c < bytes.size(); ++c) {
    if (bytes[c] <= kCommandBytesMax) return kHotKeyCounts[c];
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "what ", reports.size(), " ps report of their tables, ", tables,
      " in all, takes ", bytes.back(), " bytes, and an answer at most ",
      kCommandBytesMax,
      "; each ps tells the same of its own tables on its page /metrics "
      "(syncline_ps_table_...)"));
}

}  // namespace syncline::scheduler
