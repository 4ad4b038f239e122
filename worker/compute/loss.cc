#include "worker/compute/loss.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/device/kernel_table.h"
#include "worker/data/batch.h"

namespace syncline::worker {
namespace {

absl::Status BadLabel(int64_t at, int64_t positions, float value,
                      absl::string_view why) {
  const std::string position =
      positions == 1 ? "" : absl::StrCat(" at position ", at % positions);
  return absl::InvalidArgumentError(absl::StrCat("label ", value, position,
                                                 " of sample ", at / positions,
                                                 " in the batch ", why));
}

}  // namespace

absl::StatusOr<Loss> Loss::Create(LossSpec::Kind kind, const Dims& output,
                                  int64_t rows, bool ignores) {
  if (output.empty() || output[0] != rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("the loss's output has shape ", DimsToString(output),
                     "; its first dimension must be the batch's ", rows));
  }
  if (ignores && kind != LossSpec::SOFTMAX_CROSS_ENTROPY) {
    return absl::InvalidArgumentError(absl::StrCat(
        "loss ", LossSpec::Kind_Name(kind), " does not take ignored labels"));
  }
  const int64_t width = ElementCount(output) / rows;
  switch (kind) {
    case LossSpec::SOFTMAX_CROSS_ENTROPY:
      if (output.size() < 2 || output.back() == 0) break;
      return Loss(kind, rows, width / output.back(), output.back(), ignores);
    case LossSpec::SIGMOID_CROSS_ENTROPY:
      if (width != 1) break;
      return Loss(kind, rows, 1, width);
    case LossSpec::MEAN_SQUARED_ERROR:
      return Loss(kind, rows, 1, width);
    default:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("loss ", LossSpec::Kind_Name(kind),
                   " does not take an output of shape ", DimsToString(output)));
}

Loss::Loss(LossSpec::Kind kind, int64_t rows, int64_t positions, int64_t width,
           bool ignores)
    : kind_(kind),
      rows_(rows),
      positions_(positions),
      width_(width),
      labels_(kind == LossSpec::MEAN_SQUARED_ERROR ? width : positions),
      ignores_(ignores) {}

absl::Status Loss::CheckLabels(int64_t samples,
                               absl::Span<const float> labels) const {
  if (static_cast<int64_t>(labels.size()) != samples * labels_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", samples, " samples has ", labels.size(),
                     " labels; the loss takes ", labels_, " a sample"));
  }
  if (kind_ == LossSpec::MEAN_SQUARED_ERROR) return absl::OkStatus();
  const bool softmax = kind_ == LossSpec::SOFTMAX_CROSS_ENTROPY;
  const float classes = softmax ? static_cast<float>(width_) : 2.0f;
  for (int64_t at = 0; at < samples * positions_; ++at) {
    const float label = labels[at];
    if (ignores_ && label == kIgnoredLabel) continue;
    // Written so that NaN fails.
    if (label >= 0 && label < classes && std::floor(label) == label) continue;
    return BadLabel(at, positions_, label,
                    absl::StrCat("is not one of the ", classes,
                                 " classes 0 to ", classes - 1));
  }
  return absl::OkStatus();
}

LossKernels::Kernel Loss::KernelOf(const Device& device) const {
  const LossKernels* const kernels = device.kernels().loss;
  if (kernels == nullptr) return nullptr;
  switch (kind_) {
    case LossSpec::SOFTMAX_CROSS_ENTROPY:
      return kernels->softmax_cross_entropy;
    case LossSpec::SIGMOID_CROSS_ENTROPY:
      return kernels->sigmoid_cross_entropy;
    default:
      return kernels->mean_squared_error;
  }
}

absl::Status Loss::RequireKernel(const Device& device) const {
  if (KernelOf(device) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the device ", device.name(),
                                                 " does not compute the loss ",
                                                 LossSpec::Kind_Name(kind_)));
}

void Loss::Run(Stream& stream, const float* scores, const float* labels,
               float* gradient, double* loss) const {
  const LossShape shape = {.samples = rows_,
                           .positions = positions_,
                           .width = width_,
                           .ignores = ignores_};
  KernelOf(stream.device())(stream, shape, scores, labels, gradient, loss);
}

}  // namespace syncline::worker
