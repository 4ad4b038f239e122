#include "server/shard/shard_transfer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/busy.h"
#include "common/base/crc32c.h"
#include "common/base/fault_points.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/regime/job_regimes.h"
#include "common/state/shard_state_stream.h"
#include "common/update/optimizer_state.h"

namespace syncline::ps {
namespace {

// Of a message's payload: the largest block.
constexpr size_t kPayloadBytesMax = 1 << 20;

}  // namespace

ShardTransfer::ShardTransfer(std::shared_ptr<JobShard> shard)
    : shard_(std::move(shard)) {
  const absl::Span<const uint32_t> ids = shard_->layout().ids();
  for (BlockIndex i = 0; i < ids.size(); ++i) index_of_[ids[i]] = i;
}

absl::Status ShardTransfer::CheckTrains(const Caller& caller) const {
  const auto& options = shard_->config().controller;
  SYNCLINE_RETURN_IF_ERROR(
      options.CheckCaller(caller.rank(), caller.incarnation()));
  if (options.is_worker(caller.rank())) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      shard_->config().label, ": the evaluator has no part in the state"));
}

size_t ShardTransfer::ArrayCount() const {
  return static_cast<size_t>(shard_->executor()->dense().arrays());
}

absl::StatusOr<std::vector<ShardTransfer::Place>> ShardTransfer::PlacesOf(
    const google::protobuf::RepeatedPtrField<StatePiece>& pieces) const {
  const std::string& label = shard_->config().label;
  std::vector<Place> places;
  size_t elements = 0;
  for (const StatePiece& piece : pieces) {
    const auto found = index_of_.find(piece.block());
    if (found == index_of_.end() || piece.array() >= ArrayCount()) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, ": has no array ", piece.array(), " of block ",
                       piece.block()));
    }
    const size_t count = shard_->layout().counts()[found->second];
    places.push_back({found->second, elements, count});
    elements += count;
    if (elements * sizeof(float) > kPayloadBytesMax && places.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, ": the pieces of one message have more than ",
                       kPayloadBytesMax, " bytes"));
    }
  }
  return places;
}

absl::Status ShardTransfer::GetProposal(const GetProposalRequest& request,
                                        GetProposalResponse* response) const {
  SYNCLINE_ASSIGN_OR_RETURN(const auto proposal,
                            shard_->ProposedRegime(request.caller()));
  if (!proposal.has_value()) return absl::OkStatus();
  response->set_cut_id(proposal->cut_id);
  *response->mutable_regime() = ToProto(proposal->regime);
  return absl::OkStatus();
}

absl::Status ShardTransfer::ReadHeader(const ReadHeaderRequest& request,
                                       ReadHeaderResponse* response) const {
  SYNCLINE_RETURN_IF_ERROR(CheckTrains(request.caller()));
  int64_t total_clocks = 0;
  SYNCLINE_ASSIGN_OR_RETURN(
      const ControllerState state,
      shard_->StateAtCut(request.cut_id(), &total_clocks));
  // Lanes may still find what is not finite; they are done behind this.
  for (int lane = 0; lane < shard_->lanes().count(); ++lane) {
    SYNCLINE_RETURN_IF_ERROR(shard_->RunAtCut(request.cut_id(), lane,
                                              [] { return absl::OkStatus(); }));
  }
  const NonFiniteLog& non_finite = shard_->non_finite();
  SYNCLINE_RETURN_IF_ERROR(non_finite.failure());
  ShardStateHeader* const header = response->mutable_header();
  header->set_format(kShardStateFormat);
  header->set_job_id(shard_->config().job_id);
  header->set_ps_rank(shard_->config().shard);
  header->set_cut_id(request.cut_id());
  for (uint32_t rank = 0; rank < state.workers.size(); ++rank) {
    ShardStateHeader::Worker* const worker = header->add_workers();
    worker->set_closed(state.workers[rank].closed);
    worker->set_finished(state.workers[rank].finished);
    worker->set_left_out_pushes(state.workers[rank].left_out_pushes);
    worker->set_non_finite(non_finite.CountOf(rank));
  }
  header->set_total_clocks(total_clocks);
  header->set_optimizer(OptimizerStateName(shard_->config().update.optimizer));
  header->set_slots(static_cast<uint32_t>(ArrayCount() - 1));
  header->set_blocks(static_cast<uint32_t>(shard_->layout().counts().size()));
  header->set_skipped_clocks(state.skipped_clocks);
  header->set_skipped_through(state.skipped_through);
  header->set_non_finite(non_finite.total());
  return absl::OkStatus();
}

