#ifndef SYNCLINE_WORKER_INITIALIZERS_H_
#define SYNCLINE_WORKER_INITIALIZERS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/graph.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// How many values feed one output of a parameter's operator, and how many
// outputs one value feeds: what Xavier and He scale by.
struct Fans {
  int64_t in = 1;
  int64_t out = 1;
};

// Fans of the initializer `value`, by the first node that reads it:
//   Gemm     B [in, out], with transB [out, in]; A [out, in], with transA
//            [in, out]
//   MatMul   second input [.., in, out], first input [.., out, in]
//   others   (biases, scales): [n] has in = out = n, a scalar 1; otherwise
//            [in, out, ...], with what follows counted in both
Fans FansOf(const Graph& graph, ValueId value);

// Fills `values` by `rule`. The values depend on the rule, `fans`, `seed` and
// `name` alone: neither on other parameters nor on the order of calls nor on
// the number of servers. REQUIRES: the rule is valid.
void InitializeParameter(const InitializerRule& rule, const Fans& fans,
                         uint64_t seed, absl::string_view name,
                         absl::Span<float> values);

}  // namespace syncline

#endif  // SYNCLINE_WORKER_INITIALIZERS_H_
