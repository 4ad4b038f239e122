#include "worker/training/skipped_counts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/update/update_spec.h"
#include "proto/parameter_server.grpc.pb.h"

namespace syncline::worker {

absl::StatusOr<JobProgress> AskSkippedCounts(const JobAssignment& assignment,
                                             const RegimeSchedule& regimes,
                                             uint64_t dropped_before,
                                             absl::Time deadline) {
  const JobSpec& spec = assignment.spec();
  JobProgress counts;
  const OnNonFinite policy = GradientPolicyOf(spec);
  if (policy == OnNonFinite::kFailJob) return counts;
  // With SKIP_STEP in SYNC mode the clock of such a block was skipped.
  const bool drops = policy == OnNonFinite::kDropBlock || !regimes.AllSync();
  ShardStatusRequest request;
  request.set_job_id(assignment.job_id());
  uint64_t dropped = dropped_before;
  for (const Participant& ps : assignment.ps()) {
    ShardStatus status;
    const auto stub = ParameterServer::NewStub(
        MakeChannel(ps.member().address(), ExpectedPeer::kPs));
    const grpc::Status asked =
        stub->GetShardStatus(MakeContext(deadline).get(), request, &status);
    SYNCLINE_RETURN_IF_ERROR(Annotate(
        FromGrpcStatus(asked), absl::StrCat("ps at ", ps.member().address())));
    for (const ShardStatus::Job& job : status.jobs()) {
      counts.set_skipped_clocks(
          std::max(counts.skipped_clocks(), job.skipped_clocks()));
      for (const ShardStatus::Worker& worker : job.workers()) {
        dropped += worker.non_finite();
      }
    }
  }
  if (drops) counts.set_dropped_blocks(dropped);
  return counts;
}

}  // namespace syncline::worker
