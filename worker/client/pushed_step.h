#ifndef SYNCLINE_WORKER_CLIENT_PUSHED_STEP_H_
#define SYNCLINE_WORKER_CLIENT_PUSHED_STEP_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/wire/block_map.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/header_encoder.h"
#include "worker/client/transport/fanout_call.h"
#include "worker/exchange/parameter_exchange.h"

namespace syncline::worker {

// The step that a worker has open, and what each of its pushes says of it. One
// thread.
class PushedStep {
 public:
  // The objects outlive this.
  PushedStep(const HeaderEncoder* headers, const BlockMap* map);

  void Begin(const ParameterExchange::Step& step);
  // The step has no gradient: its pushes are empty closes.
  void Abandon();
  // Of the whole gradient; 0 since Begin.
  void SetSquaredNorm(double squared_norm) { squared_norm_ = squared_norm; }

  int64_t clock() const { return step_.clock; }
  // Of the values that are read after it.
  int64_t next_clock() const {
    return step_.next_clock > 0 ? step_.next_clock : step_.clock + 1;
  }
  uint64_t sample_count() const { return step_.sample_count; }
  bool has_gradient() const { return step_.sample_count > 0; }
  bool abandoned() const { return abandoned_; }
  bool pulls() const { return step_.pull; }
  // The rows whose gradients are pushed, by table; none of an abandoned step.
  absl::Span<RowBatch* const> rows() const { return step_.rows; }

  // The header of a push of `blocks` to `shard`.
  PushHeader Header(uint32_t shard, absl::Span<const uint32_t> blocks) const;
  // A push without payload: it closes the step on `shard` where nothing else is
  // pushed to it.
  FanoutCall::Call Close(uint32_t shard) const;

 private:
  const HeaderEncoder& headers_;
  const BlockMap& map_;
  ParameterExchange::Step step_;
  bool abandoned_ = false;
  double squared_norm_ = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_PUSHED_STEP_H_
