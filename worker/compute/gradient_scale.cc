#include "worker/compute/gradient_scale.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/loss_scale_kernels.h"

namespace syncline::worker {

absl::Status GradientScale::RequireKernel(const Device& device) {
  const LossScaleKernels* const kernels = device.kernels().loss_scale;
  if (kernels != nullptr && kernels->scale != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the device ", device.name(),
                   " does not scale gradients, which precision FLOAT16 needs; "
                   "use BFLOAT16 or FLOAT32"));
}

absl::Status GradientScale::Allocate(Device& device, Stream& stream) {
  SYNCLINE_ASSIGN_OR_RETURN(on_device_, device.Allocate(sizeof(Factors)));
  SYNCLINE_ASSIGN_OR_RETURN(overflow_, device.Allocate(sizeof(DataError)));
  SYNCLINE_ASSIGN_OR_RETURN(copy_, device.AllocatePinned(sizeof(DataError)));
  stream.CopyToDevice(on_device_.data(), &factors_, sizeof(Factors));
  Forget(stream);
  return absl::OkStatus();
}

void GradientScale::Use(Stream& stream, float factor) {
  if (factor == factors_.up) return;
  factors_ = {.up = factor, .down = 1 / factor};
  stream.CopyToDevice(on_device_.data(), &factors_, sizeof(Factors));
}

void GradientScale::Scale(Stream& stream, int64_t n, float* x) const {
  stream.device().kernels().loss_scale->scale(
      stream, n, &on_device_.as<Factors>()->up, x, /*errors=*/{});
}

void GradientScale::Unscale(Stream& stream, int64_t n, float* x,
                            int32_t array) const {
  stream.device().kernels().loss_scale->scale(
      stream, n, &on_device_.as<Factors>()->down, x,
      {overflow_.as<DataError>(), array});
}

void GradientScale::Copy(Stream& stream) {
  stream.CopyToHost(copy_.data(), overflow_.data(), sizeof(DataError));
}

std::optional<GradientScale::Overflow> GradientScale::Read(Stream& stream) {
  const DataError found = *copy_.as<DataError>();
  if (found.node == DataError::kNone) return std::nullopt;
  Forget(stream);
  return Overflow{found.node, found.position};
}

void GradientScale::Forget(Stream& stream) {
  static constexpr DataError kNothing;
  stream.CopyToDevice(overflow_.data(), &kNothing, sizeof(kNothing));
}

}  // namespace syncline::worker
