#ifndef SYNCLINE_TESTS_TESTING_ROW_CLIENT_H_
#define SYNCLINE_TESTS_TESTING_ROW_CLIENT_H_

// A client of one ps that knows nothing but frames and TableMap: rows of one
// table, several batches in flight. For benchmarks, which must not measure a
// worker, and for tests of real processes.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/wire/frame.h"
#include "common/wire/table_map.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/parameter_server.grpc.pb.h"

namespace syncline {

// Rows of one shard that belong to one clock, in messages that are small enough
// both ways.
struct RowBatch {
  struct Part {
    size_t first = 0;
    size_t count = 0;
  };
  std::vector<int64_t> keys;  // by (slot, key)
  std::vector<Part> parts;    // whole slots each
  uint32_t slots = 0;         // touched ones
};

class RowClient {
 public:
  // Table 0 of the job "j-0001"; `rank` is the worker's.
  RowClient(const std::string& address, uint32_t rank, const TableMap& map,
            uint32_t shard, uint32_t dim);

  // Of `keys`, unique and in any order, those of this shard.
  RowBatch MakeBatch(absl::Span<const int64_t> keys) const;

  // The value of the job's one dense element, without which nothing starts.
  absl::Status Init();
  // One clock each, `in_flight` at a time. `gradients` [longest batch x dim]
  // serves all of them. What is refused for want of room is tried again.
  absl::Status Push(absl::Span<const RowBatch* const> batches,
                    absl::Span<const float> gradients, int in_flight);
  // Reads what this client has pushed; `rows` may be null. It is called for
  // each message, on any thread, one at a time.
  using OnRows = std::function<void(absl::Span<const int64_t> keys,
                                    const PayloadView& values)>;
  absl::Status Pull(absl::Span<const RowBatch* const> batches, int in_flight,
                    const OnRows& rows);
  absl::StatusOr<ShardStatus> Status();

  uint64_t refusals() const { return refusals_; }

 private:
  struct Message {
    const RowBatch* batch = nullptr;
    RowBatch::Part part;
    int64_t clock = 0;
  };
  class Window;

  Caller MakeCaller() const;
  static std::vector<Message> Messages(
      absl::Span<const RowBatch* const> batches, int64_t first_clock);

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  const uint32_t rank_;
  const TableMap map_;
  const uint32_t shard_;
  const uint32_t dim_;
  int64_t clock_ = 0;
  uint64_t refusals_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_ROW_CLIENT_H_
