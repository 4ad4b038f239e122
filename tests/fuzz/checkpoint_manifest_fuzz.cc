// Goal: no manifest, whoever wrote it, breaks who reads it; what is accepted is
// written again as the same.
// Method: the first byte chooses. Even: the rest is a file. Odd: it is the body
// of one, which gets its frame and checksum here, so that what it says is
// looked at: placed on shards, and compared with a job.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/checkpoint/manifest.h"
#include "common/wire/routing_table.h"

namespace syncline {
namespace {

std::string Framed(absl::string_view body) {
  std::string file;
  for (const uint32_t word : {kManifestMagic, kManifestFormat,
                              static_cast<uint32_t>(body.size()), 0u}) {
    file.append(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  const uint32_t checksum =
      ExtendCrc32c(Crc32c(absl::string_view(file).substr(0, 12)), body);
  std::memcpy(file.data() + 12, &checksum, sizeof(checksum));
  file.append(body.data(), body.size());
  return file;
}

void Read(absl::string_view file) {
  const auto manifest = DecodeManifest("fuzz", file);
  if (!manifest.ok()) return;
  const auto again = EncodeManifest(*manifest);
  SYNCLINE_CHECK(again.ok());
  const auto same = DecodeManifest("fuzz", *again);
  SYNCLINE_CHECK(same.ok());
  const JobAssignment assignment = AssignmentOf(*manifest);
  SYNCLINE_CHECK(CheckSameModel(*manifest, assignment).ok());
  // Tensors of a model are bounded elsewhere; here by the time of a run.
  double elements = 0;
  for (const ParameterInfo& parameter : assignment.parameters()) {
    double count = 1;
    for (const int64_t dim : parameter.dims()) {
      count *= static_cast<double>(dim);
    }
    elements += count > 0 ? count : 0;
  }
  if (elements < 1e6) (void)RoutingTable::Create(assignment).ok();
}

}  // namespace
}  // namespace syncline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view rest(reinterpret_cast<const char*>(data) + 1,
                               size - 1);
  syncline::Read(data[0] % 2 == 0 ? std::string(rest) : syncline::Framed(rest));
  return 0;
}
