#include "worker/ops/tensor/scatter_reduction.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"

namespace syncline::worker {
namespace {

struct Sum {
  static float Of(float a, float b) { return a + b; }
};
struct Product {
  static float Of(float a, float b) { return a * b; }
};
// NaN is kept.
struct Larger {
  static float Of(float a, float b) { return b > a || b != b ? b : a; }
};
struct Smaller {
  static float Of(float a, float b) { return b < a || b != b ? b : a; }
};

// The workspace has where each run begins.
template <typename Reduction>
class ReducingScatterOp : public Op {
 public:
  ReducingScatterOp(const OpSpec& spec, IndexedShape shape, Traits traits)
      : Op(traits),
        data_count_(spec.input(0).count()),
        run_length_(shape.run_length),
        places_(spec.input(1), std::move(shape)) {}

  absl::Status Forward(const Tensors& t) override {
    SYNCLINE_RETURN_IF_ERROR(
        places_.Find(t.inputs[1], static_cast<int64_t*>(t.workspace)));
    float* const y = t.out(0);
    std::copy_n(t.in(0), data_count_, y);
    if constexpr (std::is_same_v<Reduction, Sum>) {
      places_.Add(static_cast<const int64_t*>(t.workspace), data_count_,
                  t.in(2), y, t.scratch);
      return absl::OkStatus();
    }
    ForEachRun(t, [&](int64_t at, int64_t begin) {
      const float* const updates = t.in(2) + at;
      float* const to = y + begin;
      Emit(run_length_, /*accumulate=*/false, to,
           [=](int64_t k) { return Reduction::Of(to[k], updates[k]); });
    });
    return absl::OkStatus();
  }

 protected:
  static Traits BaseTraits(const IndexedShape& shape) {
    Traits traits;
    traits.gradient_in_place = true;
    traits.workspace_bytes = shape.runs * sizeof(int64_t);
    return traits;
  }

  int64_t data_count() const { return data_count_; }
  int64_t run_length() const { return run_length_; }

  // Calls each(at, begin): the updates from `at` on go to places from `begin`.
  template <typename Each>
  void ForEachRun(const Tensors& t, Each each) const {
    const auto* const begins = static_cast<const int64_t*>(t.workspace);
    for (int64_t i = 0; i < places_.runs(); ++i) {
      each(i * run_length_, begins[i]);
    }
  }
  template <typename Each>
  void ForEachRunBackwards(const Tensors& t, Each each) const {
    const auto* const begins = static_cast<const int64_t*>(t.workspace);
    for (int64_t i = places_.runs(); i-- > 0;) {
      each(i * run_length_, begins[i]);
    }
  }

 private:
  const int64_t data_count_;
  const int64_t run_length_;
  RunPlaces places_;
};

class AddingScatterOp : public ReducingScatterOp<Sum> {
 public:
  AddingScatterOp(const OpSpec& spec, IndexedShape shape)
      : ReducingScatterOp(spec, shape, TraitsOf(shape)) {}

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(2) != nullptr) {
      ForEachRun(t, [&](int64_t at, int64_t begin) {
        const float* const dy = g.out() + begin;
        Emit(run_length(), g.accumulate(2), g.in(2) + at,
             [=](int64_t k) { return dy[k]; });
      });
    }
    if (g.in(0) == nullptr) return absl::OkStatus();
    const float* const dy = g.out();
    Emit(data_count(), g.accumulate(0), g.in(0),
         [=](int64_t k) { return dy[k]; });
    return absl::OkStatus();
  }

 private:
  static Traits TraitsOf(const IndexedShape& shape) {
    Traits traits = BaseTraits(shape);
    traits.forward_scratch_bytes = AddingScratchBytes(shape);
    return traits;
  }
};

