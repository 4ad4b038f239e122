#ifndef SYNCLINE_COMMON_CLUSTER_PEER_UNREACHABLE_H_
#define SYNCLINE_COMMON_CLUSTER_PEER_UNREACHABLE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline {

// The report of a member to the scheduler about another member of its job that
// has not answered for `out_of_reach` (PeerReach says when). `error` is the
// network's error; its text is cut to a readable length.
PeerUnreachable MakePeerUnreachable(const std::string& job_id,
                                    const Member& peer,
                                    absl::Duration out_of_reach,
                                    const absl::Status& error);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CLUSTER_PEER_UNREACHABLE_H_
