#ifndef SYNCLINE_TESTS_BENCH_MAP_SERVICE_H_
#define SYNCLINE_TESTS_BENCH_MAP_SERVICE_H_

// The baseline of `syncline-bench sparse`: what one writes first. A
// std::unordered_map from key to a vector of values and optimizer state under a
// mutex, behind the same Push and Pull, with the same row-wise Adagrad.

#include <cstdint>
#include <memory>

#include "grpcpp/impl/codegen/service_type.h"

namespace syncline {

std::unique_ptr<grpc::Service> MakeMapService(uint32_t dim);

}  // namespace syncline

#endif  // SYNCLINE_TESTS_BENCH_MAP_SERVICE_H_
