#ifndef SYNCLINE_WORKER_CLIENT_DENSE_STEPS_H_
#define SYNCLINE_WORKER_CLIENT_DENSE_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/element_type.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/chunk_builder.h"
#include "worker/client/client_context.h"

namespace syncline::worker {

// The calls of PsClient that move dense tensors: gradients of a step to the
// shards of their blocks, values back. Blocks share messages as ChunkBuilder
// says. Gradients are sent from where they lie; values are copied into their
// tensors on a thread of gRPC. row_steps.h does the same for rows of tables.
//
// No function blocks: each starts calls, whose end FanoutCall::Wait tells. One
// thread at a time.
class DenseSteps {
 public:
  // `context` outlives this, and is complete before the first call.
  explicit DenseSteps(const ClientContext* context);

  // Sends all values as the initial ones.
  void StartInit(int64_t total_clocks);

  // Asks for all values of `shard`, those that are needed first at the front;
  // nothing where the shard has no block.
  void StartPulls(uint32_t shard, int64_t clock, uint64_t cut_id);
  // Asks for no value: a shard without blocks answers when it would answer a
  // pull.
  void StartEmptyPull(uint32_t shard, int64_t clock, uint64_t cut_id);

  // Before the first gradient of a step: shards may have begun to share memory,
  // or ended it, and its gradients and the values behind it may travel in
  // another type; the size of messages follows. `changes`: those values come as
  // changes to those that the tensors have.
  void BeginStep(bool changes = false);
  // Takes the gradient of `tensor` for the open step, and sends what is full or
  // worth a message. Each message also asks for the blocks' values of the next
  // step, where the step pulls.
  void Send(uint32_t tensor);
  // Sends what Send has kept back.
  void SendRest();
  // Closes the step, which has no gradient, on `shard`, and asks for its values
  // where the step pulls.
  void StartEmptyClose(uint32_t shard);

 private:
  void SendGradients(Chunk chunk);
  void StartPull(Chunk chunk, int64_t clock, uint64_t cut_id);
  size_t ChunkBytes(uint32_t shard) const;
  // The payload of a push of the open step, of which it tells `push`.
  std::vector<grpc::Slice> Gradients(const Chunk& chunk, PushHeader* push);
  // The uncompressed gradients of the open step, and who keeps them in memory.
  std::vector<grpc::Slice> WholeGradients(const Chunk& chunk) const;
  void CountValues(size_t float32_bytes, size_t bytes) const;
  // Of a chunk of the open step, whose values travel as `type`.
  size_t BytesAs(ElementType type, const Chunk& chunk) const;
  // Of the open step's values for the next one, as they come.
  size_t PulledBytes(const Chunk& chunk) const;
  std::vector<Chunk> ShardChunks(uint32_t shard, ElementType type) const;
  // When the first of the chunk's tensors is needed.
  int64_t RankOf(const Chunk& chunk) const;
  // Copies a PullResponse for `chunk` into the parameters; `changes`: adds it
  // to them.
  absl::Status StoreValues(const Chunk& chunk, ElementType type, bool changes,
                           const grpc::ByteBuffer& response, absl::Time left);

  const ClientContext& context_;
  ChunkBuilder builder_;
  // How the open step's gradients travel, and the values that are read after
  // it. Its chunks have room for the wider one.
  // Compressed: `pushed_type_` is float32, which some blocks may come back to.
  ElementType pushed_type_ = ElementType::kFloat32;
  bool compressed_ = false;
  ElementType pulled_type_ = ElementType::kFloat32;
  bool pulls_changes_ = false;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_DENSE_STEPS_H_
