#include "worker/client/header_encoder.h"

#include <utility>

#include "common/wire/wire_element_type.h"
#include "worker/client/transport/retry_policy.h"

namespace syncline::worker {

HeaderEncoder::HeaderEncoder(const Identity& identity, RegimeSchedule regimes,
                             absl::Duration step_timeout)
    : regimes_(std::move(regimes)),
      wait_(RetryPolicy::LongestAttempt(step_timeout)) {
  caller_.set_job_id(identity.job_id);
  caller_.set_rank(identity.rank);
  caller_.set_incarnation(identity.incarnation);
  caller_.set_routing_version(identity.routing_version);
  caller_.set_attempt(identity.pass.attempt);
  caller_.set_job_secret(identity.pass.secret);
}

Caller HeaderEncoder::CallerOf(uint32_t shard) const {
  Caller caller = caller_;
  caller.set_shard(shard);
  return caller;
}

InitHeader HeaderEncoder::MakeInit(uint32_t shard, int64_t total_clocks,
                                   absl::Span<const uint32_t> blocks) const {
  InitHeader header;
  *header.mutable_caller() = CallerOf(shard);
  header.set_total_clocks(total_clocks);
  header.mutable_blocks()->Add(blocks.begin(), blocks.end());
  return header;
}

PushHeader HeaderEncoder::MakePush(uint32_t shard,
                                   absl::Span<const uint32_t> blocks,
                                   int64_t clock) const {
  PushHeader header;
  header.set_clock(clock);
  *header.mutable_caller() = CallerOf(shard);
  header.mutable_blocks()->Add(blocks.begin(), blocks.end());
  header.set_wire_type(WireTypeOf(PushedType(clock)));
  return header;
}

PullHeader HeaderEncoder::MakePullPart(absl::Span<const uint32_t> blocks,
                                       int64_t clock, uint64_t cut_id,
                                       bool changes) const {
  PullHeader header;
  if (changes) header.set_compression(CompressionSpec::INT8);
  header.set_clock(clock);
  header.set_cut_id(cut_id);
  header.set_wire_type(WireTypeOf(PulledType(clock, cut_id)));
  header.mutable_blocks()->Add(blocks.begin(), blocks.end());
  header.set_wait_seconds(absl::ToDoubleSeconds(wait_));
  return header;
}

PullHeader HeaderEncoder::MakePull(uint32_t shard,
                                   absl::Span<const uint32_t> blocks,
                                   int64_t clock, uint64_t cut_id) const {
  PullHeader header = MakePullPart(blocks, clock, cut_id);
  *header.mutable_caller() = CallerOf(shard);
  return header;
}

}  // namespace syncline::worker
