#ifndef SYNCLINE_COMMON_REGIME_COMPRESSION_MESSAGE_H_
#define SYNCLINE_COMMON_REGIME_COMPRESSION_MESSAGE_H_

#include "absl/status/statusor.h"
#include "common/regime/gradient_compression.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Errors: InvalidArgument, which names the field: a kind that is not built, or
// a number out of its range.
absl::StatusOr<GradientCompression> ReadCompression(
    const CompressionSpec& spec);

CompressionSpec ToProto(const GradientCompression& compression);

// PushHeader.compression.
inline CompressionSpec::Kind KindOf(const GradientCompression& compression) {
  return static_cast<CompressionSpec::Kind>(compression.kind);
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_REGIME_COMPRESSION_MESSAGE_H_
