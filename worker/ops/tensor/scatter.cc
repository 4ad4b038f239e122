// ScatterElements and ScatterND.

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"
#include "worker/ops/axes.h"
#include "worker/ops/tensor/indexed.h"
#include "worker/ops/tensor/scatter_reduction.h"

namespace syncline::worker {
namespace {

// In the workspace: no place, because a later run replaces this one.
constexpr int64_t kReplaced = -1;

// The workspace has where each run begins.
class ScatterOp : public Op {
 public:
  ScatterOp(const OpSpec& spec, IndexedShape shape)
      : Op(TraitsOf(spec, shape)),
        data_count_(spec.input(0).count()),
        run_length_(shape.run_length),
        places_(spec.input(1), std::move(shape)) {}

  absl::Status Forward(const Tensors& t) override {
    auto* const begins = static_cast<int64_t*>(t.workspace);
    SYNCLINE_RETURN_IF_ERROR(places_.Find(t.inputs[1], begins));
    KeepLast(static_cast<int64_t*>(t.scratch), begins);
    std::memcpy(t.out(0), t.in(0), data_count_ * sizeof(float));
    const float* updates = t.in(2);
    for (int64_t i = 0; i < places_.runs(); ++i, updates += run_length_) {
      if (begins[i] == kReplaced) continue;
      std::copy_n(updates, run_length_, t.out(0) + begins[i]);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const auto* const begins = static_cast<const int64_t*>(t.workspace);
    if (g.in(2) != nullptr) UpdatesGradient(begins, g);
    if (g.in(0) == nullptr) return absl::OkStatus();
    // An element that was replaced has no part in the result: its gradient
    // stays as it was before.
    float* const dx = g.in(0);
    const float* const dy = g.out();
    float* const before = static_cast<float*>(t.scratch);
    Save(begins, dx, g.accumulate(0), before);
    Emit(data_count_, g.accumulate(0), dx, [=](int64_t k) { return dy[k]; });
    Restore(begins, before, dx);
    return absl::OkStatus();
  }

 private:
  static Traits TraitsOf(const OpSpec& spec, const IndexedShape& shape) {
    Traits traits;
    traits.gradient_in_place = true;
    traits.workspace_bytes = shape.runs * sizeof(int64_t);
    if (shape.run_length > 0) {
      traits.forward_scratch_bytes =
          spec.input(0).count() / shape.run_length * sizeof(int64_t);
      traits.backward_scratch_bytes =
          shape.runs * shape.run_length * sizeof(float);
    }
    return traits;
  }

  // `last` is the last run at each place.
  void KeepLast(int64_t* last, int64_t* begins) const {
    if (run_length_ == 0) return;
    for (int64_t i = 0; i < places_.runs(); ++i) {
      last[begins[i] / run_length_] = i;
    }
    for (int64_t i = 0; i < places_.runs(); ++i) {
      if (last[begins[i] / run_length_] != i) begins[i] = kReplaced;
    }
  }

  void UpdatesGradient(const int64_t* begins, const Gradients& g) const {
    float* du = g.in(2);
    for (int64_t i = 0; i < places_.runs(); ++i, du += run_length_) {
      if (begins[i] == kReplaced) {
        if (!g.accumulate(2)) std::fill_n(du, run_length_, 0.0f);
        continue;
      }
      const float* const dy = g.out() + begins[i];
      Emit(run_length_, g.accumulate(2), du, [=](int64_t k) { return dy[k]; });
    }
  }

  void Save(const int64_t* begins, const float* dx, bool accumulate,
            float* before) const {
    for (int64_t i = 0; i < places_.runs(); ++i, before += run_length_) {
      if (begins[i] == kReplaced) continue;
      if (accumulate) {
        std::copy_n(dx + begins[i], run_length_, before);
      } else {
        std::fill_n(before, run_length_, 0.0f);
      }
    }
  }

  void Restore(const int64_t* begins, const float* before, float* dx) const {
    for (int64_t i = 0; i < places_.runs(); ++i, before += run_length_) {
      if (begins[i] == kReplaced) continue;
      std::copy_n(before, run_length_, dx + begins[i]);
    }
  }

  const int64_t data_count_;
  const int64_t run_length_;
  RunPlaces places_;
};

// An operator whose output is its first input, with the runs of the third one
// at the places that the second one says: in place of what is there, or reduced
// with it as the attribute "reduction" says (scatter_reduction.h). float32. Of
// runs that replace the same place the last one counts, and has the gradient;
// ONNX leaves that open. REQUIRES: places of runs are multiples of their
// length.
absl::StatusOr<std::unique_ptr<Op>> MakeScatter(const OpSpec& spec,
                                                IndexedShape shape) {
  SYNCLINE_RETURN_IF_ERROR(RunPlaces::Check(spec.input(1)));
  if (spec.input(0).dtype != DType::kFloat32 ||
      spec.input(2).dtype != DType::kFloat32) {
    return absl::InvalidArgumentError("only float32 is computed");
  }
  const std::string reduction = spec.node->String("reduction", "none");
  if (reduction != "none") {
    return MakeScatterReduction(spec, std::move(shape), reduction);
  }
  return std::make_unique<ScatterOp>(spec, std::move(shape));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeScatterElements(const OpSpec& spec) {
  const Dims& data = spec.input(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis, ResolveAxis(spec.node->Int("axis", 0), data.size()));
  SYNCLINE_ASSIGN_OR_RETURN(IndexedShape shape,
                            ElementsAlong(data, spec.input(1).dims, axis));
  if (spec.input(2).dims != spec.input(1).dims) {
    return absl::InvalidArgumentError(absl::StrCat(
        "updates ", DimsToString(spec.input(2).dims),
        " are not of the indices' shape ", DimsToString(spec.input(1).dims)));
  }
  return MakeScatter(spec, std::move(shape));
}

absl::StatusOr<std::unique_ptr<Op>> MakeScatterND(const OpSpec& spec) {
  const Dims& data = spec.input(0).dims;
  const Dims& indices = spec.input(1).dims;
  const Dims& updates = spec.input(2).dims;
  auto shape = PartsByTuple(data, indices, /*batch_dims=*/0);
  if (shape.ok()) {
    Dims wanted(indices.begin(), indices.end() - 1);
    wanted.insert(wanted.end(), data.begin() + indices.back(), data.end());
    if (updates == wanted) return MakeScatter(spec, *std::move(shape));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "data ", DimsToString(data), ", indices ", DimsToString(indices),
      " and updates ", DimsToString(updates), " do not fit"));
}

}  // namespace syncline::worker
