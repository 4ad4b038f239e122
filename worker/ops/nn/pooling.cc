// AveragePool, MaxPool and their global forms.

#include "kernels/pooling.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/threads.h"
#include "worker/ops/nn/window.h"
#include "worker/ops/reduction/reductions.h"

namespace syncline::worker {
namespace {

class AveragePoolOp : public Op {
 public:
  AveragePoolOp(const OpSpec& spec, Window window)
      : Op(Traits()),
        planes_(PlanesOf(spec)),
        window_(std::move(window)),
        weights_(AverageWeights(window_,
                                spec.node->Int("count_include_pad", 0) != 0)) {}

  absl::Status Forward(const Tensors& t) override {
    AveragePool(planes_, window_, weights_.data(), t.in(0), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors&, const Gradients& g) override {
    AveragePoolGradient(planes_, window_, weights_.data(), g.out(),
                        g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const int64_t planes_;
  const Window window_;
  const std::vector<float> weights_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAveragePool(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  SYNCLINE_ASSIGN_OR_RETURN(const Dims kernel, KernelShapeOf(*spec.node));
  SYNCLINE_ASSIGN_OR_RETURN(
      Window window,
      WindowOf(*spec.node, spec.input(0).dims, spec.output(0).dims, kernel));
  AddChannelAxis(spec, &window);
  return std::make_unique<AveragePoolOp>(spec, std::move(window));
}

namespace {

class MaxPoolOp : public Op {
 public:
  MaxPoolOp(const OpSpec& spec, Window window)
      : Op(TraitsOf(spec)),
        planes_(PlanesOf(spec)),
        window_(std::move(window)),
        column_major_(spec.node->Int("storage_order", 0) != 0),
        keeps_indices_(traits().workspace_bytes > 0) {}

  absl::Status Forward(const Tensors& t) override {
    auto* const indices =
        keeps_indices_ ? static_cast<int32_t*>(t.workspace) : nullptr;
    const int64_t in = window_.in_count();
    const int64_t out = window_.out_count();
    ParallelForRows(planes_, in, [&](int64_t begin, int64_t end) {
      MaxPool(end - begin, window_, t.in(0) + begin * in,
              t.out(0) + begin * out,
              indices == nullptr ? nullptr : indices + begin * out);
    });
    if (t.outputs.size() > 1 && t.outputs[1] != nullptr) {
      WriteIndices(indices, static_cast<int64_t*>(t.outputs[1]));
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const auto* const indices = static_cast<const int32_t*>(t.workspace);
    const int64_t in = window_.in_count();
    const int64_t out = window_.out_count();
    ParallelForRows(planes_, in, [&](int64_t begin, int64_t end) {
      MaxPoolGradient(end - begin, window_, indices + begin * out,
                      g.out() + begin * out, g.accumulate(0),
                      g.in(0) + begin * in);
    });
    return absl::OkStatus();
  }

 private:
  static Traits TraitsOf(const OpSpec& spec) {
    Traits traits;
    if (spec.WantsGradient(0) || spec.output(1).present) {
      traits.workspace_bytes = spec.output(0).count() * sizeof(int32_t);
    }
    return traits;
  }

  // As the second output wants them: within the whole input; with
  // storage_order 1 each plane is counted along its first axis first.
  void WriteIndices(const int32_t* indices, int64_t* out) const {
    const int64_t in = window_.in_count();
    const int64_t count = window_.out_count();
    for (int64_t i = 0; i < planes_ * count; ++i) {
      out[i] = i / count * in +
               (column_major_ ? ColumnMajor(indices[i]) : indices[i]);
    }
  }
  int64_t ColumnMajor(int64_t index) const {
    int64_t flat = 0;
    int64_t stride = window_.in_count();
    for (size_t a = window_.axes.size(); a-- > 0;) {
      const int64_t n = window_.axes[a].in;
      stride /= n;
      flat += index % n * stride;
      index /= n;
    }
    return flat;
  }

  const int64_t planes_;
  const Window window_;
  const bool column_major_;
  const bool keeps_indices_;
};

// The largest element of each window of each plane of input 0 [batch, channels,
// spatial...]; output 1, if there is one, says where it was. Errors:
// InvalidArgument: not float32, a plane of more than 2^31 - 1 elements.
absl::StatusOr<std::unique_ptr<Op>> MakeMaxPoolOver(const OpSpec& spec,
                                                    Window window) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  if (window.in_count() > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a plane of ", window.in_count(), " elements; at most 2^31 - 1"));
  }
  return std::make_unique<MaxPoolOp>(spec, std::move(window));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeMaxPool(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const Dims kernel, KernelShapeOf(*spec.node));
  SYNCLINE_ASSIGN_OR_RETURN(
      Window window,
      WindowOf(*spec.node, spec.input(0).dims, spec.output(0).dims, kernel));
  AddChannelAxis(spec, &window);
  return MakeMaxPoolOver(spec, std::move(window));
}

absl::StatusOr<std::unique_ptr<Op>> MakeGlobalAveragePool(const OpSpec& spec) {
  Dims reduced = spec.input(0).dims;
  if (reduced.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(reduced),
                     "; it must have at least one spatial dimension"));
  }
  const int64_t block = spec.input(0).channel_block;
  if (block == 1) {
    std::fill(reduced.begin() + 2, reduced.end(), 1);
    return MakeReduceTo(spec, reduced, Reduction::kMean);
  }
  const int64_t blocks = reduced[0] * reduced[1] / block;
  OpSpec planes = spec;
  planes.inputs[0].dims = {blocks, spec.input(0).count() / (blocks * block),
                           block};
  return MakeReduceTo(planes, {blocks, 1, block}, Reduction::kMean);
}

absl::StatusOr<std::unique_ptr<Op>> MakeGlobalMaxPool(const OpSpec& spec) {
  const Dims& x = spec.input(0).dims;
  if (x.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(x),
                     "; it must have at least one spatial dimension"));
  }
  const int64_t plane = ElementCount({x.data() + 2, x.size() - 2});
  Window window = {{{.in = plane, .kernel = plane}}};
  AddChannelAxis(spec, &window);
  return MakeMaxPoolOver(spec, std::move(window));
}

}  // namespace syncline::worker
