#include "kernels/cpu/indexed.h"

#include <array>
#include <cstring>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/on_float32.h"
#include "kernels/cpu/report.h"
#include "kernels/named_rows.h"

namespace syncline {
namespace {

// The part of a place that index number `at` decides.
int64_t OffsetOf(const IndexedShape::Dimension& place, int64_t index,
                 int64_t at, const ErrorSlot& errors) {
  const int64_t position = index < 0 ? index + place.n : index;
  if (position >= 0 && position < place.n) return position * place.stride;
  Report(errors, /*kind=*/0, at, index);
  return 0;
}

// Calls each(run, begin) with where the loops of each run lie.
template <typename Each>
void ForEachBegin(const IndexedShape& s, Each each) {
  if (s.runs == 0) return;
  const size_t outer = s.loops.size() - 1;
  const auto [inner, stride] = s.loops[outer];
  std::array<int64_t, IndexedShape::kDimensionsMax> index{};
  int64_t begin = 0;
  for (int64_t run = 0; run < s.runs; run += inner) {
    for (int64_t i = 0; i < inner; ++i) each(run + i, begin + i * stride);
    for (size_t d = outer; d-- > 0;) {
      const IndexedShape::Dimension& loop = s.loops[d];
      begin += loop.stride;
      if (++index[d] < loop.n) break;
      index[d] = 0;
      begin -= loop.n * loop.stride;
    }
  }
}

template <typename Index>
void FindAll(const IndexedShape& s, const Index* indices, int64_t* begins,
             const ErrorSlot& errors) {
  const int64_t width = static_cast<int64_t>(s.places.size());
  if (width == 1) {
    const IndexedShape::Dimension place = s.places[0];
    return ForEachBegin(s, [=, &errors](int64_t run, int64_t begin) {
      begins[run] = begin + OffsetOf(place, indices[run], run, errors);
    });
  }
  ForEachBegin(s, [=, &s, &errors](int64_t run, int64_t begin) {
    for (int64_t d = 0; d < width; ++d) {
      const int64_t at = run * width + d;
      begin += OffsetOf(s.places[d], indices[at], at, errors);
    }
    begins[run] = begin;
  });
}

void Find(Stream& stream, const IndexedShape& s, const void* indices,
          int64_t* begins, const ErrorSlot& errors) {
  const CpuKernel kernel(stream);
  if (s.index_type == DType::kInt64) {
    FindAll(s, static_cast<const int64_t*>(indices), begins, errors);
  } else {
    FindAll(s, static_cast<const int32_t*>(indices), begins, errors);
  }
}

void Gather(Stream& stream, const IndexedShape& s, size_t element_bytes,
            const int64_t* begins, const void* from, void* to) {
  const CpuKernel kernel(stream);
  const size_t bytes = s.run_length * element_bytes;
  const char* const x = static_cast<const char*>(from);
  char* y = static_cast<char*>(to);
  if (s.count == 0) {
    std::memset(y, 0, s.runs * bytes);
    return;
  }
  for (int64_t i = 0; i < s.runs; ++i, y += bytes) {
    std::memcpy(y, x + begins[i] * element_bytes, bytes);
  }
}

void Add(Stream& stream, const IndexedShape& s, const int64_t* begins,
         const float* from, float* to, void* scratch) {
  const CpuKernel kernel(stream);
  AddRuns(s, begins, from, to, scratch);
}

}  // namespace

void AddRuns(const IndexedShape& s, const int64_t* begins, const float* from,
             float* to, void* scratch) {
  const int64_t n = s.run_length;
  if (s.count == 0 || n == 0) return;
  AddNamedRows(
      {.rows = s.count / n, .named = s.runs, .width = n},
      [=](int64_t i) { return begins[i] / n; }, from, to,
      static_cast<uint32_t*>(scratch));
}

int64_t AddRunsScratchBytes(const IndexedShape& s) {
  return NamedRowsScratch({.named = s.runs}) *
         static_cast<int64_t>(sizeof(uint32_t));
}

const IndexedKernels& CpuIndexedKernels() {
  static constexpr IndexedKernels kKernels = {
      .find = Find,
      .gather = Gather,
      .add = OnFloat32<Add>,
      .add_scratch_bytes = AddRunsScratchBytes};
  return kKernels;
}

}  // namespace syncline
