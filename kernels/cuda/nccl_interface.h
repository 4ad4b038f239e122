#ifndef SYNCLINE_KERNELS_CUDA_NCCL_INTERFACE_H_
#define SYNCLINE_KERNELS_CUDA_NCCL_INTERFACE_H_

// The part of NCCL's interface that is used here (NVIDIA Collective
// Communication Library, "API"), as a table of its functions: nccl.h loads
// them, and tests have a double of them. It is declared here because CUDA's
// toolkit has NCCL's header in a package of its own; nccl_interface.cc compares
// it with that where it is.

#include <climits>
#include <cstddef>

namespace syncline::cuda {

using NcclCommunicator = void*;

// A result of the library; 0 is success.
using NcclResult = int;
inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclCudaError = 1;
inline constexpr NcclResult kNcclSystemError = 2;
inline constexpr NcclResult kNcclInternalError = 3;
inline constexpr NcclResult kNcclInvalidArgument = 4;
inline constexpr NcclResult kNcclInvalidUsage = 5;
inline constexpr NcclResult kNcclRemoteError = 6;  // another rank has failed
inline constexpr NcclResult kNcclInProgress = 7;

inline constexpr int kNcclFloat32 = 7;  // a type of elements
inline constexpr int kNcclSum = 0;      // of a reduction

// A communicator's name, made by one rank for all. It is a secret of the group:
// whoever has it can join.
struct NcclId {
  char bytes[128] = {};
};

// How a communicator works, as NCCL 2.18 has it; later ones take it.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN;  // as all others: the library's choice
  int cluster_size = INT_MIN;
  int blocks_min = INT_MIN;
  int blocks_max = INT_MIN;
  const char* network = nullptr;
  int split_share = INT_MIN;
};

// Functions return kNcclInProgress where the communicator does not block: then
// `async_error` says how that ends, and no other call but `abort` comes before.
struct NcclFunctions {
  NcclResult (*version)(int* version) = nullptr;  // 22809 is 2.28.9
  const char* (*error_string)(NcclResult result) = nullptr;
  // In words; "" where it has none.
  const char* (*last_error)(NcclCommunicator communicator) = nullptr;
  NcclResult (*make_id)(NcclId* id) = nullptr;
  NcclResult (*init)(NcclCommunicator* communicator, int ranks, NcclId id,
                     int rank, NcclConfig* config) = nullptr;
  // Before `destroy`: ends what is under way, with all ranks.
  NcclResult (*finalize)(NcclCommunicator communicator) = nullptr;
  NcclResult (*destroy)(NcclCommunicator communicator) = nullptr;
  // Ends all work, that of kernels in streams too, and destroys it.
  NcclResult (*abort)(NcclCommunicator communicator) = nullptr;
  NcclResult (*async_error)(NcclCommunicator communicator,
                            NcclResult* error) = nullptr;
  // `count`: elements of `from`, and of `to`.
  NcclResult (*all_reduce)(const void* from, void* to, size_t count, int type,
                           int reduction, NcclCommunicator communicator,
                           void* stream) = nullptr;
  // `count`: elements of `to`; `from` has as many for each rank.
  NcclResult (*reduce_scatter)(const void* from, void* to, size_t count,
                               int type, int reduction,
                               NcclCommunicator communicator,
                               void* stream) = nullptr;
  // `count`: elements of `from`; `to` has as many for each rank.
  NcclResult (*all_gather)(const void* from, void* to, size_t count, int type,
                           NcclCommunicator communicator,
                           void* stream) = nullptr;
};

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_NCCL_INTERFACE_H_
