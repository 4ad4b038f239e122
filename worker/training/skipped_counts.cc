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
                                             absl::Time deadline) {
  JobProgress counts;
  if (GradientPolicyOf(assignment.spec()) == OnNonFinite::kFailJob) {
    return counts;
  }
  ShardStatusRequest request;
  request.set_job_id(assignment.job_id());
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
      counts.set_dropped_blocks(counts.dropped_blocks() + job.dropped_blocks());
    }
  }
  return counts;
}

}  // namespace syncline::worker
