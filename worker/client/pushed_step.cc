#include "worker/client/pushed_step.h"

#include <cstddef>

#include "common/wire/frame.h"

namespace syncline::worker {

PushedStep::PushedStep(const HeaderEncoder* headers, const BlockMap* map)
    : headers_(*headers), map_(*map) {}

void PushedStep::Begin(const ParameterExchange::Step& step) {
  step_ = step;
  abandoned_ = false;
  squared_norm_ = 0;
}

void PushedStep::Abandon() {
  step_.sample_count = 0;
  step_.rows = {};
  abandoned_ = true;
}

PushHeader PushedStep::Header(uint32_t shard,
                              absl::Span<const uint32_t> blocks) const {
  PushHeader header = headers_.MakePush(shard, blocks, step_.clock);
  header.set_sample_count(step_.sample_count);
  header.set_late(step_.is_late);
  if (step_.sample_count > 0) {
    size_t count = map_.shard_blocks(shard).size();
    for (const RowBatch* table : step_.rows) {
      count += table->ShardSlots(shard).size();
    }
    header.set_blocks_in_clock(static_cast<uint32_t>(count));
  }
  header.set_finished(step_.finished);
  header.set_close_until(step_.next_clock);
  if (step_.for_rank.has_value()) header.set_for_rank(*step_.for_rank);
  header.set_squared_norm(squared_norm_);
  header.set_non_finite(abandoned_);
  return header;
}

FanoutCall::Call PushedStep::Close(uint32_t shard) const {
  return {.shard = shard,
          .method = "Push",
          .direction = FanoutCall::Direction::kPush,
          .request = EncodeFrame(Header(shard, {}), {}),
          .clock = step_.clock};
}

}  // namespace syncline::worker
