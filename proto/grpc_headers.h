#ifndef SYNCLINE_PROTO_GRPC_HEADERS_H_
#define SYNCLINE_PROTO_GRPC_HEADERS_H_

// Precompiled for whatever links gRPC; nobody includes it. See
// syncline_precompile in CMakeLists.txt.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"

#endif  // SYNCLINE_PROTO_GRPC_HEADERS_H_
