#include "tests/testing/ps_fixture.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_status.h"
#include "server/checkpoint/restore.h"
#include "server/shard/shard_importer.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/fakes/shard_states.h"

namespace syncline {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(20);

std::string CheckpointDir(const PsFixture::Options& options, uint32_t rank) {
  return options.checkpoint_dir.empty()
             ? ""
             : absl::StrCat(options.checkpoint_dir, "/ps-", rank);
}

}  // namespace

PsFixture::PsFixture(const Options& options) {
  JobSpec spec = PlainSgdJob();
  spec.mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  if (options.spec) options.spec(&spec);
  AssignmentBuilder job(spec);
  for (const TrainingRegime& regime : options.regimes) job.From(regime);
  std::vector<TensorSize> tensors;
  for (const int64_t size : options.tensor_sizes) {
    const size_t tensor = tensors.size();
    tensors.push_back({absl::StrCat("t", tensor), size});
    job.Parameter(tensors.back().name, {size},
                  tensor < options.momenta.size() ? options.momenta[tensor]
                                                  : std::nullopt);
  }
  for (size_t i = 0; i < options.table_dims.size(); ++i) {
    job.Table(spec.tables(static_cast<int>(i)).name(), options.table_dims[i],
              options.ps_count);
  }
  job.Workers(options.workers);
  if (options.evaluator) job.Evaluator();
  for (uint32_t rank = 0; rank < options.ps_count; ++rank) {
    ps::PsServer::Options ps;
    ps.lanes = options.lanes;
    ps.in_flight_bytes = options.in_flight_bytes;
    ps.metrics = options.metrics;
    ps.table_memory_bytes = options.table_memory_bytes;
    ps.table_disk_bytes = options.table_disk_bytes;
    ps.spill_dir = options.spill_dir;
    ps.checkpoint_dir = CheckpointDir(options, rank);
    ps.checkpoint_wait_max = options.checkpoint_wait_max;
    if (options.snapshot_taker != nullptr) {
      ps.snapshot_taker = [taker = options.snapshot_taker,
                           rank](const std::string&) { return taker(rank); };
    }
    ps.shared_memory = options.shared_memory;
    ps.shared_memory_bytes = options.shared_memory_bytes;
    nodes_.push_back(StartPsNode(ps));
    stubs_.push_back(
        ParameterServer::NewStub(MakeChannel(nodes_.back().address())));
    job.PsAt(nodes_.back().address());
  }
  assignment_ = job.Build();
  map_ =
      std::make_unique<BlockMap>(*BlockMap::Create(tensors, options.ps_count));
  if (options.start_from.has_value()) {
    *assignment_.mutable_start_from() = *options.start_from;
    if (!assignment_.spec().start().weights_only()) {
      assignment_.set_start_clock(options.start_from->clock());
    }
  }
  for (uint32_t rank = 0; rank < options.ps_count; ++rank) {
    const absl::Status opened = Open(options, rank);
    if (opened.ok()) continue;
    opened_ = opened;
    if (options.start_from.has_value()) return;
    std::fprintf(stderr, "%s\n", opened.ToString().c_str());
    SYNCLINE_CHECK(opened.ok());
  }
}

absl::Status PsFixture::Open(const Options& options, uint32_t rank) {
  if (options.start_from.has_value()) {
    SYNCLINE_ASSIGN_OR_RETURN(
        const ps::ShardStarts starts,
        ps::StartsFromCheckpoint(assignment_, rank, nullptr,
                                 CheckpointDir(options, rank)));
    return server(rank).RestoreJob(assignment_, rank, starts, nullptr);
  }
  if (options.states.empty()) return server(rank).OpenJob(assignment_, rank);
  return server(rank).RestoreJob(assignment_, rank, StartsOf(options.states),
                                 nullptr);
}

PsFixture::~PsFixture() {
  for (PsNode& node : nodes_) node.server->Drain(absl::Now() + kTimeout);
  for (PsNode& node : nodes_) node.listening.server->Shutdown();
}

PlainWorker::PlainWorker(PsFixture* fixture, uint32_t rank)
    : fixture_(fixture), rank_(rank) {
  int64_t start = 0;
  for (const ParameterInfo& info : fixture->assignment().parameters()) {
    tensor_starts_.push_back(start);
    start += info.dims(0);
  }
}

