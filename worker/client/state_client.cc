#include "worker/client/state_client.h"

#include <algorithm>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/busy.h"
#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/regime/job_regimes.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"

namespace syncline::worker {
namespace {

// Of one message; a block has no more.
constexpr size_t kPayloadFloatsMax = (1 << 20) / sizeof(float);
// A shard's room comes free as soon as some call there ends.
constexpr absl::Duration kBusyWait = absl::Milliseconds(20);
constexpr absl::Duration kProgressPeriod = absl::Seconds(1);

void WaitFor(absl::Duration time) {
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  never.WaitUntil(&mu, MonotonicNow() + time);
}

void NoProgress() {}

// Pieces of the blocks, in messages that are full: calls
// send(pieces, elements) for each message.
template <typename Send>
absl::Status InMessages(const BlockMap& map, absl::Span<const uint32_t> blocks,
                        uint32_t arrays, Send send) {
  std::vector<StatePiece> pieces;
  size_t elements = 0;
  for (const uint32_t block : blocks) {
    const auto count = static_cast<size_t>(map.blocks()[block].count);
    for (uint32_t array = 0; array < arrays; ++array) {
      if (!pieces.empty() && elements + count > kPayloadFloatsMax) {
        SYNCLINE_RETURN_IF_ERROR(send(pieces, elements));
        pieces.clear();
        elements = 0;
      }
      pieces.emplace_back();
      pieces.back().set_block(block);
      pieces.back().set_array(array);
      elements += count;
    }
  }
  return pieces.empty() ? absl::OkStatus() : send(pieces, elements);
}

void AddUp(const ShardStateHeader& of, ShardStateHeader* all) {
  if (all->workers().empty()) {
    *all = of;
    return;
  }
  all->set_skipped_clocks(std::max(all->skipped_clocks(), of.skipped_clocks()));
  all->set_skipped_through(
      std::max(all->skipped_through(), of.skipped_through()));
  all->set_non_finite(all->non_finite() + of.non_finite());
  all->set_blocks(all->blocks() + of.blocks());
  for (int i = 0; i < std::min(all->workers_size(), of.workers_size()); ++i) {
    ShardStateHeader::Worker* const worker = all->mutable_workers(i);
    worker->set_non_finite(worker->non_finite() + of.workers(i).non_finite());
  }
}

}  // namespace

absl::Status StateClient::ForEachShard(
    absl::FunctionRef<absl::Status(const Shard& shard)> visit,
    absl::FunctionRef<void()> tick) {
  const std::shared_ptr<const RoutedJob> job = options_.routing->job();
  const std::vector<FanoutCall::Peer> peers = job->Peers();
  std::vector<Shard> shards;
  for (uint32_t number = 0; number < peers.size(); ++number) {
    if (job->table.blocks().shard_blocks(number).empty()) continue;
    Shard& shard = shards.emplace_back();
    shard.number = number;
    shard.is_first = shards.size() == 1;
    shard.caller = options_.routing->caller();
    shard.caller.set_shard(number);
    shard.name =
        absl::StrCat(peers[number].name, " at ", peers[number].address);
    shard.stub = StateTransfer::NewStub(
        MakeChannel(peers[number].address, ExpectedPeer::kPs));
    shard.blocks = job->table.blocks().shard_blocks(number);
  }
  std::vector<absl::Status> statuses(shards.size());
  Mutex mu;
  CondVar ended;
  size_t left = shards.size();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < shards.size(); ++i) {
    threads.emplace_back([&, i] {
      statuses[i] = visit(shards[i]);
      MutexLock lock(&mu);
      --left;
      ended.SignalAll();
    });
  }
  const auto all_end_soon = [&] {
    const absl::Time until = MonotonicNow() + kProgressPeriod;
    MutexLock lock(&mu);
    while (left > 0 && MonotonicNow() < until) ended.WaitUntil(&mu, until);
    return left == 0;
  };
  while (!all_end_soon()) tick();
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    SYNCLINE_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status StateClient::Call(
    const Shard& shard, absl::string_view method, int64_t clock,
    absl::FunctionRef<grpc::Status(grpc::ClientContext*)> call) {
  const absl::Time deadline = MonotonicNow() + options_.timeout;
  absl::Status status;
  while (true) {
    const auto context = MakeContext(deadline);
    {
      const Cancellation::Scope scope(&cancellation_,
                                      [&] { context->TryCancel(); });
      status = FromGrpcStatus(call(context.get()));
    }
    if (cancellation_.cancelled()) {
      return absl::CancelledError("the job has ended, or was stopped");
    }
    if (!IsBusy(status) || MonotonicNow() + kBusyWait >= deadline) break;
    WaitFor(kBusyWait);
  }
  return Annotate(status, absl::StrCat(shard.name, ", job ", options_.job_id,
                                       ", ", method, ", clock ", clock));
}

absl::StatusOr<std::optional<StateClient::Proposal>> StateClient::GetProposal(
    int64_t clock) {
  Mutex mu;
  std::vector<GetProposalResponse> answers;
  SYNCLINE_RETURN_IF_ERROR(ForEachShard(
      [&](const Shard& shard) {
        GetProposalRequest request;
        *request.mutable_caller() = shard.caller;
        GetProposalResponse response;
        const absl::Status status =
            Call(shard, "GetProposal", clock, [&](auto* context) {
              return shard.stub->GetProposal(context, request, &response);
            });
        MutexLock lock(&mu);
        answers.push_back(std::move(response));
        return status;
      },
      NoProgress));
  MutexLock lock(&mu);
  for (const GetProposalResponse& answer : answers) {
    if (answer.cut_id() == answers[0].cut_id()) continue;
    return absl::UnavailableError(
        "a change of the regime is announced at some ps alone");
  }
  if (answers.empty() || answers[0].cut_id() == 0) return std::nullopt;
  SYNCLINE_ASSIGN_OR_RETURN(const TrainingRegime regime,
                            ReadRegime("regime", answers[0].regime()));
  return Proposal{answers[0].cut_id(), regime};
}

absl::Status StateClient::ReadShard(const Shard& shard, uint64_t cut_id,
                                    int64_t clock, uint32_t arrays,
                                    const Visit& visit,
                                    std::atomic<uint64_t>* moved) {
  const std::shared_ptr<const RoutedJob> job = options_.routing->job();
  const BlockMap& map = job->table.blocks();
  const auto read = [&](absl::Span<const StatePiece> pieces, size_t elements) {
    ReadPiecesRequest request;
    *request.mutable_caller() = shard.caller;
    request.set_cut_id(cut_id);
    for (const StatePiece& piece : pieces) *request.add_pieces() = piece;
    ReadPiecesResponse response;
    absl::Status status = Call(shard, "ReadPieces", clock, [&](auto* context) {
      return shard.stub->ReadPieces(context, request, &response);
    });
    SYNCLINE_RETURN_IF_ERROR(status);
    if (response.values().size() != elements * sizeof(float) ||
        response.pieces_size() != request.pieces_size() ||
        Crc32c(response.values()) != response.crc32c()) {
      return absl::DataLossError(absl::StrCat(
          shard.name, ", job ", options_.job_id, ", ReadPieces, clock ", clock,
          ": the state came with another size or checksum"));
    }
    absl::string_view rest = response.values();
    for (const StatePiece& piece : response.pieces()) {
      const size_t bytes =
          static_cast<size_t>(map.blocks()[piece.block()].count) *
          sizeof(float);
      visit(piece.block(), piece.array(), rest.substr(0, bytes),
            piece.updates());
      rest.remove_prefix(bytes);
    }
    moved->fetch_add(pieces.size());
    return absl::OkStatus();
  };
  return InMessages(map, shard.blocks, arrays, read);
}

absl::StatusOr<ShardStateHeader> StateClient::Read(uint64_t cut_id,
                                                   int64_t clock,
                                                   uint32_t arrays,
                                                   const Visit& visit,
                                                   const Progress& progress) {
  std::atomic<uint64_t> moved{0};
  Mutex mu;
  ShardStateHeader all;
  SYNCLINE_RETURN_IF_ERROR(ForEachShard(
      [&](const Shard& shard) -> absl::Status {
        ReadHeaderRequest request;
        *request.mutable_caller() = shard.caller;
        request.set_cut_id(cut_id);
        ReadHeaderResponse response;
        SYNCLINE_RETURN_IF_ERROR(
            Call(shard, "ReadHeader", clock, [&](auto* context) {
              return shard.stub->ReadHeader(context, request, &response);
            }));
        const ShardStateHeader& header = response.header();
        if (header.slots() + 1 != arrays) {
          return absl::InvalidArgumentError(absl::StrCat(
              shard.name, ", job ", options_.job_id, ": its optimizer has ",
              header.slots(), " slots, not ", arrays - 1));
        }
        // Steps that a worker left out count as all blocks (PsReport).
        uint64_t left_out = 0;
        for (const auto& worker : header.workers()) {
          left_out += worker.left_out_pushes() * header.blocks();
        }
        {
          MutexLock lock(&mu);
          AddUp(header, &all);
          all.set_non_finite(all.non_finite() + left_out);
        }
        return ReadShard(shard, cut_id, clock, arrays, visit, &moved);
      },
      [&] {
        if (progress != nullptr) progress(moved.load());
      }));
  MutexLock lock(&mu);
  return all;
}

absl::Status StateClient::WriteShard(const Shard& shard, uint64_t transfer,
                                     int64_t clock, const Source& source,
                                     std::atomic<uint64_t>* moved) {
  const std::shared_ptr<const RoutedJob> job = options_.routing->job();
  const BlockMap& map = job->table.blocks();
  std::vector<uint32_t> here;
  for (const uint32_t block : source.blocks) {
    if (map.blocks()[block].shard == shard.number) here.push_back(block);
  }
  const auto write = [&](absl::Span<const StatePiece> pieces,
                         size_t elements) -> absl::Status {
    WritePiecesRequest request;
    *request.mutable_caller() = shard.caller;
    request.set_transfer(transfer);
    request.mutable_values()->reserve(elements * sizeof(float));
    for (const StatePiece& piece : pieces) {
      StatePiece* const sent = request.add_pieces();
      *sent = piece;
      sent->set_updates(source.updates_of(piece.block()));
      const absl::Span<const float> array =
          source.array_of(piece.block(), piece.array());
      request.mutable_values()->append(
          reinterpret_cast<const char*>(array.data()),
          array.size() * sizeof(float));
    }
    request.set_crc32c(Crc32c(request.values()));
    WritePiecesResponse response;
    absl::Status status = Call(shard, "WritePieces", clock, [&](auto* context) {
      return shard.stub->WritePieces(context, request, &response);
    });
    if (status.ok()) moved->fetch_add(pieces.size());
    return status;
  };
  return InMessages(map, here, source.arrays, write);
}

absl::Status StateClient::Write(uint64_t transfer, int64_t clock,
                                const Source& source,
                                const Progress& progress) {
  std::atomic<uint64_t> moved{0};
  return ForEachShard(
      [&](const Shard& shard) {
        return WriteShard(shard, transfer, clock, source, &moved);
      },
      [&] {
        if (progress != nullptr) progress(moved.load());
      });
}

absl::Status StateClient::TakeBack(uint64_t transfer, int64_t clock,
                                   const ShardStateHeader& header,
                                   const RegimeSchedule& regimes) {
  return ForEachShard(
      [&](const Shard& shard) {
        TakeBackRequest request;
        *request.mutable_caller() = shard.caller;
        request.set_transfer(transfer);
        *request.mutable_header() = header;
        // Counts of the job are added up over the shards, but for those of
        // clocks.
        if (!shard.is_first) {
          request.mutable_header()->clear_non_finite();
          for (auto& worker : *request.mutable_header()->mutable_workers()) {
            worker.clear_non_finite();
          }
        }
        for (const TrainingRegime& regime : regimes.regimes()) {
          *request.add_regimes() = ToProto(regime);
        }
        TakeBackResponse response;
        return Call(shard, "TakeBack", clock, [&](auto* context) {
          return shard.stub->TakeBack(context, request, &response);
        });
      },
      NoProgress);
}

}  // namespace syncline::worker
