#include "kernels/elementwise/binary_functions.h"

namespace syncline {

BinaryReads BinaryReadsOf(BinaryFunction function, Side side) {
  static constexpr BinaryReads kReads[][2] = {
#define SYNCLINE_READS_OF(name)             \
  {BinaryReadsOf<binary::name, Side::kA>(), \
   BinaryReadsOf<binary::name, Side::kB>()},
      SYNCLINE_BINARY_FUNCTIONS(SYNCLINE_READS_OF)
#undef SYNCLINE_READS_OF
  };
  return kReads[static_cast<size_t>(function)][side == Side::kA ? 0 : 1];
}

}  // namespace syncline
