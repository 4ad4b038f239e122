#ifndef SYNCLINE_SERVER_SHARD_SHARD_TRANSFER_H_
#define SYNCLINE_SERVER_SHARD_SHARD_TRANSFER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "proto/state_transfer.pb.h"
#include "server/shard/job_shard.h"

namespace syncline::ps {

// One shard's part where its state goes to the workers, and comes back:
// proto/state_transfer.proto has the contract of each call. The callers' passes
// are checked by who hands the requests in. Thread-safe. Each call blocks until
// the lanes have copied what it names; so not from a lane, nor from a thread of
// gRPC.
class ShardTransfer {
 public:
  explicit ShardTransfer(std::shared_ptr<JobShard> shard);

  absl::Status GetProposal(const GetProposalRequest& request,
                           GetProposalResponse* response) const;
  absl::Status ReadHeader(const ReadHeaderRequest& request,
                          ReadHeaderResponse* response) const;
  absl::Status ReadPieces(const ReadPiecesRequest& request,
                          ReadPiecesResponse* response) const;
  absl::Status WritePieces(const WritePiecesRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status TakeBack(const TakeBackRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Place {
    BlockIndex block = 0;
    size_t first = 0;  // element of the payload
    size_t count = 0;
  };
  // Counts a call of WritePieces that is about to copy. Ids of transfers grow
  // with the clocks of their changes. Errors: FailedPrecondition: a later
  // transfer has begun; BusyError: pieces of an earlier one are being copied.
  absl::Status BeginWriting(uint64_t transfer) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CopyPieces(const WritePiecesRequest& request,
                          const std::vector<Place>& places);
  absl::Status CheckTrains(const Caller& caller) const;
  // Where the pieces are here and in the payload. Errors: InvalidArgument.
  absl::StatusOr<std::vector<Place>> PlacesOf(
      const google::protobuf::RepeatedPtrField<StatePiece>& pieces) const;
  size_t ArrayCount() const;
  absl::StatusOr<JobShard::TakenState> ReadTaken(
      const ShardStateHeader& header) const;

  const std::shared_ptr<JobShard> shard_;
  absl::flat_hash_map<uint32_t, BlockIndex> index_of_;  // by global id
  Mutex mu_;
  // The latest transfer, what has come of it, by block and array, and how many
  // calls copy its pieces right now: no other transfer's are copied then.
  uint64_t transfer_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<bool> came_ ABSL_GUARDED_BY(mu_);
  int writing_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_SHARD_TRANSFER_H_
