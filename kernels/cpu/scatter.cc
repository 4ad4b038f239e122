#include <algorithm>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/indexed.h"
#include "kernels/device/scatter_kernels.h"
#include "kernels/elementwise/loop.h"

namespace syncline {
namespace {

// Of begins: nowhere, because a later run replaces this one.
constexpr int64_t kReplaced = -1;

int64_t NoScratch(const IndexedShape&) { return 0; }

// Calls each(at, begin): the updates from `at` on go to places from `begin` on.
template <typename Each>
void ForEachRun(const IndexedShape& s, const int64_t* begins, Each each) {
  if (s.count == 0) return;
  for (int64_t i = 0; i < s.runs; ++i) {
    if (begins[i] != kReplaced) each(i * s.run_length, begins[i]);
  }
}

// gradients.updates from value(begin, k).
template <typename Value>
void EmitRuns(const IndexedShape& s, const int64_t* begins,
              const ScatterKernels::Gradients& gradients, Value value) {
  ForEachRun(s, begins, [&](int64_t at, int64_t begin) {
    Emit(s.run_length, gradients.accumulate_updates, gradients.updates + at,
         [=](int64_t k) { return value(at + k, begin + k); });
  });
}

void CopyGradient(const IndexedShape& s, const float* dy,
                  const ScatterKernels::Gradients& gradients) {
  Emit(s.count, gradients.accumulate_x, gradients.x,
       [=](int64_t k) { return dy[k]; });
}

struct Replace {
  // `last` is the last run at each place.
  static void KeepLast(const IndexedShape& s, int64_t* last, int64_t* begins) {
    if (s.count == 0) return;
    for (int64_t i = 0; i < s.runs; ++i) last[begins[i] / s.run_length] = i;
    for (int64_t i = 0; i < s.runs; ++i) {
      if (last[begins[i] / s.run_length] != i) begins[i] = kReplaced;
    }
  }

  static void Forward(Stream& stream, const IndexedShape& s, const float* x,
                      const float* updates, int64_t* begins, float* y,
                      void* scratch) {
    const CpuKernel kernel(stream);
    KeepLast(s, static_cast<int64_t*>(scratch), begins);
    std::copy_n(x, s.count, y);
    ForEachRun(s, begins, [=, &s](int64_t at, int64_t begin) {
      std::copy_n(updates + at, s.run_length, y + begin);
    });
  }

  // An element that was replaced has no part in the result: its gradient stays
  // as it was before.
  static void Backward(Stream& stream, const IndexedShape& s, const float*,
                       const float*, const int64_t* begins, const float*,
                       const float* dy,
                       const ScatterKernels::Gradients& gradients,
                       void* scratch) {
    const CpuKernel kernel(stream);
    if (s.count == 0) return;
    if (gradients.updates != nullptr) UpdatesGradient(s, begins, dy, gradients);
    if (gradients.x == nullptr) return;
    float* const dx = gradients.x;
    float* const before = static_cast<float*>(scratch);
    ForEachRun(s, begins, [&](int64_t at, int64_t begin) {
      if (gradients.accumulate_x) {
        std::copy_n(dx + begin, s.run_length, before + at);
      } else {
        std::fill_n(before + at, s.run_length, 0.0f);
      }
    });
    CopyGradient(s, dy, gradients);
    ForEachRun(s, begins, [&](int64_t at, int64_t begin) {
      std::copy_n(before + at, s.run_length, dx + begin);
    });
  }

  static void UpdatesGradient(const IndexedShape& s, const int64_t* begins,
                              const float* dy,
                              const ScatterKernels::Gradients& gradients) {
    float* du = gradients.updates;
    for (int64_t i = 0; i < s.runs; ++i, du += s.run_length) {
      if (begins[i] != kReplaced) {
        Emit(s.run_length, gradients.accumulate_updates, du,
             [from = dy + begins[i]](int64_t k) { return from[k]; });
      } else if (!gradients.accumulate_updates) {
        std::fill_n(du, s.run_length, 0.0f);
      }
    }
  }

  static int64_t ForwardScratchBytes(const IndexedShape& s) {
    if (s.run_length == 0) return 0;
    return s.count / s.run_length * static_cast<int64_t>(sizeof(int64_t));
  }
  static int64_t BackwardScratchBytes(const IndexedShape& s) {
    return s.runs * s.run_length * static_cast<int64_t>(sizeof(float));
  }
};

struct Sum {
  static void Forward(Stream& stream, const IndexedShape& s, const float* x,
                      const float* updates, int64_t* begins, float* y,
                      void* scratch) {
    const CpuKernel kernel(stream);
    std::copy_n(x, s.count, y);
    AddRuns(s, begins, updates, y, scratch);
  }

