#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/report.h"
#include "kernels/device/rotary_kernels.h"

namespace syncline {
namespace {

using cuda::ConstFloatArray;
using cuda::FloatArray;
using cuda::Global;
using cuda::OnDevice;

// A head at one place; its threads turn a pair each, or copy an element that is
// in none.
struct TurnElement {
  RotaryShape s;
  bool back;
  bool accumulate;
  ConstFloatArray x;
  ConstFloatArray cosines;
  ConstFloatArray sines;
  Global<const int64_t> positions;
  FloatArray y;
  cuda::Reporter errors;

  SYNCLINE_DEVICE bool IsOutside(int64_t row) const {
    return s.by_position && (row < 0 || row >= s.positions);
  }
  SYNCLINE_DEVICE int64_t parts() const { return s.width - s.pairs; }

  SYNCLINE_DEVICE void Write(int64_t i, float value) const {
    y[i] = accumulate ? y[i] + value : value;
  }

  SYNCLINE_DEVICE void operator()(int64_t element) const {
    const int64_t part = element % parts();
    const int64_t i = element / parts() % s.length;
    const int64_t h = element / parts() / s.length % s.heads;
    const int64_t b = element / parts() / s.length / s.heads;
    const int64_t at = b * s.length + i;
    int64_t row = at;
    if (s.by_position) row = positions[at];
    const bool outside = IsOutside(row);
    if (outside && part == 0 && h == 0) errors.Report(/*kind=*/0, at, row);
    const int64_t head = s.joined
                             ? (at * s.heads + h) * s.width
                             : ((b * s.heads + h) * s.length + i) * s.width;
    if (part >= s.pairs) {
      const int64_t alone = head + s.pairs + part;
      return Write(alone, x[alone]);
    }
    const int64_t first = head + (s.interleaved ? 2 * part : part);
    const int64_t second = s.interleaved ? first + 1 : first + s.pairs;
    const float p = x[first];
    const float q = x[second];
    if (outside) {
      Write(first, p);
      Write(second, q);
      return;
    }
    const float cosine = cosines[row * s.pairs + part];
    const float size = sines[row * s.pairs + part];
    const float sine = back ? -size : size;
    Write(first, cosine * p - sine * q);
    Write(second, sine * p + cosine * q);
  }
};

void Turn(Stream& stream, const RotaryShape& s, ConstFloats x,
          ConstFloats cosines, ConstFloats sines, const int64_t* positions,
          bool back, bool accumulate, Floats y, const ErrorSlot& errors) {
  const TurnElement turn = {s,
                            back,
                            accumulate,
                            OnDevice(x),
                            OnDevice(cosines),
                            OnDevice(sines),
                            OnDevice(positions),
                            OnDevice(y),
                            cuda::OnDevice(errors)};
  const int64_t of_place = s.heads * (s.width - s.pairs);
  if (of_place > 0) {
    cuda::LaunchElements(stream, s.batch * s.length * of_place, turn);
  } else if (s.by_position) {
    // Heads without elements have no thread that turns.
    cuda::LaunchElements(stream, s.batch * s.length,
                         [turn] SYNCLINE_DEVICE(int64_t at) {
                           const int64_t row = turn.positions[at];
                           if (turn.IsOutside(row))
                             turn.errors.Report(/*kind=*/0, at, row);
                         });
  }
}

}  // namespace

const RotaryKernels& CudaRotaryKernels() {
  static constexpr RotaryKernels kKernels = {.turn = Turn};
  return kKernels;
}

}  // namespace syncline
