#ifndef SYNCLINE_WORKER_CLIENT_HEADER_ENCODER_H_
#define SYNCLINE_WORKER_CLIENT_HEADER_ENCODER_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/element_type.h"
#include "common/job/job_pass.h"
#include "common/regime/regime_schedule.h"
#include "proto/parameter_server.pb.h"

namespace syncline::worker {

// Fills in what the headers of all calls of one worker have in common.
// Thread-safe, but for Follow.
class HeaderEncoder {
 public:
  struct Identity {
    std::string job_id;
    uint32_t rank = 0;
    uint64_t incarnation = 0;
    uint64_t routing_version = 0;
    JobPass pass = {};
  };
  // `regimes`, `step_timeout`: as in PsClient::Options.
  HeaderEncoder(const Identity& identity, RegimeSchedule regimes,
                absl::Duration step_timeout);

  // The job trains by these from here on. Not while a call is under way.
  void Follow(const RegimeSchedule& regimes) { regimes_ = regimes; }

  // The calling rank, in a call to `shard`.
  Caller CallerOf(uint32_t shard) const;
  // How the gradients of a step travel.
  ElementType PushedType(int64_t clock) const {
    return regimes_.At(clock).wire_type;
  }
  // How dense ones are compressed before that; then PushedType is for rows
  // alone.
  const GradientCompression& Compression(int64_t clock) const {
    return regimes_.At(clock).compression;
  }
  // The values that workers train with at `clock` may come as changes.
  bool SendsChanges(int64_t clock) const {
    return regimes_.regimes()[0].SendsChanges() &&
           regimes_.At(clock).SendsChanges();
  }
  // Elements of a change that share a scale.
  uint32_t ChangeGroup() const {
    return regimes_.regimes()[0].compression.block_elements;
  }
  // How the values of a pull travel. `cut_id` 0: the pull is not of a cut.
  ElementType PulledType(int64_t clock, uint64_t cut_id) const {
    return cut_id == 0 ? regimes_.At(clock).wire_type : ElementType::kFloat32;
  }

  InitHeader MakeInit(uint32_t shard, int64_t total_clocks,
                      absl::Span<const uint32_t> blocks) const;
  // Without the fields of the step but its clock.
  PushHeader MakePush(uint32_t shard, absl::Span<const uint32_t> blocks,
                      int64_t clock) const;
  // The pull of a PushPull: without the caller, whom the push names. `changes`:
  // to the values of the clock before, which the rank has.
  PullHeader MakePullPart(absl::Span<const uint32_t> blocks, int64_t clock,
                          uint64_t cut_id, bool changes = false) const;
  PullHeader MakePull(uint32_t shard, absl::Span<const uint32_t> blocks,
                      int64_t clock, uint64_t cut_id) const;

 private:
  RegimeSchedule regimes_;
  const absl::Duration wait_;  // of a pull, at the shard
  Caller caller_;              // of shard 0
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_HEADER_ENCODER_H_
