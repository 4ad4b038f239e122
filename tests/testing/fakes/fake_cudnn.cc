// A library with cuDNN's functions that computes nothing, of the version
// SYNCLINE_FAKE_VERSION. Loaded by cudnn_test in the place of NVIDIA's. With
// SYNCLINE_FAKE_LACKS_RUN it has no cudnnConvolutionForward.

#include <cstddef>

extern "C" {
std::size_t cudnnGetVersion() { return SYNCLINE_FAKE_VERSION; }
const char* cudnnGetErrorString(int) { return "CUDNN_STATUS_FAKE"; }
int cudnnCreate(void** handle) {
  *handle = nullptr;
  return 1001;
}
#if SYNCLINE_FAKE_VERSION >= 90000
void cudnnGetLastErrorString(char* text, std::size_t) {
  text[0] = 'n';
  text[1] = 'o';
  text[2] = 0;
}
#endif

#define SYNCLINE_FAKE(name) \
  int name() { return 2000; }
SYNCLINE_FAKE(cudnnDestroy)
SYNCLINE_FAKE(cudnnSetStream)
SYNCLINE_FAKE(cudnnCreateTensorDescriptor)
SYNCLINE_FAKE(cudnnSetTensorNdDescriptor)
SYNCLINE_FAKE(cudnnDestroyTensorDescriptor)
SYNCLINE_FAKE(cudnnCreateFilterDescriptor)
SYNCLINE_FAKE(cudnnSetFilterNdDescriptor)
SYNCLINE_FAKE(cudnnDestroyFilterDescriptor)
SYNCLINE_FAKE(cudnnCreateConvolutionDescriptor)
SYNCLINE_FAKE(cudnnSetConvolutionNdDescriptor)
SYNCLINE_FAKE(cudnnSetConvolutionGroupCount)
SYNCLINE_FAKE(cudnnSetConvolutionMathType)
SYNCLINE_FAKE(cudnnDestroyConvolutionDescriptor)
SYNCLINE_FAKE(cudnnGetConvolutionForwardAlgorithm_v7)
SYNCLINE_FAKE(cudnnGetConvolutionForwardWorkspaceSize)
#ifndef SYNCLINE_FAKE_LACKS_RUN
SYNCLINE_FAKE(cudnnConvolutionForward)
#endif
SYNCLINE_FAKE(cudnnGetConvolutionBackwardDataAlgorithm_v7)
SYNCLINE_FAKE(cudnnGetConvolutionBackwardDataWorkspaceSize)
SYNCLINE_FAKE(cudnnConvolutionBackwardData)
SYNCLINE_FAKE(cudnnGetConvolutionBackwardFilterAlgorithm_v7)
SYNCLINE_FAKE(cudnnGetConvolutionBackwardFilterWorkspaceSize)
SYNCLINE_FAKE(cudnnConvolutionBackwardFilter)
}
