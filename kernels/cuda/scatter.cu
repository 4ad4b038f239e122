#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/walk/named_rows.h"
#include "kernels/device/scatter_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;
using cuda::RowOfRun;

// Of begins: nowhere, because a later run replaces this one.
constexpr int64_t kReplaced = -1;

int64_t NoScratch(const IndexedShape&) { return 0; }

int64_t UpdatesOf(const IndexedShape& s) { return s.runs * s.run_length; }

void CopyElements(Stream& stream, int64_t n, const float* from, float* to) {
  if (from == to) return;
  cuda::LaunchElements(
      stream, n,
      [from = OnDevice(from), to = OnDevice(to)] SYNCLINE_DEVICE(int64_t i) {
        to[i] = from[i];
      });
}

// gradients.x from value(k).
template <typename Value>
void EmitX(Stream& stream, const IndexedShape& s,
           const ScatterKernels::Gradients& gradients, const Value& value) {
  if (gradients.x == nullptr) return;
  cuda::LaunchElements(
      stream, s.count,
      [accumulate = gradients.accumulate_x, dx = OnDevice(gradients.x),
       value] SYNCLINE_DEVICE(int64_t k) {
        dx[k] = accumulate ? dx[k] + value(k) : value(k);
      });
}

// gradients.updates from value(at, to): update `at` goes to place `to`. 0 for
// those that are replaced.
template <typename Value>
void EmitUpdates(Stream& stream, const IndexedShape& s, const int64_t* begins,
                 const ScatterKernels::Gradients& gradients,
                 const Value& value) {
  if (gradients.updates == nullptr || s.count == 0) return;
  cuda::LaunchElements(
      stream, UpdatesOf(s),
      [length = s.run_length, accumulate = gradients.accumulate_updates,
       begins = OnDevice(begins), du = OnDevice(gradients.updates),
       value] SYNCLINE_DEVICE(int64_t at) {
        const int64_t begin = begins[at / length];
        const float d =
            begin == kReplaced ? 0.0f : value(at, begin + at % length);
        du[at] = accumulate ? du[at] + d : d;
      });
}

struct Identity {
  Global<const float> from;
  SYNCLINE_DEVICE float operator()(int64_t k) const { return from[k]; }
};
struct AtPlace {
  Global<const float> from;
  SYNCLINE_DEVICE float operator()(int64_t, int64_t to) const {
    return from[to];
  }
};

// The runs of one place, in order, as links between them.
cuda::Chains ChainRuns(Stream& stream, const IndexedShape& s,
                       const int64_t* begins, void* scratch) {
  return cuda::ChainRows(stream, s.count / s.run_length, s.runs,
                         RowOfRun{s.run_length, OnDevice(begins)}, scratch);
}

// Calls each(k, place) for the first run of each place, and each element of a
// run: k of the updates goes to `place` of the array.
template <typename Each>
void ForFirsts(Stream& stream, const IndexedShape& s, const int64_t* begins,
               const cuda::Chains& chains, const Each& each) {
  cuda::LaunchElements(
      stream, UpdatesOf(s),
      [length = s.run_length, begins = OnDevice(begins),
       is_first = OnDevice(chains.is_first), each] SYNCLINE_DEVICE(int64_t k) {
        if (is_first[k / length] == 0) return;
        each(k, begins[k / length] + k % length);
      });
}

bool HasRuns(const IndexedShape& s) { return s.count > 0 && s.run_length > 0; }

// --- Replace -----------------------------------------------------------------

struct Replace {
  static void Forward(Stream& stream, const IndexedShape& s, const float* x,
                      const float* updates, int64_t* begins, float* y,
                      void* scratch) {
    CopyElements(stream, s.count, x, y);
    if (!HasRuns(s)) return;
    const cuda::Chains chains = ChainRuns(stream, s, begins, scratch);
    cuda::LaunchElements(
        stream, s.runs,
        [next = OnDevice(chains.next),
         begins = OnDevice(begins)] SYNCLINE_DEVICE(int64_t i) {
          if (next[i] >= 0) begins[i] = kReplaced;
        });
    const int64_t* const kept = begins;
    cuda::LaunchElements(stream, UpdatesOf(s),
                         [length = s.run_length, begins = OnDevice(kept),
                          updates = OnDevice(updates),
                          y = OnDevice(y)] SYNCLINE_DEVICE(int64_t at) {
                           const int64_t begin = begins[at / length];
                           if (begin != kReplaced)
                             y[begin + at % length] = updates[at];
                         });
  }

