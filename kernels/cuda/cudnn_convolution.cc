#include "kernels/cuda/cudnn_convolution.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace syncline::cuda {
namespace {

using Pass = CudnnConvolution::Pass;
using Axis = Window::Axis;

// More than the library has of any pass.
constexpr int kAlgorithmsMax = 16;

const char* NameOf(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return "a convolution's forward pass by cuDNN";
    case Pass::kBackwardData:
      return "a convolution's gradient of data by cuDNN";
    case Pass::kBackwardWeights:
      return "a convolution's gradient of weights by cuDNN";
  }
  return "";
}

bool AddsProductsAsTheyStand(Pass pass, int algorithm) {
  switch (pass) {
    case Pass::kForward:
      return algorithm == kCudnnForwardImplicitGemm ||
             algorithm == kCudnnForwardImplicitPrecomputedGemm ||
             algorithm == kCudnnForwardGemm;
    case Pass::kBackwardData:
      return algorithm == kCudnnBackwardData1;
    case Pass::kBackwardWeights:
      return algorithm == kCudnnBackwardFilter1;
  }
  return false;
}

int TypeOf(DType type) {
  if (type == DType::kBfloat16) return kCudnnBfloat16;
  return type == DType::kFloat16 ? kCudnnHalf : kCudnnFloat;
}

int MathOf(DType type, bool takes_tf32) {
  if (Is16Bit(type)) return kCudnnTensorMath;
  return takes_tf32 ? kCudnnAnyMath : kCudnnFmaMath;
}

// The library wants two axes or more.
std::vector<Axis> AxesOf(const Window& window) {
  std::vector<Axis> axes(window.axes.begin(), window.axes.end());
  if (axes.size() == 1) axes.insert(axes.begin(), Axis());
  return axes;
}

std::vector<int> Per(const std::vector<Axis>& axes, int64_t Axis::*member) {
  std::vector<int> values;
  for (const Axis& axis : axes) {
    values.push_back(static_cast<int>(axis.*member));
  }
  return values;
}

