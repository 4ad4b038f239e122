#ifndef SYNCLINE_SERVER_SERVICE_PAYLOAD_SOURCE_H_
#define SYNCLINE_SERVER_SERVICE_PAYLOAD_SOURCE_H_

#include <cstddef>
#include <memory>

#include "common/update/float_source.h"
#include "common/wire/frame.h"
#include "proto/parameter_server.pb.h"
#include "server/shard/shard_layout.h"

namespace syncline::ps {

// The payload of a received frame, as the shard reads it: keys as bytes, values
// as float32. Immutable.
class PayloadSource : public FloatSource, public ByteSource {};

// `type`: of the payload's values. A type that is not known is read as float32:
// the check of its header refuses the call.
std::shared_ptr<const PayloadSource> MakePayloadSource(PayloadView view,
                                                       WireType type);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_PAYLOAD_SOURCE_H_
