#include "common/job/gpu_text.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace syncline {

std::string GpuText(const Gpu& gpu) {
  std::string text = absl::StrCat(gpu.name(), " ", gpu.model());
  if (gpu.convolutions().empty()) return text;
  // A library's name speaks for itself.
  absl::StrAppend(
      &text,
      absl::StartsWith(gpu.convolutions(), "cuDNN") ? ", " : ", convolutions: ",
      gpu.convolutions());
  return text;
}

}  // namespace syncline