  // An element that was replaced has no part in the result: its gradient stays
  // as it was before.
  static void Backward(Stream& stream, const IndexedShape& s, const float*,
                       const float*, const int64_t* begins, const float*,
                       const float* dy,
                       const ScatterKernels::Gradients& gradients,
                       void* scratch) {
    if (s.count == 0) return;
    EmitUpdates(stream, s, begins, gradients, AtPlace{OnDevice(dy)});
    if (gradients.x == nullptr) return;
    // Of one place there is one run that is not replaced.
    float* const before = static_cast<float*>(scratch);
    cuda::LaunchElements(
        stream, UpdatesOf(s),
        [length = s.run_length, accumulate = gradients.accumulate_x,
         begins = OnDevice(begins), dx = OnDevice(gradients.x),
         before = OnDevice(before)] SYNCLINE_DEVICE(int64_t at) {
          const int64_t begin = begins[at / length];
          if (begin == kReplaced) return;
          before[at] = 0;
          if (accumulate) before[at] = dx[begin + at % length];
        });
    EmitX(stream, s, gradients, Identity{OnDevice(dy)});
    const float* const kept = before;
    cuda::LaunchElements(
        stream, UpdatesOf(s),
        [length = s.run_length, begins = OnDevice(begins),
         before = OnDevice(kept),
         dx = OnDevice(gradients.x)] SYNCLINE_DEVICE(int64_t at) {
          const int64_t begin = begins[at / length];
          if (begin != kReplaced) dx[begin + at % length] = before[at];
        });
  }

  static int64_t ForwardScratchBytes(const IndexedShape& s) {
    return cuda::ChainScratchBytes(s.runs);
  }
  static int64_t BackwardScratchBytes(const IndexedShape& s) {
    return UpdatesOf(s) * static_cast<int64_t>(sizeof(float));
  }
};

// --- Add ---------------------------------------------------------------------

struct Sum {
  static void Forward(Stream& stream, const IndexedShape& s, const float* x,
                      const float* updates, int64_t* begins, float* y,
                      void* scratch) {
    CopyElements(stream, s.count, x, y);
    const int64_t* const found = begins;
    CudaIndexedKernels().add(stream, s, found, updates, y, scratch);
  }

  static void Backward(Stream& stream, const IndexedShape& s, const float*,
                       const float*, const int64_t* begins, const float*,
                       const float* dy,
                       const ScatterKernels::Gradients& gradients, void*) {
    EmitUpdates(stream, s, begins, gradients, AtPlace{OnDevice(dy)});
    EmitX(stream, s, gradients, Identity{OnDevice(dy)});
  }

  static int64_t ForwardScratchBytes(const IndexedShape& s) {
    return CudaIndexedKernels().add_scratch_bytes(s);
  }
};

// --- Multiply, largest, smallest ---------------------------------------------

struct Times {
  SYNCLINE_DEVICE float operator()(float a, float b) const { return a * b; }
};
// NaN is kept.
struct Larger {
  SYNCLINE_DEVICE float operator()(float a, float b) const {
    return b > a || b != b ? b : a;
  }
};
struct Smaller {
  SYNCLINE_DEVICE float operator()(float a, float b) const {
    return b < a || b != b ? b : a;
  }
};

