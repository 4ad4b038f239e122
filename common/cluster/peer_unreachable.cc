#include "common/cluster/peer_unreachable.h"

#include "common/base/utf8.h"

namespace syncline {
namespace {

constexpr size_t kErrorBytesMax = 512;

}  // namespace

PeerUnreachable MakePeerUnreachable(const std::string& job_id,
                                    const Member& peer,
                                    absl::Duration out_of_reach,
                                    const absl::Status& error) {
  PeerUnreachable report;
  report.set_job_id(job_id);
  *report.mutable_peer() = peer;
  report.set_seconds(absl::ToDoubleSeconds(out_of_reach));
  const std::string text = Utf8Text(error.message());
  report.set_error(std::string(Utf8Prefix(text, kErrorBytesMax)));
  return report;
}

}  // namespace syncline