// Of a dense array [outermost, second, axes...].
std::vector<int> DimsOf(int64_t outermost, int64_t second,
                        const std::vector<Axis>& axes, int64_t Axis::*member) {
  std::vector<int> dims = Per(axes, member);
  dims.insert(dims.begin(),
              {static_cast<int>(outermost), static_cast<int>(second)});
  return dims;
}
std::vector<int> DenseStrides(const std::vector<int>& dims) {
  std::vector<int> strides(dims.size(), 1);
  for (size_t i = dims.size() - 1; i > 0; --i) {
    strides[i - 1] = strides[i] * dims[i];
  }
  return strides;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudnnConvolution>> CudnnConvolution::Create(
    Cudnn& library, Device& device, const ConvolutionShape& shape,
    const ConvolutionUses& uses, bool takes_tf32, int64_t workspace_bytes) {
  std::unique_ptr<CudnnConvolution> made(
      new CudnnConvolution(library, shape.type, workspace_bytes));
  SYNCLINE_RETURN_IF_ERROR(
      made->Describe(shape, takes_tf32 || shape.has_narrow_factors));
  if (uses.forward) {
    SYNCLINE_RETURN_IF_ERROR(made->Choose(Pass::kForward, device));
  }
  if (uses.backward_data) {
    SYNCLINE_RETURN_IF_ERROR(made->Choose(Pass::kBackwardData, device));
  }
  if (uses.backward_weights) {
    SYNCLINE_RETURN_IF_ERROR(made->Choose(Pass::kBackwardWeights, device));
  }
  return made;
}

CudnnConvolution::~CudnnConvolution() {
  const CudnnFunctions& f = library_.functions();
  if (x_ != nullptr) f.destroy_tensor(x_);
  if (y_ != nullptr) f.destroy_tensor(y_);
  if (w_ != nullptr) f.destroy_filter(w_);
  if (convolution_ != nullptr) f.destroy_convolution(convolution_);
}

absl::Status CudnnConvolution::Describe(const ConvolutionShape& s,
                                        bool takes_tf32) {
  const CudnnFunctions& f = library_.functions();
  const auto check = [this](CudnnStatus status) {
    return library_.StatusOf(status, "describe a convolution");
  };
  const std::vector<Axis> axes = AxesOf(s.window);
  const auto tensor = [&](const std::vector<int>& dims, CudnnDescriptor* to) {
    const CudnnStatus created = f.create_tensor(to);
    if (created != kCudnnSuccess) return check(created);
    return check(f.set_tensor(*to, TypeOf(s.type),
                              static_cast<int>(dims.size()), dims.data(),
                              DenseStrides(dims).data()));
  };
  SYNCLINE_RETURN_IF_ERROR(
      tensor(DimsOf(s.batch, s.channels, axes, &Axis::in), &x_));
  SYNCLINE_RETURN_IF_ERROR(
      tensor(DimsOf(s.batch, s.filters, axes, &Axis::out), &y_));
  const std::vector<int> filter =
      DimsOf(s.filters, s.channels / s.groups, axes, &Axis::kernel);
  SYNCLINE_RETURN_IF_ERROR(check(f.create_filter(&w_)));
  SYNCLINE_RETURN_IF_ERROR(
      check(f.set_filter(w_, TypeOf(s.type), kCudnnRowMajor,
                         static_cast<int>(filter.size()), filter.data())));
  SYNCLINE_RETURN_IF_ERROR(check(f.create_convolution(&convolution_)));
  SYNCLINE_RETURN_IF_ERROR(check(f.set_convolution(
      convolution_, static_cast<int>(axes.size()),
      Per(axes, &Axis::pad_begin).data(), Per(axes, &Axis::stride).data(),
      Per(axes, &Axis::dilation).data(), kCudnnCrossCorrelation, kCudnnFloat)));
  SYNCLINE_RETURN_IF_ERROR(
      check(f.set_groups(convolution_, static_cast<int>(s.groups))));
  return check(f.set_math(convolution_, MathOf(s.type, takes_tf32)));
}

CudnnConvolution::Roles CudnnConvolution::RolesOf(Pass pass) const {
  const CudnnFunctions& f = library_.functions();
  switch (pass) {
    case Pass::kForward:
      return {&f.forward, x_, w_, y_};
    case Pass::kBackwardData:
      return {&f.backward_data, w_, y_, x_};
    case Pass::kBackwardWeights:
      break;
  }
  return {&f.backward_filter, x_, y_, w_};
}

absl::Status CudnnConvolution::Choose(Pass pass, Device& device) {
  const Roles roles = RolesOf(pass);
  CudnnAlgorithm found[kAlgorithmsMax] = {};
  int count = 0;
  const absl::Status recommended =
      library_.With(device, absl::StrCat(NameOf(pass), ": choose an algorithm"),
                    [&](CudnnHandle handle) {
                      return roles.functions->recommend(
                          handle, roles.first, roles.second, convolution_,
                          roles.result, kAlgorithmsMax, &count, found);
                    });
  if (absl::IsUnimplemented(recommended)) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(recommended);
  for (int i = 0; i < std::min(count, kAlgorithmsMax); ++i) {
    const CudnnAlgorithm& candidate = found[i];
    // On another machine it would be taken: no reason to compute otherwise.
    const absl::Status usable = library_.StatusOf(
        candidate.status, absl::StrCat(NameOf(pass), ": choose an algorithm"));
    if (absl::IsFailedPrecondition(usable)) return usable;
    if (candidate.status != kCudnnSuccess ||
        candidate.determinism != kCudnnDeterministic ||
        !AddsProductsAsTheyStand(pass, candidate.algorithm)) {
      continue;
    }
    // The recommendation's own figure is an estimate.
    size_t bytes = 0;
    const absl::Status sized =
        library_.With(device, absl::StrCat(NameOf(pass), ": size a workspace"),
                      [&](CudnnHandle handle) {
                        return roles.functions->workspace(
                            handle, roles.first, roles.second, convolution_,
                            roles.result, candidate.algorithm, &bytes);
                      });
    if (absl::IsUnimplemented(sized)) continue;
    SYNCLINE_RETURN_IF_ERROR(sized);
    if (bytes > static_cast<size_t>(workspace_bytes_)) continue;
    chosen_[static_cast<int>(pass)] = Chosen{candidate.algorithm, bytes};
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status CudnnConvolution::Run(Pass pass, Stream& stream, ConstFloats first,
                                   ConstFloats second, bool accumulate,
                                   Floats result, void* workspace) {
  SYNCLINE_CHECK(has(pass));
  SYNCLINE_CHECK(first.type() == type_ && second.type() == type_ &&
                 result.type() == type_);
  const Roles roles = RolesOf(pass);
  const Chosen& chosen = *chosen_[static_cast<int>(pass)];
  const float alpha = 1;
  const float beta = accumulate ? 1 : 0;
  return library_.Enqueue(stream, NameOf(pass), [&](CudnnHandle handle) {
    return roles.functions->run(
        handle, &alpha, roles.first, first.data(), roles.second, second.data(),
        convolution_, chosen.algorithm, workspace, chosen.workspace_bytes,
        &beta, roles.result, result.data());
  });
}

}  // namespace syncline::cuda
