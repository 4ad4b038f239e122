#include "worker/ops/maxpool.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/pooling.h"
#include "kernels/threads.h"
#include "worker/ops/window.h"

namespace syncline::worker {
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

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeMaxPoolOver(const OpSpec& spec,
                                                    Window window) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  if (window.in_count() > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a plane of ", window.in_count(), " elements; at most 2^31 - 1"));
  }
  return std::make_unique<MaxPoolOp>(spec, std::move(window));
}

absl::StatusOr<std::unique_ptr<Op>> MakeMaxPool(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const Dims kernel, KernelShapeOf(*spec.node));
  SYNCLINE_ASSIGN_OR_RETURN(
      Window window,
      WindowOf(*spec.node, spec.input(0).dims, spec.output(0).dims, kernel));
  AddChannelAxis(spec, &window);
  return MakeMaxPoolOver(spec, std::move(window));
}

}  // namespace syncline::worker
