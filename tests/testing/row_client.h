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
#include "worker/client/transport/shared_link.h"

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

  // Writes the value that the shard waits for before it takes pushes: the value
  // of the job's one dense element on shard 0, nothing on the others.
  absl::Status Init();
  // Hands memory of so many bytes to the ps, which has to be on this host. Then
  // payloads may go through it.
  absl::Status ShareMemory(size_t bytes);
  enum class Path { kNetwork, kSharedMemory };
  // How payloads go from now on. REQUIRES: kNetwork, or ShareMemory was OK.
  void SetPath(Path path);
  // One clock each, `in_flight` at a time. `gradients` [longest batch x dim]
  // serves all of them. A push that is refused for want of room is tried again.
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
  // Calls of one method.
  struct Calls {
    const char* method = "";
    size_t count = 0;
    std::function<grpc::ByteBuffer(size_t)> request;
    // Bytes of the answer's payload; null: it has none.
    std::function<size_t(size_t)> answer_bytes = nullptr;
    std::function<absl::Status(size_t, const grpc::ByteBuffer&)> answer =
        nullptr;
  };
  class Window;

  absl::Status Run(Calls calls, int in_flight);
  Caller MakeCaller() const;
  static absl::Span<const int64_t> KeysOf(const Message& message);
  static std::vector<Message> Messages(
      absl::Span<const RowBatch* const> batches, int64_t first_clock);

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  const uint32_t rank_;
  const TableMap map_;
  const uint32_t shard_;
  const uint32_t dim_;
  std::shared_ptr<worker::SharedLink> shared_;  // null: there is none
  Path path_ = Path::kNetwork;
  int64_t clock_ = 0;
  uint64_t refusals_ = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_ROW_CLIENT_H_