absl::Status ShardTransfer::ReadPieces(const ReadPiecesRequest& request,
                                       ReadPiecesResponse* response) const {
  SYNCLINE_RETURN_IF_ERROR(CheckTrains(request.caller()));
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<Place> places,
                            PlacesOf(request.pieces()));
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kStatePiece));
  const DenseUpdater& dense = shard_->executor()->dense();
  size_t elements = 0;
  for (const Place& place : places) elements += place.count;
  std::string* const values = response->mutable_values();
  values->resize(elements * sizeof(float));
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    StatePiece* const piece = response->add_pieces();
    *piece = request.pieces(static_cast<int>(i));
    SYNCLINE_RETURN_IF_ERROR(shard_->RunAtCut(
        request.cut_id(), shard_->lanes().LaneOf(place.block),
        [&]() -> absl::Status {
          if (!dense.IsSettled(place.block)) {
            return absl::InternalError(
                absl::StrCat(shard_->config().label, ": gradients of block ",
                             piece->block(), " are not applied at a cut"));
          }
          const absl::Span<const float> array =
              dense.array(place.block, static_cast<int>(piece->array()));
          std::memcpy(values->data() + place.first * sizeof(float),
                      array.data(), place.count * sizeof(float));
          piece->set_updates(dense.updates(place.block));
          return absl::OkStatus();
        }));
  }
  response->set_crc32c(Crc32c(*values));
  return absl::OkStatus();
}

absl::Status ShardTransfer::WritePieces(const WritePiecesRequest& request) {
  const std::string& label = shard_->config().label;
  SYNCLINE_RETURN_IF_ERROR(CheckTrains(request.caller()));
  SYNCLINE_RETURN_IF_ERROR(shard_->CheckAway());
  if (request.transfer() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(label, ": transfer is 0"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<Place> places,
                            PlacesOf(request.pieces()));
  size_t elements = 0;
  for (const Place& place : places) elements += place.count;
  if (request.values().size() != elements * sizeof(float)) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": ", request.values().size(),
                     " bytes came for pieces of ", elements, " elements"));
  }
  if (Crc32c(request.values()) != request.crc32c()) {
    return absl::DataLossError(absl::StrCat(
        label, ": pieces of the state came with another checksum"));
  }
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kStatePiece));
  SYNCLINE_RETURN_IF_ERROR(BeginWriting(request.transfer()));
  absl::Status copied = CopyPieces(request, places);
  MutexLock lock(&mu_);
  --writing_;
  if (!copied.ok()) return copied;
  for (size_t i = 0; i < places.size(); ++i) {
    came_[places[i].block * ArrayCount() +
          request.pieces(static_cast<int>(i)).array()] = true;
  }
  return absl::OkStatus();
}

absl::Status ShardTransfer::BeginWriting(uint64_t transfer) {
  const std::string& label = shard_->config().label;
  MutexLock lock(&mu_);
  // A call that comes late must not copy over what a later transfer has
  // brought.
  if (transfer < transfer_) {
    return absl::FailedPreconditionError(
        absl::StrCat(label, ": the state of transfer ", transfer,
                     " comes too late: transfer ", transfer_, " has begun"));
  }
  if (transfer > transfer_) {
    if (writing_ > 0) {
      return BusyError(absl::StrCat(label, ": pieces of transfer ", transfer_,
                                    " are still being copied"));
    }
    transfer_ = transfer;
    came_.assign(index_of_.size() * ArrayCount(), false);
  }
  ++writing_;
  return absl::OkStatus();
}

