#include "server/consistency/push_ledger.h"

#include "absl/strings/str_cat.h"

namespace syncline::ps {

absl::Status PushLedger::CheckOpenPush(const PushFacts& push) const {
  if (push.blocks_in_clock > received_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("blocks_in_clock is ", push.blocks_in_clock,
                     ", the shard has ", received_.size(), " blocks"));
  }
  if (push.sample_count == 0 && push.blocks_in_clock > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "blocks_in_clock is ", push.blocks_in_clock, " without any sample"));
  }
  if (started_ &&
      (push.sample_count != sample_count_ ||
       push.blocks_in_clock != expected_count_ || push.finished != finishes_ ||
       push.squared_norm != squared_norm_ || push.next_clock() != next_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "clock ", push.clock, " was announced with other values: sample_count ",
        sample_count_, ", blocks_in_clock ", expected_count_, ", finished ",
        finishes_, ", squared_norm ", squared_norm_, ", next clock ", next_));
  }
  size_t arrived = started_ ? received_count_ : 0;
  for (const BlockIndex block : push.blocks) {
    if (!received_in(block, push.clock)) ++arrived;
  }
  if (arrived > push.blocks_in_clock) {
    return absl::InvalidArgumentError(
        absl::StrCat("clock ", push.clock, " was announced with ",
                     push.blocks_in_clock, " blocks, ", arrived, " were sent"));
  }
  return absl::OkStatus();
}

bool PushLedger::Open(const PushFacts& push) {
  if (started_) return false;
  started_ = true;
  finishes_ = push.finished;
  sample_count_ = push.sample_count;
  new_samples_ = push.new_samples();
  squared_norm_ = push.squared_norm;
  next_ = push.next_clock();
  expected_count_ = push.blocks_in_clock;
  received_count_ = 0;
  return true;
}

bool PushLedger::Receive(BlockIndex block) {
  if (received_in(block, closed_)) return false;
  received_[block] = closed_;
  ++received_count_;
  return true;
}

void PushLedger::Close() {
  pushed_ = closed_ + 1;
  closed_ = next_;
  finished_ = finishes_;
  started_ = false;
  expected_count_ = 0;
  received_count_ = 0;
}

}  // namespace syncline::ps
