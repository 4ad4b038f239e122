// The declarations of cudnn_interface.h are those of cuDNN's headers: compared
// where these are found, when this is compiled. There is no code in here.

#include "kernels/cuda/cudnn_interface.h"

#if SYNCLINE_HAS_CUDNN_HEADERS

#include <cudnn.h>

#include <cstddef>
#include <type_traits>

namespace syncline::cuda {
namespace {

// A type of cuDNN's as cudnn_interface.h has it.
template <typename T>
struct PlainType {
  using Type =
      typename std::conditional_t<std::is_enum_v<T>, std::common_type<int>,
                                  std::common_type<T>>::type;
};
template <typename T>
using Plain = typename PlainType<T>::Type;
template <>
struct PlainType<cudnnHandle_t> {
  using Type = void*;
};
template <>
struct PlainType<cudnnTensorDescriptor_t> {
  using Type = void*;
};
template <>
struct PlainType<cudnnFilterDescriptor_t> {
  using Type = void*;
};
template <>
struct PlainType<cudnnConvolutionDescriptor_t> {
  using Type = void*;
};
template <>
struct PlainType<cudaStream_t> {
  using Type = void*;
};
template <>
struct PlainType<cudnnConvolutionFwdAlgoPerf_t> {
  using Type = CudnnAlgorithm;
};
template <>
struct PlainType<cudnnConvolutionBwdDataAlgoPerf_t> {
  using Type = CudnnAlgorithm;
};
template <>
struct PlainType<cudnnConvolutionBwdFilterAlgoPerf_t> {
  using Type = CudnnAlgorithm;
};
template <typename T>
requires(!std::is_same_v<T, cudnnHandle_t> &&
         !std::is_same_v<T, cudnnTensorDescriptor_t> &&
         !std::is_same_v<T, cudnnFilterDescriptor_t> &&
         !std::is_same_v<T, cudnnConvolutionDescriptor_t> &&
         !std::is_same_v<T, cudaStream_t> &&
         !std::is_function_v<std::remove_pointer_t<T>> &&
         std::is_pointer_v<T> &&
         !std::is_void_v<std::remove_pointer_t<T>>) struct PlainType<T> {
  using Element = std::remove_pointer_t<T>;
  using PlainElement = Plain<std::remove_const_t<Element>>;
  using Type = std::conditional_t<std::is_const_v<Element>, const PlainElement*,
                                  PlainElement*>;
};
template <typename Result, typename... Arguments>
struct PlainType<Result (*)(Arguments...)> {
  using Type = Plain<Result> (*)(Plain<Arguments>...);
};

#define SYNCLINE_EXPECT_SAME(ours, theirs)                                  \
  static_assert(std::is_same_v<decltype(ours), Plain<decltype(&(theirs))>>, \
                #theirs)

SYNCLINE_EXPECT_SAME(CudnnFunctions::version, cudnnGetVersion);
SYNCLINE_EXPECT_SAME(CudnnFunctions::error_string, cudnnGetErrorString);
SYNCLINE_EXPECT_SAME(CudnnFunctions::last_error_string,
                     cudnnGetLastErrorString);
SYNCLINE_EXPECT_SAME(CudnnFunctions::create, cudnnCreate);
SYNCLINE_EXPECT_SAME(CudnnFunctions::destroy, cudnnDestroy);
SYNCLINE_EXPECT_SAME(CudnnFunctions::set_stream, cudnnSetStream);
SYNCLINE_EXPECT_SAME(CudnnFunctions::create_tensor,
                     cudnnCreateTensorDescriptor);
SYNCLINE_EXPECT_SAME(CudnnFunctions::set_tensor, cudnnSetTensorNdDescriptor);
SYNCLINE_EXPECT_SAME(CudnnFunctions::destroy_tensor,
                     cudnnDestroyTensorDescriptor);
SYNCLINE_EXPECT_SAME(CudnnFunctions::create_filter,
                     cudnnCreateFilterDescriptor);
SYNCLINE_EXPECT_SAME(CudnnFunctions::set_filter, cudnnSetFilterNdDescriptor);
SYNCLINE_EXPECT_SAME(CudnnFunctions::destroy_filter,
                     cudnnDestroyFilterDescriptor);
SYNCLINE_EXPECT_SAME(CudnnFunctions::create_convolution,
                     cudnnCreateConvolutionDescriptor);
SYNCLINE_EXPECT_SAME(CudnnFunctions::set_convolution,
                     cudnnSetConvolutionNdDescriptor);
SYNCLINE_EXPECT_SAME(CudnnFunctions::set_groups, cudnnSetConvolutionGroupCount);
SYNCLINE_EXPECT_SAME(CudnnFunctions::set_math, cudnnSetConvolutionMathType);
SYNCLINE_EXPECT_SAME(CudnnFunctions::destroy_convolution,
                     cudnnDestroyConvolutionDescriptor);
SYNCLINE_EXPECT_SAME(CudnnPass::recommend,
                     cudnnGetConvolutionForwardAlgorithm_v7);
SYNCLINE_EXPECT_SAME(CudnnPass::workspace,
                     cudnnGetConvolutionForwardWorkspaceSize);
SYNCLINE_EXPECT_SAME(CudnnPass::run, cudnnConvolutionForward);
SYNCLINE_EXPECT_SAME(CudnnPass::recommend,
                     cudnnGetConvolutionBackwardDataAlgorithm_v7);
SYNCLINE_EXPECT_SAME(CudnnPass::workspace,
                     cudnnGetConvolutionBackwardDataWorkspaceSize);
SYNCLINE_EXPECT_SAME(CudnnPass::run, cudnnConvolutionBackwardData);
SYNCLINE_EXPECT_SAME(CudnnPass::recommend,
                     cudnnGetConvolutionBackwardFilterAlgorithm_v7);
SYNCLINE_EXPECT_SAME(CudnnPass::workspace,
                     cudnnGetConvolutionBackwardFilterWorkspaceSize);
SYNCLINE_EXPECT_SAME(CudnnPass::run, cudnnConvolutionBackwardFilter);

// Each of the library's three structures of algorithms has our members.
template <typename Theirs>
constexpr bool IsOurAlgorithm() {
  return sizeof(Theirs) == sizeof(CudnnAlgorithm) &&
         offsetof(Theirs, algo) == offsetof(CudnnAlgorithm, algorithm) &&
         offsetof(Theirs, status) == offsetof(CudnnAlgorithm, status) &&
         offsetof(Theirs, time) == offsetof(CudnnAlgorithm, milliseconds) &&
         offsetof(Theirs, memory) ==
             offsetof(CudnnAlgorithm, workspace_bytes) &&
         offsetof(Theirs, determinism) ==
             offsetof(CudnnAlgorithm, determinism) &&
         offsetof(Theirs, mathType) == offsetof(CudnnAlgorithm, math);
}
static_assert(IsOurAlgorithm<cudnnConvolutionFwdAlgoPerf_t>());
static_assert(IsOurAlgorithm<cudnnConvolutionBwdDataAlgoPerf_t>());
static_assert(IsOurAlgorithm<cudnnConvolutionBwdFilterAlgoPerf_t>());

static_assert(CUDNN_MAJOR == 9);
static_assert(kCudnnSuccess == CUDNN_STATUS_SUCCESS);
static_assert(kCudnnNotInitialized == CUDNN_STATUS_NOT_INITIALIZED);
static_assert(kCudnnBadParameter == CUDNN_STATUS_BAD_PARAM);
static_assert(kCudnnNotSupported == CUDNN_STATUS_NOT_SUPPORTED);
static_assert(kCudnnFirstOfTheMachine ==
              CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER);
static_assert(kCudnnLastOfTheMachine ==
              CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE);
static_assert(kCudnnInternalError == CUDNN_STATUS_INTERNAL_ERROR);
static_assert(kCudnnHostAllocationFailed ==
              CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
static_assert(kCudnnDeviceAllocationFailed ==
              CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
static_assert(kCudnnExecutionFailed == CUDNN_STATUS_EXECUTION_FAILED);
static_assert(kCudnnFloat == CUDNN_DATA_FLOAT);
static_assert(kCudnnHalf == CUDNN_DATA_HALF);
static_assert(kCudnnBfloat16 == CUDNN_DATA_BFLOAT16);
static_assert(kCudnnRowMajor == CUDNN_TENSOR_NCHW);
static_assert(kCudnnCrossCorrelation == CUDNN_CROSS_CORRELATION);
static_assert(kCudnnDeterministic == CUDNN_DETERMINISTIC);
static_assert(kCudnnAnyMath == CUDNN_DEFAULT_MATH);
static_assert(kCudnnTensorMath == CUDNN_TENSOR_OP_MATH);
static_assert(kCudnnFmaMath == CUDNN_FMA_MATH);
static_assert(kCudnnForwardImplicitGemm ==
              CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
static_assert(kCudnnForwardImplicitPrecomputedGemm ==
              CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
static_assert(kCudnnForwardGemm == CUDNN_CONVOLUTION_FWD_ALGO_GEMM);
static_assert(kCudnnBackwardData1 == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
static_assert(kCudnnBackwardFilter1 == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);

}  // namespace
}  // namespace syncline::cuda

#endif  // SYNCLINE_HAS_CUDNN_HEADERS
