#include "kernels/cpu/indexed.h"

#include <cstring>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/report.h"
#include "kernels/named_rows.h"

namespace syncline {
namespace {

template <typename Index>
int64_t BeginOf(const IndexedShape& s, const Index* indices, int64_t run,
                const ErrorSlot& errors) {
  int64_t begin = 0;
  const int64_t width = static_cast<int64_t>(s.places.size());
  for (int64_t d = 0; d < width; ++d) {
    const IndexedShape::Dimension& place = s.places[d];
    const int64_t given = indices[run * width + d];
    const int64_t index = given < 0 ? given + place.n : given;
    if (index < 0 || index >= place.n) {
      Report(errors, /*kind=*/0, run * width + d, given);
      continue;
    }
    begin += index * place.stride;
  }
  for (size_t d = s.loops.size(); d-- > 0;) {
    const IndexedShape::Dimension& loop = s.loops[d];
    if (loop.stride != 0) begin += run % loop.n * loop.stride;
    run /= loop.n;
  }
  return begin;
}

template <typename Index>
void FindAll(const IndexedShape& s, const Index* indices, int64_t* begins,
             const ErrorSlot& errors) {
  for (int64_t i = 0; i < s.runs; ++i) {
    begins[i] = BeginOf(s, indices, i, errors);
  }
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
      .add = Add,
      .add_scratch_bytes = AddRunsScratchBytes};
  return kKernels;
}

}  // namespace syncline
