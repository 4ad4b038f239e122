#ifndef SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_NCCL_DOUBLE_H_
#define SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_NCCL_DOUBLE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "kernels/cuda/nccl.h"

namespace syncline::testing {

// NCCL's double: ranks are threads of this process, each with an emulated
// device and a communicator that does not block. A call is under way
// (kNcclInProgress) until every rank has made it; then the rank that came last
// computes for all, in an order that begins with another rank for each element,
// as a ring does. It refuses what NCCL refuses or leaves undefined: a
// communicator that blocks, ranks that differ in a call, a call while another
// is under way, arrays that are not on the device, anything but sums of
// float32. Where one rank aborts, the calls of the others end with
// kNcclRemoteError.
//
// Thread-safe. The double's settings and records, one of each process; tests
// begin with MakeNcclDouble.
class NcclDouble {
 public:
  // The double, with a state as at the beginning.
  static std::unique_ptr<cuda::Nccl> Make();
  static cuda::NcclFunctions Functions();

  // The call of this name ("all_reduce"), and all after it, fail for the rank.
  static void FailAt(const std::string& function, int rank,
                     cuda::NcclResult result);
  // Communicators that exist, and that were aborted.
  static int64_t communicators();
  static int64_t aborted();
};

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_NCCL_DOUBLE_H_
