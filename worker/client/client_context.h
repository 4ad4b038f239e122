#ifndef SYNCLINE_WORKER_CLIENT_CLIENT_CONTEXT_H_
#define SYNCLINE_WORKER_CLIENT_CLIENT_CONTEXT_H_

#include <cstddef>
#include <memory>

#include "common/wire/block_map.h"
#include "worker/client/answer_log.h"
#include "worker/client/header_encoder.h"
#include "worker/client/pushed_step.h"
#include "worker/client/transport/client_telemetry.h"
#include "worker/client/transport/fanout_call.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/exchange/gradient_compressor.h"
#include "worker/exchange/transfer_counts.h"

namespace syncline::worker {

// The objects of one PsClient that its parts work with. They outlive the parts.
struct ClientContext {
  const BlockMap* map = nullptr;
  const DenseTensors* tensors = nullptr;
  const HeaderEncoder* headers = nullptr;
  const PushedStep* step = nullptr;
  // Null: the job has compressed nothing yet.
  std::shared_ptr<const GradientCompressor> compressor = nullptr;
  AnswerLog* answers = nullptr;
  FanoutCall* calls = nullptr;
  ClientTelemetry telemetry = {};
  TransferCounts* counts = nullptr;  // null: nobody asks
  // Payload of one message at most, over the network and through memory shared
  // with the ps; both <= kChunkBytesMax. One block or row may be larger.
  size_t chunk_bytes = 0;
  size_t shared_chunk_bytes = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_CLIENT_CONTEXT_H_
