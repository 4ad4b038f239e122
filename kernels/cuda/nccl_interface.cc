// The declarations of nccl_interface.h are those of NCCL's header: compared
// where this is found, when this is compiled. There is no code in here.

#include "kernels/cuda/nccl_interface.h"

#if SYNCLINE_HAS_NCCL_HEADER

#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace syncline::cuda {
namespace {

// A type of NCCL's as nccl_interface.h has it.
template <typename T>
struct OurType {
  using Type =
      typename std::conditional_t<std::is_enum_v<T>, std::common_type<int>,
                                  std::common_type<T>>::type;
};
template <typename T>
using Ours = typename OurType<T>::Type;
template <>
struct OurType<ncclComm_t> {
  using Type = void*;
};
template <>
struct OurType<ncclComm_t*> {
  using Type = void**;
};
template <>
struct OurType<cudaStream_t> {
  using Type = void*;
};
template <>
struct OurType<ncclUniqueId> {
  using Type = NcclId;
};
template <>
struct OurType<ncclUniqueId*> {
  using Type = NcclId*;
};
template <>
struct OurType<ncclConfig_t*> {
  using Type = NcclConfig*;
};
template <>
struct OurType<ncclResult_t*> {
  using Type = NcclResult*;
};
template <typename Result, typename... Arguments>
struct OurType<Result (*)(Arguments...)> {
  using Type = Ours<Result> (*)(Ours<Arguments>...);
};

#define SYNCLINE_EXPECT_SAME(ours, theirs)                                 \
  static_assert(std::is_same_v<decltype(ours), Ours<decltype(&(theirs))>>, \
                #theirs)

SYNCLINE_EXPECT_SAME(NcclFunctions::version, ncclGetVersion);
SYNCLINE_EXPECT_SAME(NcclFunctions::error_string, ncclGetErrorString);
SYNCLINE_EXPECT_SAME(NcclFunctions::last_error, ncclGetLastError);
SYNCLINE_EXPECT_SAME(NcclFunctions::make_id, ncclGetUniqueId);
SYNCLINE_EXPECT_SAME(NcclFunctions::init, ncclCommInitRankConfig);
SYNCLINE_EXPECT_SAME(NcclFunctions::finalize, ncclCommFinalize);
SYNCLINE_EXPECT_SAME(NcclFunctions::destroy, ncclCommDestroy);
SYNCLINE_EXPECT_SAME(NcclFunctions::abort, ncclCommAbort);
SYNCLINE_EXPECT_SAME(NcclFunctions::async_error, ncclCommGetAsyncError);
SYNCLINE_EXPECT_SAME(NcclFunctions::all_reduce, ncclAllReduce);
SYNCLINE_EXPECT_SAME(NcclFunctions::reduce_scatter, ncclReduceScatter);
SYNCLINE_EXPECT_SAME(NcclFunctions::all_gather, ncclAllGather);

static_assert(NCCL_MAJOR == 2);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) ==
              offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cluster_size) ==
              offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(NcclConfig, blocks_min) ==
              offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(NcclConfig, blocks_max) ==
              offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(NcclConfig, network) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) ==
              offsetof(ncclConfig_t, splitShare));
// NOLINTNEXTLINE(misc-redundant-expression): the header's is this very number.
static_assert(INT_MIN == NCCL_CONFIG_UNDEF_INT);
static_assert(kNcclSuccess == ncclSuccess);
static_assert(kNcclCudaError == ncclUnhandledCudaError);
static_assert(kNcclSystemError == ncclSystemError);
static_assert(kNcclInternalError == ncclInternalError);
static_assert(kNcclInvalidArgument == ncclInvalidArgument);
static_assert(kNcclInvalidUsage == ncclInvalidUsage);
static_assert(kNcclRemoteError == ncclRemoteError);
static_assert(kNcclInProgress == ncclInProgress);
static_assert(kNcclFloat32 == ncclFloat32);
static_assert(kNcclSum == ncclSum);

}  // namespace
}  // namespace syncline::cuda

#endif  // SYNCLINE_HAS_NCCL_HEADER