// A factor's derivative is the product of all others in its place: of those
// before it and of those after it. (A quotient fails where a factor is 0.)
class MultiplyingScatterOp : public ReducingScatterOp<Product> {
 public:
  MultiplyingScatterOp(const OpSpec& spec, IndexedShape shape)
      : ReducingScatterOp(spec, shape, TraitsOf(spec, shape)) {}

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    float* const product = static_cast<float*>(t.scratch);
    float* const before = product + data_count();  // by update
    std::copy_n(t.in(0), data_count(), product);
    ForEachRun(t, [&](int64_t at, int64_t begin) {
      std::copy_n(product + begin, run_length(), before + at);
      Multiply(t.in(2) + at, product + begin);
    });
    std::fill_n(product, data_count(), 1.0f);
    ForEachRunBackwards(t, [&](int64_t at, int64_t begin) {
      const float* const after = product + begin;
      const float* const dy = g.out() + begin;
      if (g.in(2) != nullptr) {
        Emit(run_length(), g.accumulate(2), g.in(2) + at,
             [=, b = before + at](int64_t k) {
               return dy[k] * b[k] * after[k];
             });
      }
      Multiply(t.in(2) + at, product + begin);
    });
    if (g.in(0) == nullptr) return absl::OkStatus();
    const float* const dy = g.out();
    Emit(data_count(), g.accumulate(0), g.in(0),
         [=](int64_t k) { return dy[k] * product[k]; });
    return absl::OkStatus();
  }

 private:
  static Traits TraitsOf(const OpSpec& spec, const IndexedShape& shape) {
    Traits traits = BaseTraits(shape);
    traits.backward_inputs = 0b101;
    traits.backward_scratch_bytes =
        (spec.input(0).count() + spec.input(2).count()) * sizeof(float);
    return traits;
  }

  void Multiply(const float* by, float* product) const {
    Emit(run_length(), /*accumulate=*/false, product,
         [=](int64_t k) { return product[k] * by[k]; });
  }
};

template <typename Extremum>
class ExtremumScatterOp : public ReducingScatterOp<Extremum> {
 public:
  ExtremumScatterOp(const OpSpec& spec, IndexedShape shape)
      : ReducingScatterOp<Extremum>(spec, shape, TraitsOf(spec, shape)) {}

  absl::Status Backward(const Op::Tensors& t, const Op::Gradients& g) override {
    float* const share = static_cast<float*>(t.scratch);
    const float* const x = t.in(0);
    const float* const y = t.out(0);
    const int64_t count = this->data_count();
    const int64_t run = this->run_length();
    Emit(count, /*accumulate=*/false, share,
         [=](int64_t k) { return x[k] == y[k] ? 1.0f : 0.0f; });
    this->ForEachRun(t, [&](int64_t at, int64_t begin) {
      const float* const updates = t.in(2) + at;
      Emit(run, /*accumulate=*/true, share + begin,
           [=](int64_t k) { return updates[k] == y[begin + k] ? 1.0f : 0.0f; });
    });
    const float* const dy = g.out();
    Emit(count, /*accumulate=*/false, share,
         [=](int64_t k) { return dy[k] / share[k]; });
    if (g.in(2) != nullptr) {
      this->ForEachRun(t, [&](int64_t at, int64_t begin) {
        const float* const updates = t.in(2) + at;
        Emit(run, g.accumulate(2), g.in(2) + at, [=](int64_t k) {
          return updates[k] == y[begin + k] ? share[begin + k] : 0.0f;
        });
      });
    }
    if (g.in(0) == nullptr) return absl::OkStatus();
    Emit(count, g.accumulate(0), g.in(0),
         [=](int64_t k) { return x[k] == y[k] ? share[k] : 0.0f; });
    return absl::OkStatus();
  }

 private:
  static Op::Traits TraitsOf(const OpSpec& spec, const IndexedShape& shape) {
    Op::Traits traits = ReducingScatterOp<Extremum>::BaseTraits(shape);
    traits.backward_inputs = 0b101;
    traits.backward_outputs = 1;
    traits.backward_scratch_bytes = spec.input(0).count() * sizeof(float);
    return traits;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeScatterReduction(
    const OpSpec& spec, IndexedShape shape, absl::string_view reduction) {
  if (reduction == "add") {
    return std::make_unique<AddingScatterOp>(spec, std::move(shape));
  }
  if (reduction == "mul") {
    return std::make_unique<MultiplyingScatterOp>(spec, std::move(shape));
  }
  if (reduction == "max") {
    return std::make_unique<ExtremumScatterOp<Larger>>(spec, std::move(shape));
  }
  if (reduction == "min") {
    return std::make_unique<ExtremumScatterOp<Smaller>>(spec, std::move(shape));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("reduction is \"", reduction,
                   "\"; it must be none, add, mul, max or min"));
}

}  // namespace syncline::worker