Caller PlainWorker::caller(uint32_t shard) const {
  Caller caller;
  caller.set_shard(shard);
  caller.set_job_id("j-0001");
  caller.set_rank(rank_);
  caller.set_incarnation(100 + rank_);
  caller.set_routing_version(1);
  caller.set_attempt(kTestPass.attempt);
  caller.set_job_secret(kTestPass.secret);
  return caller;
}

std::string PlainWorker::Gather(uint32_t ps, const Flat& values) const {
  std::string bytes;
  for (const uint32_t id : fixture_->map().shard_blocks(ps)) {
    const Block& block = fixture_->map().blocks()[id];
    bytes.append(
        reinterpret_cast<const char*>(
            values.data() + tensor_starts_[block.tensor] + block.offset),
        block.count * sizeof(float));
  }
  return bytes;
}

absl::Status PlainWorker::Scatter(uint32_t ps, const PullResponse& response,
                                  Flat* values) const {
  const absl::Span<const uint32_t> ids = fixture_->map().shard_blocks(ps);
  if (!std::equal(ids.begin(), ids.end(), response.header().blocks().begin(),
                  response.header().blocks().end())) {
    return absl::InternalError("answered with other blocks");
  }
  size_t at = 0;
  for (const uint32_t id : ids) {
    const Block& block = fixture_->map().blocks()[id];
    const size_t bytes = block.count * sizeof(float);
    if (at + bytes > response.payload().size()) {
      return absl::InternalError("answered with too few bytes");
    }
    std::memcpy(values->data() + tensor_starts_[block.tensor] + block.offset,
                response.payload().data() + at, bytes);
    at += bytes;
  }
  return at == response.payload().size()
             ? absl::OkStatus()
             : absl::InternalError("answered with too many bytes");
}

absl::Status PlainWorker::Init(const Flat& values, int64_t total_clocks) {
  for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
    InitRequest request;
    *request.mutable_header()->mutable_caller() = caller(ps);
    request.mutable_header()->set_total_clocks(total_clocks);
    for (const uint32_t id : fixture_->map().shard_blocks(ps)) {
      request.mutable_header()->add_blocks(id);
    }
    request.set_payload(Gather(ps, values));
    InitResponse response;
    SYNCLINE_RETURN_IF_ERROR(FromGrpcStatus(fixture_->stub(ps).Init(
        MakeContext(absl::Now() + kTimeout).get(), request, &response)));
  }
  return absl::OkStatus();
}

PushRequest PlainWorker::MakePush(uint32_t ps, int64_t clock,
                                  const Flat& gradient,
                                  uint64_t samples) const {
  PushRequest request;
  PushHeader* header = request.mutable_header();
  *header->mutable_caller() = caller(ps);
  header->set_clock(clock);
  header->set_sample_count(samples);
  for (const uint32_t id : fixture_->map().shard_blocks(ps)) {
    header->add_blocks(id);
  }
  header->set_blocks_in_clock(header->blocks_size());
  double squares = 0;
  for (const float g : gradient) squares += double{g} * g;
  if (fixture_->assignment().spec().optimizer().clip_norm() > 0 &&
      fixture_->assignment().spec().consistency().mode() !=
          ConsistencySpec::SYNC) {
    header->set_squared_norm(squares);
  }
  request.set_payload(Gather(ps, gradient));
  return request;
}

PullRequest PlainWorker::MakePull(uint32_t ps, int64_t clock) const {
  PullRequest request;
  *request.mutable_header()->mutable_caller() = caller(ps);
  request.mutable_header()->set_clock(clock);
  request.mutable_header()->set_wait_seconds(absl::ToDoubleSeconds(kTimeout));
  for (const uint32_t id : fixture_->map().shard_blocks(ps)) {
    request.mutable_header()->add_blocks(id);
  }
  return request;
}

absl::Status PlainWorker::Send(uint32_t ps, const PushRequest& request,
                               absl::Duration timeout) {
  PushResponse response;
  return FromGrpcStatus(fixture_->stub(ps).Push(
      MakeContext(absl::Now() + timeout).get(), request, &response));
}

