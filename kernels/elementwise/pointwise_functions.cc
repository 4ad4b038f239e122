#include "kernels/elementwise/pointwise_functions.h"

namespace syncline {

GradientReads GradientReadsOf(PointwiseFunction function) {
  static constexpr GradientReads kReads[] = {
#define SYNCLINE_READS_OF(name) GradientReadsOf<pointwise::name>(),
      SYNCLINE_POINTWISE_FUNCTIONS(SYNCLINE_READS_OF)
#undef SYNCLINE_READS_OF
  };
  return kReads[static_cast<size_t>(function)];
}

}  // namespace syncline
