#ifndef SYNCLINE_KERNELS_CUDA_CUDNN_INTERFACE_H_
#define SYNCLINE_KERNELS_CUDA_CUDNN_INTERFACE_H_

// The part of cuDNN's interface that is used here (cuDNN API Reference,
// "cudnn_graph", "cudnn_ops" and "cudnn_cnn"), as a table of its functions:
// cudnn.h loads them, and tests have a double of them. It is declared here
// because CUDA's toolkit has cuDNN's headers in a package of their own;
// cudnn_interface.cc compares it with them where they are.

#include <cstddef>

namespace syncline::cuda {

// Objects of the library.
using CudnnHandle = void*;
using CudnnDescriptor = void*;

// A status of the library; 0 is success. The thousands are its kind.
using CudnnStatus = int;
inline constexpr CudnnStatus kCudnnSuccess = 0;
inline constexpr CudnnStatus kCudnnNotInitialized = 1001;
inline constexpr CudnnStatus kCudnnBadParameter = 2000;
inline constexpr CudnnStatus kCudnnNotSupported = 3000;
// From the first to the last of these the driver, CUDA's runtime, the GPU or a
// part of the library does not support it.
inline constexpr CudnnStatus kCudnnFirstOfTheMachine = 3005;
inline constexpr CudnnStatus kCudnnLastOfTheMachine = 3009;
inline constexpr CudnnStatus kCudnnInternalError = 4000;
inline constexpr CudnnStatus kCudnnHostAllocationFailed = 4003;
inline constexpr CudnnStatus kCudnnDeviceAllocationFailed = 4004;
inline constexpr CudnnStatus kCudnnExecutionFailed = 5000;

// Types of elements.
inline constexpr int kCudnnFloat = 0;
inline constexpr int kCudnnHalf = 2;
inline constexpr int kCudnnBfloat16 = 9;

inline constexpr int kCudnnRowMajor = 0;          // a filter's layout: NCHW
inline constexpr int kCudnnCrossCorrelation = 1;  // what ONNX calls a Conv
inline constexpr int kCudnnDeterministic = 1;

// The arithmetic of products. kCudnnFmaMath is float32's; with kCudnnAnyMath
// tensor cores may round factors to TF32; with kCudnnTensorMath they multiply
// factors of 16 bits as they are.
inline constexpr int kCudnnAnyMath = 0;
inline constexpr int kCudnnTensorMath = 1;
inline constexpr int kCudnnFmaMath = 3;

// Algorithms that add up products as they stand. The others go by Fourier
// transforms and Winograd's, or are not deterministic.
inline constexpr int kCudnnForwardImplicitGemm = 0;
inline constexpr int kCudnnForwardImplicitPrecomputedGemm = 1;
inline constexpr int kCudnnForwardGemm = 2;
inline constexpr int kCudnnBackwardData1 = 1;
inline constexpr int kCudnnBackwardFilter1 = 1;

// An algorithm, as the library recommends it.
struct CudnnAlgorithm {
  int algorithm;
  CudnnStatus status;
  float milliseconds;
  size_t workspace_bytes;
  int determinism;
  int math;
  int reserved[3];
};

// The functions of one pass of a convolution. Their arrays, each behind its
// descriptor, are:
//
//   pass              first      second        result
//   forward           input      filter        output
//   backward data     filter     d output      d input
//   backward filter   input      d output      d filter
struct CudnnPass {
  // The library's algorithms, the one that it expects to be fastest first.
  CudnnStatus (*recommend)(CudnnHandle handle, CudnnDescriptor first,
                           CudnnDescriptor second, CudnnDescriptor convolution,
                           CudnnDescriptor result, int count_max, int* count,
                           CudnnAlgorithm* algorithms) = nullptr;
  CudnnStatus (*workspace)(CudnnHandle handle, CudnnDescriptor first,
                           CudnnDescriptor second, CudnnDescriptor convolution,
                           CudnnDescriptor result, int algorithm,
                           size_t* bytes) = nullptr;
  // result = alpha * the pass + beta * result; with beta 0 the result is not
  // read.
  CudnnStatus (*run)(CudnnHandle handle, const void* alpha,
                     CudnnDescriptor first, const void* first_data,
                     CudnnDescriptor second, const void* second_data,
                     CudnnDescriptor convolution, int algorithm,
                     void* workspace, size_t workspace_bytes, const void* beta,
                     CudnnDescriptor result, void* result_data) = nullptr;
};

struct CudnnFunctions {
  size_t (*version)() = nullptr;  // 91900 is 9.19.0
  const char* (*error_string)(CudnnStatus status) = nullptr;
  // The library's text for this thread's last error; "" if there is none.
  void (*last_error_string)(char* text, size_t bytes) = nullptr;
  CudnnStatus (*create)(CudnnHandle* handle) = nullptr;
  CudnnStatus (*destroy)(CudnnHandle handle) = nullptr;
  CudnnStatus (*set_stream)(CudnnHandle handle, void* stream) = nullptr;

  CudnnStatus (*create_tensor)(CudnnDescriptor* tensor) = nullptr;
  CudnnStatus (*set_tensor)(CudnnDescriptor tensor, int type, int dim_count,
                            const int* dims, const int* strides) = nullptr;
  CudnnStatus (*destroy_tensor)(CudnnDescriptor tensor) = nullptr;
  CudnnStatus (*create_filter)(CudnnDescriptor* filter) = nullptr;
  CudnnStatus (*set_filter)(CudnnDescriptor filter, int type, int layout,
                            int dim_count, const int* dims) = nullptr;
  CudnnStatus (*destroy_filter)(CudnnDescriptor filter) = nullptr;
  CudnnStatus (*create_convolution)(CudnnDescriptor* convolution) = nullptr;
  CudnnStatus (*set_convolution)(CudnnDescriptor convolution, int axis_count,
                                 const int* pads, const int* strides,
                                 const int* dilations, int mode,
                                 int type_of_sums) = nullptr;
  CudnnStatus (*set_groups)(CudnnDescriptor convolution, int groups) = nullptr;
  CudnnStatus (*set_math)(CudnnDescriptor convolution, int math) = nullptr;
  CudnnStatus (*destroy_convolution)(CudnnDescriptor convolution) = nullptr;

  CudnnPass forward;
  CudnnPass backward_data;
  CudnnPass backward_filter;
};

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_CUDNN_INTERFACE_H_
