#ifndef SYNCLINE_SERVER_SERVICE_ANSWER_FRAME_H_
#define SYNCLINE_SERVER_SERVICE_ANSWER_FRAME_H_

#include "grpcpp/support/byte_buffer.h"
#include "proto/parameter_server.pb.h"
#include "server/memory/in_flight_budget.h"
#include "server/shard/embedding_tables.h"
#include "server/shard/job_shard.h"

namespace syncline::ps {

// The answers of calls whose payload bypasses protobuf (common/wire/frame.h).
// Payloads are not copied: a slice owns the buffer, with its part of the
// budget, until gRPC has sent it.

// A message without any field.
grpc::ByteBuffer EmptyMessage();
// A PushResponse.
grpc::ByteBuffer OutcomeMessage(PushResponse::Outcome outcome);
// A PullResponse to the worker `rank`. The values are in the message, or in the
// caller's shared memory if they were read into it.
grpc::ByteBuffer PullFrame(JobShard* shard, uint32_t rank, PullValues values);
// A ScanTableResponse; `room` is the rows' part of the budget.
grpc::ByteBuffer ScanFrame(EmbeddingTables::Scanned rows,
                           InFlightBudget::Hold room);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_ANSWER_FRAME_H_