// y = x, and then f(y, update) for each update.
template <typename F>
void Fold(Stream& stream, const IndexedShape& s, const float* x,
          const float* updates, int64_t* begins, float* y, void* scratch) {
  CopyElements(stream, s.count, x, y);
  if (!HasRuns(s)) return;
  const cuda::Chains chains = ChainRuns(stream, s, begins, scratch);
  ForFirsts(stream, s, begins, chains,
            [length = s.run_length, next = OnDevice(chains.next),
             updates = OnDevice(updates),
             y = OnDevice(y)] SYNCLINE_DEVICE(int64_t k, int64_t place) {
              float value = y[place];
              for (int64_t i = k / length; i >= 0; i = next[i]) {
                value = F()(value, updates[i * length + k % length]);
              }
              y[place] = value;
            });
}

int64_t FoldScratchBytes(const IndexedShape& s) {
  return cuda::ChainScratchBytes(s.runs);
}

// A factor's derivative is the product of all others in its place: of those
// before it and of those after it. (A quotient fails where a factor is 0.)
struct Product {
  struct Scratch {
    void* chains;
    int64_t* previous;  // by run: the one before in its place, or -1
    float* after;       // by place: of all updates
    float* before;      // by update: of x and of the updates before
  };
  static Scratch ScratchAt(const IndexedShape& s, void* scratch) {
    int64_t* const previous =
        static_cast<int64_t*>(scratch) +
        cuda::ChainScratchBytes(s.runs) / static_cast<int64_t>(sizeof(int64_t));
    float* const after = reinterpret_cast<float*>(previous + s.runs);
    return {scratch, previous, after, after + s.count};
  }

  static void Backward(Stream& stream, const IndexedShape& s, const float* x,
                       const float* updates, const int64_t* begins,
                       const float*, const float* dy,
                       const ScatterKernels::Gradients& gradients,
                       void* scratch) {
    const Scratch at = ScratchAt(s, scratch);
    cuda::LaunchElements(stream, s.count,
                         [after = OnDevice(at.after)] SYNCLINE_DEVICE(
                             int64_t k) { after[k] = 1; });
    if (HasRuns(s)) {
      const cuda::Chains chains = ChainRuns(stream, s, begins, at.chains);
      MultiplyBefore(stream, s, x, updates, begins, chains, at);
      MultiplyAfter(stream, s, updates, begins, chains, dy, gradients, at);
    }
    const float* const after = at.after;
    EmitX(stream, s, gradients,
          [dy = OnDevice(dy), after = OnDevice(after)] SYNCLINE_DEVICE(
              int64_t k) -> float { return dy[k] * after[k]; });
  }

  static void MultiplyBefore(Stream& stream, const IndexedShape& s,
                             const float* x, const float* updates,
                             const int64_t* begins, const cuda::Chains& chains,
                             const Scratch& at) {
    ForFirsts(
        stream, s, begins, chains,
        [length = s.run_length, next = OnDevice(chains.next), x = OnDevice(x),
         updates = OnDevice(updates), before = OnDevice(at.before),
         previous = OnDevice(at.previous)] SYNCLINE_DEVICE(int64_t k,
                                                           int64_t place) {
          const int64_t column = k % length;
          float product = x[place];
          int64_t last = -1;
          for (int64_t i = k / length; i >= 0; i = next[i]) {
            before[i * length + column] = product;
            product *= updates[i * length + column];
            if (column == 0) previous[i] = last;
            last = i;
          }
        });
  }

  static void MultiplyAfter(Stream& stream, const IndexedShape& s,
                            const float* updates, const int64_t* begins,
                            const cuda::Chains& chains, const float* dy,
                            const ScatterKernels::Gradients& gradients,
                            const Scratch& at) {
    const float* const before = at.before;
    const int64_t* const previous = at.previous;
    cuda::LaunchElements(
        stream, UpdatesOf(s),
        [length = s.run_length, wants_updates = gradients.updates != nullptr,
         accumulate = gradients.accumulate_updates, begins = OnDevice(begins),
         next = OnDevice(chains.next), previous = OnDevice(previous),
         updates = OnDevice(updates), dy = OnDevice(dy),
         before = OnDevice(before), after = OnDevice(at.after),
         du = OnDevice(gradients.updates)] SYNCLINE_DEVICE(int64_t k) {
          if (next[k / length] >= 0) return;  // not the last of its place
          const int64_t column = k % length;
          const int64_t place = begins[k / length] + column;
          const float d = dy[place];
          float product = 1;
          for (int64_t i = k / length; i >= 0; i = previous[i]) {
            const int64_t from = i * length + column;
            if (wants_updates) {
              const float value = d * before[from] * product;
              du[from] = accumulate ? du[from] + value : value;
            }
            product *= updates[from];
          }
          after[place] = product;
        });
  }

