#ifndef SYNCLINE_COMMON_JOB_GPU_TEXT_H_
#define SYNCLINE_COMMON_JOB_GPU_TEXT_H_

#include <string>

#include "proto/cluster.pb.h"

namespace syncline {

// A member's GPU in tables for people: "cuda:0 NVIDIA H200, cuDNN 9.19.0". What
// a GPU's member does not tell is left out.
std::string GpuText(const Gpu& gpu);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_GPU_TEXT_H_
