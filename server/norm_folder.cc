#include "server/norm_folder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace syncline {

NormFolder::NormFolder(std::vector<Shard> shards, std::string label)
    : shards_(std::move(shards)), label_(std::move(label)) {
  size_t block_count = 0;
  for (const Shard& shard : shards_) block_count += shard.blocks.size();
  norms_.resize(block_count);
}

void NormFolder::OnNorms(uint64_t token, uint32_t ps_rank, uint64_t incarnation,
                         int64_t clock, absl::Span<const uint32_t> blocks,
                         absl::Span<const double> squared_norms,
                         absl::Time deadline, Answers* out) {
  if (absl::Status valid =
          Check(ps_rank, incarnation, clock, blocks, squared_norms);
      !valid.ok()) {
    out->push_back({token, std::move(valid), 0});
    return;
  }
  if (clock == folded_clock_) {
    out->push_back({token, absl::OkStatus(), folded_norm_});
    return;
  }
  if (open_clock_ < 0) {
    open_clock_ = clock;
    received_.assign(shards_.size(), false);
    missing_ = std::count_if(shards_.begin(), shards_.end(),
                             [](const Shard& s) { return !s.blocks.empty(); });
  }
  if (!received_[ps_rank]) {
    received_[ps_rank] = true;
    for (size_t i = 0; i < blocks.size(); ++i) {
      norms_[blocks[i]] = squared_norms[i];
    }
    --missing_;
  }
  parked_.push_back({token, deadline});
  if (missing_ == 0) Fold(out);
}

absl::Status NormFolder::Check(uint32_t ps_rank, uint64_t incarnation,
                               int64_t clock, absl::Span<const uint32_t> blocks,
                               absl::Span<const double> squared_norms) const {
  if (!closed_.ok()) return closed_;
  if (ps_rank >= shards_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": norms from ps rank ", ps_rank,
                     ", the job has ranks 0 to ", shards_.size() - 1));
  }
  const Shard& shard = shards_[ps_rank];
  if (incarnation != shard.incarnation) {
    return absl::FailedPreconditionError(absl::StrCat(
        label_, ": norms from a replaced incarnation of ", shard.name));
  }
  if (!std::equal(blocks.begin(), blocks.end(), shard.blocks.begin(),
                  shard.blocks.end()) ||
      blocks.size() != squared_norms.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": norms of ", blocks.size(), " blocks from ",
                     shard.name, ", expected its own ", shard.blocks.size()));
  }
  const bool repeat = clock == folded_clock_;
  const bool fits =
      open_clock_ < 0 ? clock > folded_clock_ : clock == open_clock_;
  if (!repeat && !fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        label_, ": norms of clock ", clock, " from ", shard.name, ", expected ",
        open_clock_ < 0 ? absl::StrCat("one after ", folded_clock_)
                        : absl::StrCat(open_clock_)));
  }
  return absl::OkStatus();
}

void NormFolder::Fold(Answers* out) {
  folded_norm_ = 0;
  for (const double norm : norms_) folded_norm_ += norm;
  folded_clock_ = std::exchange(open_clock_, -1);
  for (const Parked& call : parked_) {
    out->push_back({call.token, absl::OkStatus(), folded_norm_});
  }
  parked_.clear();
}

void NormFolder::OnTick(absl::Time now, Answers* out) {
  std::vector<std::string> names;
  for (size_t rank = 0; open_clock_ >= 0 && rank < shards_.size(); ++rank) {
    if (received_[rank] || shards_[rank].blocks.empty()) continue;
    names.push_back(shards_[rank].name);
  }
  const auto overdue = std::stable_partition(
      parked_.begin(), parked_.end(),
      [&](const Parked& call) { return call.deadline > now; });
  for (auto call = overdue; call != parked_.end(); ++call) {
    out->push_back(
        {call->token,
         absl::DeadlineExceededError(absl::StrCat(
             label_, ": the global norm of clock ", open_clock_,
             " ran out of time; missing: ", absl::StrJoin(names, ", "))),
         0});
  }
  parked_.erase(overdue, parked_.end());
}

void NormFolder::Close(const absl::Status& status, Answers* out) {
  closed_ = status;
  for (const Parked& call : parked_) out->push_back({call.token, status, 0});
  parked_.clear();
}

}  // namespace syncline