  static int64_t BackwardScratchBytes(const IndexedShape& s) {
    return cuda::ChainScratchBytes(s.runs) +
           s.runs * static_cast<int64_t>(sizeof(int64_t)) +
           (s.count + UpdatesOf(s)) * static_cast<int64_t>(sizeof(float));
  }
};

// All that are equal to the extremum have the same share of its gradient.
void ExtremumBackward(Stream& stream, const IndexedShape& s, const float* x,
                      const float* updates, const int64_t* begins,
                      const float* y, const float* dy,
                      const ScatterKernels::Gradients& gradients,
                      void* scratch) {
  float* const share = reinterpret_cast<float*>(
      static_cast<char*>(scratch) + cuda::ChainScratchBytes(s.runs));
  cuda::LaunchElements(stream, s.count,
                       [x = OnDevice(x), y = OnDevice(y),
                        share = OnDevice(share)] SYNCLINE_DEVICE(int64_t k) {
                         share[k] = x[k] == y[k] ? 1.0f : 0.0f;
                       });
  if (HasRuns(s)) {
    const cuda::Chains chains = ChainRuns(stream, s, begins, scratch);
    ForFirsts(
        stream, s, begins, chains,
        [length = s.run_length, next = OnDevice(chains.next),
         updates = OnDevice(updates), y = OnDevice(y),
         share = OnDevice(share)] SYNCLINE_DEVICE(int64_t k, int64_t place) {
          float equal = share[place];
          for (int64_t i = k / length; i >= 0; i = next[i]) {
            equal += updates[i * length + k % length] == y[place] ? 1.0f : 0.0f;
          }
          share[place] = equal;
        });
  }
  cuda::LaunchElements(
      stream, s.count,
      [dy = OnDevice(dy), share = OnDevice(share)] SYNCLINE_DEVICE(int64_t k) {
        share[k] = dy[k] / share[k];
      });
  const float* const shares = share;
  EmitUpdates(stream, s, begins, gradients,
              [updates = OnDevice(updates), y = OnDevice(y),
               share = OnDevice(shares)] SYNCLINE_DEVICE(int64_t from,
                                                         int64_t to) -> float {
                return updates[from] == y[to] ? static_cast<float>(share[to])
                                              : 0.0f;
              });
  EmitX(stream, s, gradients,
        [x = OnDevice(x), y = OnDevice(y),
         share = OnDevice(shares)] SYNCLINE_DEVICE(int64_t k) -> float {
          return x[k] == y[k] ? static_cast<float>(share[k]) : 0.0f;
        });
}

int64_t ExtremumScratchBytes(const IndexedShape& s) {
  return cuda::ChainScratchBytes(s.runs) +
         s.count * static_cast<int64_t>(sizeof(float));
}

}  // namespace

const ScatterKernels& CudaScatterKernels() {
  // In the order of ScatterReduction.
  static constexpr ScatterKernels kKernels = {
      .reductions = {
          {{Replace::Forward, Replace::Backward, Replace::ForwardScratchBytes,
            Replace::BackwardScratchBytes},
           {Sum::Forward, Sum::Backward, Sum::ForwardScratchBytes, NoScratch},
           {Fold<Times>, Product::Backward, FoldScratchBytes,
            Product::BackwardScratchBytes},
           {Fold<Larger>, ExtremumBackward, FoldScratchBytes,
            ExtremumScratchBytes},
           {Fold<Smaller>, ExtremumBackward, FoldScratchBytes,
            ExtremumScratchBytes}}}};
  return kKernels;
}

}  // namespace syncline
