#ifndef SYNCLINE_WORKER_COMPUTE_TYPE_RULES_H_
#define SYNCLINE_WORKER_COMPUTE_TYPE_RULES_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace syncline::worker {

// Which types an operator's float32 inputs and outputs have in a plan of mixed
// precision. Positions are as in common/model/graph/operator_list.h.
//
// Source: Micikevicius et al., Mixed Precision Training, ICLR 2018, and
// PyTorch's lists of what autocast runs in 16 bits, in float32 and in the
// widest of its inputs (torch/amp, "Autocast Op Reference"). Other than there,
// normalizations have the type of their input: their statistics, scales and
// sums are float32 inside, as in PyTorch's kernels for 16 bits.
struct TypeRule {
  enum class Kind {
    kFloat32,   // computes and writes float32
    kNarrow,    // products: reads and writes 16 bits
    kFollows,   // writes 16 bits if all that it reads of the data has them
    kIsViewOf,  // the type of its input, whatever that is
  };
  Kind kind = Kind::kFloat32;
  uint32_t inputs = 0;   // that are rounded (kNarrow), or followed (kFollows)
  uint32_t outputs = 0;  // that may have 16 bits
};

// Of an operator that the list does not name: kFloat32, which is always right.
TypeRule TypeRuleOf(absl::string_view op_type);
// Rows of the list.
int TypeRuleCount();

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_TYPE_RULES_H_