  static void Backward(Stream& stream, const IndexedShape& s, const float*,
                       const float*, const int64_t* begins, const float*,
                       const float* dy,
                       const ScatterKernels::Gradients& gradients, void*) {
    const CpuKernel kernel(stream);
    if (gradients.updates != nullptr) {
      EmitRuns(s, begins, gradients,
               [=](int64_t, int64_t to) { return dy[to]; });
    }
    if (gradients.x != nullptr) CopyGradient(s, dy, gradients);
  }
};

// y = x, and then f(y, update) for each update.
template <typename F>
void Fold(Stream& stream, const IndexedShape& s, const float* x,
          const float* updates, int64_t* begins, float* y, void*) {
  const CpuKernel kernel(stream);
  std::copy_n(x, s.count, y);
  ForEachRun(s, begins, [=, &s](int64_t at, int64_t begin) {
    const float* const from = updates + at;
    float* const to = y + begin;
    Emit(s.run_length, /*accumulate=*/false, to,
         [=](int64_t k) { return F::Of(to[k], from[k]); });
  });
}

struct Product {
  static float Of(float a, float b) { return a * b; }

  // A factor's derivative is the product of all others in its place: of those
  // before it and of those after it. (A quotient fails where a factor is 0.)
  static void Backward(Stream& stream, const IndexedShape& s, const float* x,
                       const float* updates, const int64_t* begins,
                       const float*, const float* dy,
                       const ScatterKernels::Gradients& gradients,
                       void* scratch) {
    const CpuKernel kernel(stream);
    float* const product = static_cast<float*>(scratch);
    float* const before = product + s.count;  // by update
    std::copy_n(x, s.count, product);
    const auto multiply = [&](int64_t at, int64_t begin) {
      const float* const by = updates + at;
      float* const to = product + begin;
      Emit(s.run_length, /*accumulate=*/false, to,
           [=](int64_t k) { return to[k] * by[k]; });
    };
    ForEachRun(s, begins, [&](int64_t at, int64_t begin) {
      std::copy_n(product + begin, s.run_length, before + at);
      multiply(at, begin);
    });
    std::fill_n(product, s.count, 1.0f);
    for (int64_t i = s.count == 0 ? 0 : s.runs; i-- > 0;) {
      const int64_t at = i * s.run_length;
      if (gradients.updates != nullptr) {
        Emit(
            s.run_length, gradients.accumulate_updates, gradients.updates + at,
            [dy = dy + begins[i], b = before + at, after = product + begins[i]](
                int64_t k) { return dy[k] * b[k] * after[k]; });
      }
      multiply(at, begins[i]);
    }
    if (gradients.x == nullptr) return;
    Emit(s.count, gradients.accumulate_x, gradients.x,
         [=](int64_t k) { return dy[k] * product[k]; });
  }

  static int64_t BackwardScratchBytes(const IndexedShape& s) {
    return (s.count + s.runs * s.run_length) *
           static_cast<int64_t>(sizeof(float));
  }
};

// NaN is kept.
struct Larger {
  static float Of(float a, float b) { return b > a || b != b ? b : a; }
};
struct Smaller {
  static float Of(float a, float b) { return b < a || b != b ? b : a; }
};

void ExtremumBackward(Stream& stream, const IndexedShape& s, const float* x,
                      const float* updates, const int64_t* begins,
                      const float* y, const float* dy,
                      const ScatterKernels::Gradients& gradients,
                      void* scratch) {
  const CpuKernel kernel(stream);
  float* const share = static_cast<float*>(scratch);
  Emit(s.count, /*accumulate=*/false, share,
       [=](int64_t k) { return x[k] == y[k] ? 1.0f : 0.0f; });
  ForEachRun(s, begins, [=, &s](int64_t at, int64_t begin) {
    Emit(s.run_length, /*accumulate=*/true, share + begin, [=](int64_t k) {
      return updates[at + k] == y[begin + k] ? 1.0f : 0.0f;
    });
  });
  Emit(s.count, /*accumulate=*/false, share,
       [=](int64_t k) { return dy[k] / share[k]; });
  if (gradients.updates != nullptr) {
    EmitRuns(s, begins, gradients, [=](int64_t from, int64_t to) {
      return updates[from] == y[to] ? share[to] : 0.0f;
    });
  }
  if (gradients.x == nullptr) return;
  Emit(s.count, gradients.accumulate_x, gradients.x,
       [=](int64_t k) { return x[k] == y[k] ? share[k] : 0.0f; });
}

int64_t ExtremumScratchBytes(const IndexedShape& s) {
  return s.count * static_cast<int64_t>(sizeof(float));
}

}  // namespace

const ScatterKernels& CpuScatterKernels() {
  // In the order of ScatterReduction.
  static constexpr ScatterKernels kKernels = {
      .reductions = {
          {{Replace::Forward, Replace::Backward, Replace::ForwardScratchBytes,
            Replace::BackwardScratchBytes},
           {Sum::Forward, Sum::Backward, AddRunsScratchBytes, NoScratch},
           {Fold<Product>, Product::Backward, NoScratch,
            Product::BackwardScratchBytes},
           {Fold<Larger>, ExtremumBackward, NoScratch, ExtremumScratchBytes},
           {Fold<Smaller>, ExtremumBackward, NoScratch,
            ExtremumScratchBytes}}}};
  return kKernels;
}

}  // namespace syncline
