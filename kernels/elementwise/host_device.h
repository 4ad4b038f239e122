#ifndef SYNCLINE_KERNELS_ELEMENTWISE_HOST_DEVICE_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_HOST_DEVICE_H_

// Before a function of numbers that kernels of every device compute: nvcc makes
// one for the host and one for the device of it.
#if defined(__CUDACC__)
#define SYNCLINE_HOST_DEVICE __host__ __device__
#else
#define SYNCLINE_HOST_DEVICE
#endif

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_HOST_DEVICE_H_
