#include "worker/ops/tensor/strided_copy.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/loop.h"
#include "kernels/threads.h"

namespace syncline::worker {
namespace {

// walk.ForEachRow(row), by several threads. REQUIRES: no two rows write to one
// place.
template <typename Row>
void ForEachRowShared(const Strided<1>& walk, Row row) {
  const int64_t parts = walk.outermost();
  ParallelForRows(
      parts, parts == 0 ? 0 : walk.count() / parts,
      [&](int64_t begin, int64_t end) { walk.ForEachRowIn(begin, end, row); });
}

template <typename T>
void Copy(const Strided<1>& walk, const void* from, void* to) {
  const T* const x = static_cast<const T*>(from);
  T* const y = static_cast<T*>(to);
  const int64_t n = walk.inner();
  const int64_t stride = walk.inner_strides()[0];
  ForEachRowShared(walk, [=](int64_t at, const auto& offsets) {
    const T* const in = x + offsets[0];
    if (stride == 1) {
      std::copy_n(in, n, y + at);
    } else if (stride == 0) {
      std::fill_n(y + at, n, *in);
    } else {
      for (int64_t i = 0; i < n; ++i) y[at + i] = in[i * stride];
    }
  });
}

class StridedCopyOp : public Op {
 public:
  StridedCopyOp(const OpSpec& spec, Strided<1> walk, bool each_once,
                std::optional<Broadcast> repeats)
      : Op(Traits()),
        walk_(std::move(walk)),
        each_once_(each_once),
        repeats_(std::move(repeats)),
        element_bytes_(DTypeBytes(spec.input(0).dtype)),
        input_count_(spec.input(0).count()) {}

  absl::Status Forward(const Tensors& t) override {
    CopyStrided(walk_, element_bytes_, t.inputs[0], t.outputs[0]);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors&, const Gradients& g) override {
    if (each_once_ && !g.accumulate(0)) {
      Scatter(g.out(), g.in(0));
      return absl::OkStatus();
    }
    if (repeats_.has_value()) {
      AddGradient(*repeats_, Side::kB, /*scale=*/1, g.out(), g.accumulate(0),
                  g.in(0));
      return absl::OkStatus();
    }
    if (!g.accumulate(0)) std::fill_n(g.in(0), input_count_, 0.0f);
    AddStrided(walk_, g.out(), g.in(0));
    return absl::OkStatus();
  }

 private:
  void Scatter(const float* dy, float* dx) const {
    const int64_t n = walk_.inner();
    const int64_t stride = walk_.inner_strides()[0];
    ForEachRowShared(walk_, [=](int64_t at, const auto& offsets) {
      float* const out = dx + offsets[0];
      if (stride == 1) {
        std::copy_n(dy + at, n, out);
      } else {
        for (int64_t i = 0; i < n; ++i) out[i * stride] = dy[at + i];
      }
    });
  }

  const Strided<1> walk_;
  const bool each_once_;
  const std::optional<Broadcast> repeats_;
  const size_t element_bytes_;
  const int64_t input_count_;
};

template <typename T>
std::vector<int64_t> Widened(const TensorType& input) {
  const T* const values = static_cast<const T*>(input.constant);
  return std::vector<int64_t>(values, values + input.count());
}

}  // namespace

void CopyStrided(const Strided<1>& walk, size_t element_bytes, const void* x,
                 void* y) {
  switch (element_bytes) {
    case 1:
      return Copy<uint8_t>(walk, x, y);
    case 4:
      return Copy<uint32_t>(walk, x, y);
    default:
      return Copy<uint64_t>(walk, x, y);
  }
}

void AddStrided(const Strided<1>& walk, const float* dy, float* dx) {
  const int64_t n = walk.inner();
  const int64_t stride = walk.inner_strides()[0];
  walk.ForEachRow([=](int64_t at, const auto& offsets) {
    const float* const in = dy + at;
    float* const out = dx + offsets[0];
    if (stride == 0) {
      *out += SumOf(n, [=](int64_t i) { return in[i]; });
    } else if (stride == 1) {
      Emit(n, /*accumulate=*/true, out, [=](int64_t i) { return in[i]; });
    } else {
      for (int64_t i = 0; i < n; ++i) out[i * stride] += in[i];
    }
  });
}

std::unique_ptr<Op> MakeStridedCopy(const OpSpec& spec, Strided<1> walk,
                                    bool each_once) {
  return std::make_unique<StridedCopyOp>(spec, std::move(walk), each_once,
                                         std::nullopt);
}

absl::StatusOr<std::unique_ptr<Op>> MakeRepeatedCopy(const OpSpec& spec) {
  const Dims& in = spec.input(0).dims;
  const Dims& out = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(Broadcast repeats, MakeBroadcast(out, in));
  return std::make_unique<StridedCopyOp>(
      spec, Strided<1>(out, {BroadcastStrides(in, out)}), /*each_once=*/false,
      std::move(repeats));
}

absl::StatusOr<std::vector<int64_t>> ConstantInts(const TensorType& input,
                                                  absl::string_view what) {
  if (input.constant != nullptr && input.dtype == DType::kInt64) {
    return Widened<int64_t>(input);
  }
  if (input.constant != nullptr && input.dtype == DType::kInt32) {
    return Widened<int32_t>(input);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " must be constant, of type int64 or int32"));
}

}  // namespace syncline::worker