absl::Status ShardTransfer::CopyPieces(const WritePiecesRequest& request,
                                       const std::vector<Place>& places) {
  const std::string& label = shard_->config().label;
  DenseUpdater& dense = shard_->executor()->dense();
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    const StatePiece& piece = request.pieces(static_cast<int>(i));
    if (piece.updates() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, ": block ", piece.block(), " was updated ",
                       piece.updates(), " times"));
    }
    SYNCLINE_RETURN_IF_ERROR(shard_->RunWhileAway(
        shard_->lanes().LaneOf(place.block), [&]() -> absl::Status {
          if (shard_->snapshots() != nullptr) {
            shard_->snapshots()->OnWrite(place.block);
          }
          const absl::Span<float> array =
              dense.mutable_array(place.block, static_cast<int>(piece.array()));
          std::memcpy(array.data(),
                      request.values().data() + place.first * sizeof(float),
                      place.count * sizeof(float));
          dense.SetUpdates(place.block, piece.updates());
          return absl::OkStatus();
        }));
  }
  return absl::OkStatus();
}

absl::StatusOr<JobShard::TakenState> ShardTransfer::ReadTaken(
    const ShardStateHeader& header) const {
  const JobConfig& config = shard_->config();
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(
        config.label, ": cannot go on with the workers' state: ", why...));
  };
  const std::string optimizer = OptimizerStateName(config.update.optimizer);
  if (header.format() != kShardStateFormat) {
    return refuse("its format is ", header.format(), ", not ",
                  kShardStateFormat);
  }
  if (header.optimizer() != optimizer ||
      header.slots() + size_t{1} != ArrayCount()) {
    return refuse("its optimizer is '",
                  Printable(header.optimizer().substr(0, 100)), "' with ",
                  header.slots(), " slots, the job's is '", optimizer,
                  "' with ", ArrayCount() - 1);
  }
  if (static_cast<size_t>(header.workers_size()) !=
      config.controller.workers.size()) {
    return refuse("it is of ", header.workers_size(), " workers, the job has ",
                  config.controller.workers.size());
  }
  JobShard::TakenState taken;
  taken.total_clocks = header.total_clocks();
  taken.non_finite_total = header.non_finite();
  taken.controller.skipped_clocks = header.skipped_clocks();
  taken.controller.skipped_through = header.skipped_through();
  for (const ShardStateHeader::Worker& worker : header.workers()) {
    if (worker.closed() != header.workers(0).closed() || worker.finished()) {
      return refuse("its workers are not at one clock, or have finished");
    }
    taken.controller.workers.push_back(
        {.closed = worker.closed(),
         .left_out_pushes = worker.left_out_pushes()});
    taken.non_finite.push_back(worker.non_finite());
  }
  return taken;
}

absl::Status ShardTransfer::TakeBack(const TakeBackRequest& request) {
  const JobConfig& config = shard_->config();
  SYNCLINE_RETURN_IF_ERROR(CheckTrains(request.caller()));
  if (request.caller().rank() != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(config.label, ": rank ", request.caller().rank(),
                     " is not the chief, who says that the state is here"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const JobShard::TakenState taken,
                            ReadTaken(request.header()));
  const absl::StatusOr<RegimeSchedule> regimes = ReadRegimes(request.regimes());
  if (!regimes.ok()) return Annotate(regimes.status(), config.label);
  const TrainingRegime& last = regimes->regimes().back();
  if (!last.has_ps() || !last.sync() ||
      last.first_clock != taken.controller.workers[0].closed) {
    return absl::InvalidArgumentError(absl::StrCat(
        config.label, ": the regime from clock ", last.first_clock,
        " is not one with ps in SYNC that begins where the workers are, clock ",
        taken.controller.workers[0].closed));
  }
  {
    MutexLock lock(&mu_);
    const auto absent = transfer_ == request.transfer()
                            ? std::find(came_.begin(), came_.end(), false)
                            : came_.begin();
    if (transfer_ != request.transfer() || absent != came_.end()) {
      const size_t at = static_cast<size_t>(absent - came_.begin());
      return absl::FailedPreconditionError(absl::StrCat(
          config.label, ": the state at clock ", last.first_clock,
          " has not come whole: array ", at % ArrayCount(), " of block ",
          shard_->layout().ids()[at / ArrayCount()], " is missing"));
    }
    if (writing_ > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(config.label, ": the state at clock ", last.first_clock,
                       " is still being copied"));
    }
  }
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kStateTakeBack));
  return shard_->TakeBack(taken, *regimes);
}

}  // namespace syncline::ps
