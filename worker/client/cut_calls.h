#ifndef SYNCLINE_WORKER_CLIENT_CUT_CALLS_H_
#define SYNCLINE_WORKER_CLIENT_CUT_CALLS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/header_encoder.h"
#include "worker/client/transport/fanout_call.h"
#include "worker/exchange/parameter_exchange.h"

namespace syncline::worker {

// The calls of PsClient about cuts: announcing and ending one, reporting
// progress while it holds others, and scanning tables as of it.
// ParameterExchange has the contract of each. Every function blocks; one thread
// at a time.
class CutCalls {
 public:
  using RowSink = ParameterExchange::RowSink;

  // `shards`: those that take part. `peers`: by shard, for messages. `calls`
  // and `headers` outlive this.
  CutCalls(std::vector<uint32_t> shards, std::vector<FanoutCall::Peer> peers,
           const HeaderEncoder* headers, FanoutCall* calls);

  absl::StatusOr<std::vector<int64_t>> Begin(const ParameterExchange::Cut& cut,
                                             absl::Duration hold);
  absl::Status End(uint64_t cut_id, int64_t clock);
  absl::Status ReportActivity(int64_t clock, absl::string_view what,
                              uint64_t done, uint64_t total);
  absl::Status ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                         int64_t clock, RowSink sink);

 private:
  // One message of a scan.
  struct ScannedRows {
    ScanTableResponseHeader header;
    std::vector<int64_t> keys;
    std::vector<float> values;
  };

  // One call without payload to every shard that takes part.
  absl::Status CallAll(const char* method, int64_t clock,
                       const grpc::ByteBuffer& request);
  absl::Status ScanChunk(uint32_t shard, int64_t clock,
                         const ScanTableHeader& header, ScannedRows* rows);

  const std::vector<uint32_t> shards_;
  const std::vector<FanoutCall::Peer> peers_;
  const HeaderEncoder& headers_;
  FanoutCall* const calls_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_CUT_CALLS_H_
