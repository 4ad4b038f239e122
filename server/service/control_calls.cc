#include "server/service/control_calls.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/job/step_limits.h"
#include "common/regime/job_regimes.h"
#include "common/wire/wire_cut_use.h"

namespace syncline::ps {
namespace {

constexpr size_t kActivityBytesMax = 64;

// The status of the job's shard. A reduction of statistics counts as progress
// in quiet_seconds, as a push does.
ShardStatus::Job StatusOf(const JobEntry& job) {
  ShardStatus::Job status = job.shard->Status();
  if (job.statistics == nullptr) return status;
  const absl::Time moved_at = job.statistics->moved_at();
  if (moved_at == absl::InfinitePast()) return status;
  const double quiet = absl::ToDoubleSeconds(
      std::max(MonotonicNow() - moved_at, absl::Duration()));
  if (status.quiet_seconds() < 0 || quiet < status.quiet_seconds()) {
    status.set_quiet_seconds(quiet);
  }
  return status;
}

}  // namespace

absl::Status ControlCalls::BeginCut(const BeginCutRequest& request) const {
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request.caller()));
  if (request.cut_id() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(job->config.label, ": cut_id is 0, must be > 0"));
  }
  if (!(request.hold_seconds() > 0 &&
        request.hold_seconds() <= kHoldSecondsMax)) {
    return absl::InvalidArgumentError(absl::StrCat(
        job->config.label, ": hold_seconds of cut ", request.cut_id(), " is ",
        request.hold_seconds(), ", must be > 0 and at most ", kHoldSecondsMax));
  }
  const std::optional<CutUse> use = CutUseOf(request.purpose());
  if (!use.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        job->config.label, ": purpose of cut ", request.cut_id(), " is ",
        static_cast<int>(request.purpose()), ", which is none"));
  }
  std::optional<TrainingRegime> regime;
  if (use == CutUse::kRegime) {
    absl::StatusOr<TrainingRegime> read =
        ReadRegime("regime", request.regime());
    if (!read.ok()) return Annotate(read.status(), job->config.label);
    regime = *std::move(read);
  }
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kCutBegin));
  return job->shard->BeginCut(
      request.caller(), request.cut_id(),
      {request.clocks().begin(), request.clocks().end()},
      absl::Seconds(request.hold_seconds()), *use, std::move(regime));
}

absl::Status ControlCalls::EndCut(const EndCutRequest& request) const {
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request.caller()));
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kCutEnd));
  return job->shard->EndCut(request.caller(), request.cut_id(),
                            request.commit());
}

absl::Status ControlCalls::GetRegimes(const GetRegimesRequest& request,
                                      GetRegimesResponse* response) const {
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request.caller()));
  SYNCLINE_ASSIGN_OR_RETURN(const RegimeSchedule regimes,
                            job->shard->Regimes(request.caller()));
  const int workers = static_cast<int>(job->config.controller.workers.size());
  for (const TrainingRegime& regime : regimes.regimes()) {
    *response->add_regimes() = ToProto(regime);
    // A regime changes at one clock of all workers.
    response->add_cuts()->mutable_clocks()->Resize(workers, regime.first_clock);
  }
  return absl::OkStatus();
}

absl::Status ControlCalls::ReportActivity(
    const ActivityRequest& request) const {
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request.caller()));
  if (request.clock() < 0 || request.total() == 0 ||
      request.done() > request.total() ||
      request.what().size() > kActivityBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        job->config.label, ": activity of clock ", request.clock(), ", ",
        request.done(), " of ", request.total(), ", with a text of ",
        request.what().size(), " bytes; the clock must not be negative, done ",
        "at most total, total > 0 and the text at most ", kActivityBytesMax));
  }
  return job->shard->ReportActivity(
      request.caller(),
      {request.clock(), request.what(), request.done(), request.total()});
}

absl::Status ControlCalls::GetShardStatus(const ShardStatusRequest& request,
                                          ShardStatus* response) const {
  JobRegistry::Shards shards;
  if (!request.job_id().empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(shards, jobs_->AllOf(request.job_id()));
  } else {
    shards = jobs_->All();
  }
  for (const auto& shard : shards) {
    if (shard->shard == nullptr) continue;
    ShardStatus::Job* const job = response->add_jobs();
    *job = StatusOf(*shard);
    // Any member may ask, and keys are of the job's data.
    for (ShardStatus::Table& table : *job->mutable_tables()) {
      table.clear_hot_keys();
    }
  }
  response->set_in_flight_bytes(budget_->used_bytes());
  response->set_in_flight_limit_bytes(budget_->limit_bytes());
  return absl::OkStatus();
}

absl::Status ControlCalls::GetRouting(const GetRoutingRequest& request,
                                      GetRoutingResponse* response) const {
  SYNCLINE_ASSIGN_OR_RETURN(const auto access,
                            jobs_->FindAccess(request.caller()));
  *response = access->routing;
  return absl::OkStatus();
}

absl::Status ControlCalls::OfferMemory(const OfferMemoryRequest& request,
                                       OfferMemoryResponse* response) const {
  SYNCLINE_RETURN_IF_ERROR(jobs_->Find(request.caller()).status());
  SYNCLINE_ASSIGN_OR_RETURN(
      const SharedRegions::Offer offer,
      shared_->MakeOffer(request.boot_id(), MonotonicNow()));
  response->set_socket(offer.socket);
  response->set_token(offer.token);
  return absl::OkStatus();
}

absl::Status ControlCalls::AttachMemory(const AttachMemoryRequest& request,
                                        AttachMemoryResponse* response) const {
  SYNCLINE_RETURN_IF_ERROR(jobs_->Find(request.caller()).status());
  SYNCLINE_ASSIGN_OR_RETURN(
      const uint64_t region,
      shared_->Attach(request.token(),
                      request.read_only() ? SharedRegion::Access::kRead
                                          : SharedRegion::Access::kReadWrite,
                      MonotonicNow()));
  response->set_region(region);
  return absl::OkStatus();
}

}  // namespace syncline::ps
