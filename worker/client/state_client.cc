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
#include "google/protobuf/io/coded_stream.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "worker/client/row_frames.h"

namespace syncline::worker {
namespace {

// Of one message; a block has no more.
constexpr size_t kPayloadFloatsMax = (1 << 20) / sizeof(float);
// Under way to one shard, and to all: while one message travels, another one is
// copied at either end. Each has a thread.
constexpr size_t kShardCallsMax = 4;
constexpr size_t kCallsMax = 16;
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

// The content of one message.
struct Load {
  std::vector<StatePiece> pieces;
  size_t elements = 0;
};

// Arrays [first_array, arrays) of the blocks that are on the shard, in messages
// that are full.
std::vector<Load> LoadsOf(const BlockMap& map, uint32_t shard,
                          absl::Span<const uint32_t> blocks,
                          uint32_t first_array, uint32_t arrays) {
  std::vector<Load> loads;
  for (const uint32_t block : blocks) {
    if (map.blocks()[block].shard != shard) continue;
    const auto count = static_cast<size_t>(map.blocks()[block].count);
    for (uint32_t array = first_array; array < arrays; ++array) {
      if (loads.empty() || loads.back().elements + count > kPayloadFloatsMax) {
        loads.emplace_back();
      }
      StatePiece piece;
      piece.set_block(block);
      piece.set_array(array);
      loads.back().pieces.push_back(std::move(piece));
      loads.back().elements += count;
    }
  }
  return loads;
}

// Calls send(load) for each, on so many threads; the first error, behind which
// no other one begins.
absl::Status SendAll(absl::Span<const Load> loads, size_t threads,
                     absl::FunctionRef<absl::Status(const Load& load)> send) {
  std::atomic<size_t> next{0};
  Mutex mu;
  absl::Status first;
  const auto run = [&] {
    for (size_t i = next++; i < loads.size(); i = next++) {
      const absl::Status status = send(loads[i]);
      if (status.ok()) continue;
      MutexLock lock(&mu);
      if (first.ok()) first = status;
      next = loads.size();
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(threads, loads.size()); ++i) {
    others.emplace_back(run);
  }
  run();
  for (std::thread& other : others) other.join();
  MutexLock lock(&mu);
  return first;
}

// The message with `values` as its field of that name, from where they lie.
grpc::ByteBuffer Encode(const WritePiecesRequest& without_values,
                        const std::vector<grpc::Slice>& values) {
  size_t bytes = 0;
  for (const grpc::Slice& slice : values) bytes += slice.size();
  std::string head = without_values.SerializeAsString();
  constexpr uint32_t kBytesField = 2;  // wire type
  uint8_t tag[16];
  uint8_t* end = google::protobuf::io::CodedOutputStream::WriteTagToArray(
      WritePiecesRequest::kValuesFieldNumber << 3 | kBytesField, tag);
  end = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(
      static_cast<uint32_t>(bytes), end);
  head.append(reinterpret_cast<const char*>(tag),
              static_cast<size_t>(end - tag));
  std::vector<grpc::Slice> slices = {grpc::Slice(head)};
  slices.insert(slices.end(), values.begin(), values.end());
  return {slices.data(), slices.size()};
}

// A call of a message that we have encoded; blocks.
grpc::Status CallEncoded(grpc::GenericStub* stub, grpc::ClientContext* context,
                         const std::string& method,
                         const grpc::ByteBuffer& request,
                         grpc::ByteBuffer* response) {
  Mutex mu;
  CondVar ended;
  bool done = false;
  grpc::Status status;
  stub->UnaryCall(context, method, grpc::StubOptions(), &request, response,
                  [&](grpc::Status result) {
                    MutexLock lock(&mu);
                    status = std::move(result);
                    done = true;
                    ended.Signal();
                  });
  MutexLock lock(&mu);
  // Its deadline is the context's.
  while (!done) ended.WaitUntil(&mu, MonotonicNow() + absl::Minutes(1));
  return status;
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
    const auto channel = MakeChannel(peers[number].address, ExpectedPeer::kPs);
    shard.stub = StateTransfer::NewStub(channel);
    shard.bulk = std::make_shared<grpc::GenericStub>(channel);
  }
  for (Shard& shard : shards) {
    shard.calls =
        std::clamp<size_t>(kCallsMax / shards.size(), 1, kShardCallsMax);
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
                                    int64_t clock, const Wanted& wanted,
                                    const Visit& visit,
                                    std::atomic<uint64_t>* moved) {
  const std::shared_ptr<const RoutedJob> job = options_.routing->job();
  const BlockMap& map = job->table.blocks();
  const auto read = [&](const Load& load) {
    ReadPiecesRequest request;
    *request.mutable_caller() = shard.caller;
    request.set_cut_id(cut_id);
    for (const StatePiece& piece : load.pieces) *request.add_pieces() = piece;
    ReadPiecesResponse response;
    absl::Status status = Call(shard, "ReadPieces", clock, [&](auto* context) {
      return shard.stub->ReadPieces(context, request, &response);
    });
    SYNCLINE_RETURN_IF_ERROR(status);
    if (response.values().size() != load.elements * sizeof(float) ||
        response.pieces_size() != request.pieces_size() ||
        Crc32c(response.values()) != response.crc32c()) {
      return absl::DataLossError(absl::StrCat(
          shard.name, ", job ", options_.job_id, ", ReadPieces, clock ", clock,
          ": the state came with another size or checksum"));
    }
    absl::string_view rest = response.values();
    for (int i = 0; i < response.pieces_size(); ++i) {
      const StatePiece& piece = request.pieces(i);
      const StatePiece& given = response.pieces(i);
      if (given.block() != piece.block() || given.array() != piece.array()) {
        return absl::DataLossError(absl::StrCat(
            shard.name, ", job ", options_.job_id, ", ReadPieces, clock ",
            clock, ": array ", given.array(), " of block ", given.block(),
            " came in place of array ", piece.array(), " of block ",
            piece.block()));
      }
      const size_t bytes =
          static_cast<size_t>(map.blocks()[piece.block()].count) *
          sizeof(float);
      visit(piece.block(), piece.array(), rest.substr(0, bytes),
            given.updates());
      rest.remove_prefix(bytes);
    }
    moved->fetch_add(load.pieces.size());
    return absl::OkStatus();
  };
  return SendAll(LoadsOf(map, shard.number, wanted.blocks, wanted.first_array,
                         wanted.arrays),
                 shard.calls, read);
}

absl::StatusOr<ShardStateHeader> StateClient::Read(uint64_t cut_id,
                                                   int64_t clock,
                                                   const Wanted& wanted,
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
        if (header.slots() + 1 != wanted.arrays) {
          return absl::InvalidArgumentError(absl::StrCat(
              shard.name, ", job ", options_.job_id, ": its optimizer has ",
              header.slots(), " slots, not ", wanted.arrays - 1));
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
        return ReadShard(shard, cut_id, clock, wanted, visit, &moved);
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
  const auto write = [&](const Load& load) -> absl::Status {
    WritePiecesRequest request;
    *request.mutable_caller() = shard.caller;
    request.set_transfer(transfer);
    std::vector<grpc::Slice> values;
    uint32_t crc = 0;
    for (const StatePiece& piece : load.pieces) {
      StatePiece* const sent = request.add_pieces();
      *sent = piece;
      sent->set_updates(source.updates_of(piece.block()));
      const absl::Span<const float> array =
          source.array_of(piece.block(), piece.array());
      const size_t bytes = array.size() * sizeof(float);
      crc = ExtendCrc32c(crc,
                         {reinterpret_cast<const char*>(array.data()), bytes});
      values.push_back(BorrowedSlice(array.data(), bytes, source.owner));
    }
    request.set_crc32c(crc);
    const grpc::ByteBuffer encoded = Encode(request, values);
    absl::Status status = Call(shard, "WritePieces", clock, [&](auto* context) {
      grpc::ByteBuffer response;  // has no field
      return CallEncoded(shard.bulk.get(), context,
                         "/syncline.StateTransfer/WritePieces", encoded,
                         &response);
    });
    if (status.ok()) moved->fetch_add(load.pieces.size());
    return status;
  };
  return SendAll(LoadsOf(map, shard.number, source.blocks, /*first_array=*/0,
                         source.arrays),
                 shard.calls, write);
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