absl::Status PlainWorker::Send(uint32_t ps, const PullRequest& request,
                               absl::Duration timeout) {
  PullResponse response;
  return FromGrpcStatus(fixture_->stub(ps).Pull(
      MakeContext(absl::Now() + timeout).get(), request, &response));
}

absl::StatusOr<Flat> PlainWorker::PullAll(int64_t clock, uint64_t cut_id) {
  Flat values(fixture_->map().element_count());
  for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
    PullRequest request = MakePull(ps, clock);
    request.mutable_header()->set_cut_id(cut_id);
    PullResponse response;
    SYNCLINE_RETURN_IF_ERROR(FromGrpcStatus(fixture_->stub(ps).Pull(
        MakeContext(absl::Now() + kTimeout).get(), request, &response)));
    SYNCLINE_RETURN_IF_ERROR(Scatter(ps, response, &values));
  }
  return values;
}

absl::StatusOr<Flat> PlainWorker::Pull(int64_t clock) {
  return PullAll(clock, 0);
}

absl::StatusOr<Flat> PlainWorker::PullCut(uint64_t cut_id) {
  return PullAll(0, cut_id);
}

absl::Status PlainWorker::Push(int64_t clock, const Flat& gradient,
                               uint64_t samples, bool finished) {
  for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
    PushRequest request = MakePush(ps, clock, gradient, samples);
    request.mutable_header()->set_finished(finished);
    SYNCLINE_RETURN_IF_ERROR(Send(ps, request));
  }
  return absl::OkStatus();
}

absl::StatusOr<Flat> PlainWorker::PushPull(int64_t clock, const Flat& gradient,
                                           uint64_t samples, bool finished) {
  // With several shards and a clipped norm no shard answers before all have
  // been pushed to.
  SYNCLINE_RETURN_IF_ERROR(fixture_->ps_count() > 1
                               ? Push(clock, gradient, samples, finished)
                               : absl::OkStatus());
  Flat values(fixture_->map().element_count());
  for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
    PushPullRequest request;
    PushRequest push = MakePush(ps, clock, gradient, samples);
    push.mutable_header()->set_finished(finished);
    *request.mutable_header()->mutable_push() = push.header();
    *request.mutable_header()->mutable_pull() =
        MakePull(ps, clock + 1).header();
    request.mutable_header()->mutable_pull()->clear_caller();
    request.set_payload(push.payload());
    PullResponse response;
    SYNCLINE_RETURN_IF_ERROR(FromGrpcStatus(fixture_->stub(ps).PushPull(
        MakeContext(absl::Now() + kTimeout).get(), request, &response)));
    SYNCLINE_RETURN_IF_ERROR(Scatter(ps, response, &values));
  }
  return values;
}

absl::StatusOr<Flat> PlainWorker::PushPullNothing(int64_t clock) {
  for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
    PushRequest request;
    *request.mutable_header()->mutable_caller() = caller(ps);
    request.mutable_header()->set_clock(clock);
    SYNCLINE_RETURN_IF_ERROR(Send(ps, request));
  }
  return Pull(clock + 1);
}

absl::Status PlainWorker::BeginCut(uint64_t cut_id,
                                   std::vector<int64_t> clocks) {
  for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
    BeginCutRequest request;
    *request.mutable_caller() = caller(ps);
    request.set_cut_id(cut_id);
    request.mutable_clocks()->Add(clocks.begin(), clocks.end());
    request.set_hold_seconds(20);
    BeginCutResponse response;
    SYNCLINE_RETURN_IF_ERROR(FromGrpcStatus(fixture_->stub(ps).BeginCut(
        MakeContext(absl::Now() + kTimeout).get(), request, &response)));
  }
  return absl::OkStatus();
}

absl::Status PlainWorker::EndCut(uint64_t cut_id) {
  for (uint32_t ps = 0; ps < fixture_->ps_count(); ++ps) {
    EndCutRequest request;
    *request.mutable_caller() = caller(ps);
    request.set_cut_id(cut_id);
    EndCutResponse response;
    SYNCLINE_RETURN_IF_ERROR(FromGrpcStatus(fixture_->stub(ps).EndCut(
        MakeContext(absl::Now() + kTimeout).get(), request, &response)));
  }
  return absl::OkStatus();
}

}  // namespace syncline
