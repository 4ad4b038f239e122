#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/local_response.h"
#include "kernels/threads.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

Op::Traits TraitsOf(int64_t count) {
  Op::Traits traits;
  traits.backward_inputs = 0b1;
  traits.workspace_bytes = count * static_cast<int64_t>(sizeof(float));
  traits.backward_scratch_bytes = count * static_cast<int64_t>(sizeof(float));
  return traits;
}

// The workspace has what each element is divided by a power of.
class LocalResponseOp : public Op {
 public:
  LocalResponseOp(const OpSpec& spec, const LocalResponse& shape)
      : Op(TraitsOf(spec.input(0).count())), shape_(shape) {}

  absl::Status Forward(const Tensors& t) override {
    ForSamples([&](const LocalResponse& part, int64_t at) {
      NormalizeResponse(part, t.in(0) + at,
                        static_cast<float*>(t.workspace) + at, t.out(0) + at);
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    ForSamples([&](const LocalResponse& part, int64_t at) {
      NormalizeResponseGradient(
          part, t.in(0) + at, static_cast<const float*>(t.workspace) + at,
          g.out() + at, g.accumulate(0), static_cast<float*>(t.scratch) + at,
          g.in(0) + at);
    });
    return absl::OkStatus();
  }

 private:
  // Calls run(part, offset) for the samples that each thread has.
  template <typename Run>
  void ForSamples(Run run) const {
    const int64_t sample = shape_.channels * shape_.plane;
    ParallelForRows(shape_.batch, sample, [&](int64_t begin, int64_t end) {
      LocalResponse part = shape_;
      part.batch = end - begin;
      run(part, begin * sample);
    });
  }

  const LocalResponse shape_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeLRN(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const Dims& x = spec.input(0).dims;
  LocalResponse shape;
  shape.size = spec.node->Int("size", 0);
  if (x.size() < 2 || shape.size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(x), " and size ", shape.size,
                     "; its second dimension must be that of the channels, and "
                     "size at least 1"));
  }
  shape.alpha = spec.node->Float("alpha", 1e-4f);
  shape.beta = spec.node->Float("beta", 0.75f);
  shape.bias = spec.node->Float("bias", 1.0f);
  shape.batch = x[0];
  shape.channels = x[1];
  shape.plane = ElementCount({x.data() + 2, x.size() - 2});
  return std::make_unique<LocalResponseOp>(spec, shape);
}

}  // namespace syncline::worker
