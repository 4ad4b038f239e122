#ifndef SYNCLINE_KERNELS_CUDA_WALK_SPLIT_LINES_H_
#define SYNCLINE_KERNELS_CUDA_WALK_SPLIT_LINES_H_

// Folds along lines that may be few and long, as in the sum of a whole array:
// their groups of threads would fill a small part of a GPU. Such lines are cut
// into parts, whose values are folded by a second launch. The cut depends on
// numbers of lines and elements alone, so that a fold has the same order in
// every run.
//
//   struct Source {
//     using Value = double;                 // of 4 or 8 bytes
//     struct Place {};                      // what is known of a line
//     Value neutral() const;                // of no elements
//     Place At(int64_t line) const;
//     Value TermAt(const Place& place, int64_t k) const;  // element k
//     Value Join(Value a, Value b) const;
//     void Finish(const Place& place, int64_t line, Value value) const;
//   };
//
// Place is default-made, and At is not called, for a line without elements.

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk/lines.h"

namespace syncline::cuda {

// So many blocks are enough to be left as they are.
inline constexpr int64_t kEnoughBlocks = 128;
// A part has so many elements at least.
inline constexpr int64_t kPartElementsMin = 2048;

// In how many parts FoldLines cuts each line.
inline int64_t PartsOfLine(int64_t lines, int64_t n, bool are_adjacent) {
  const bool are_columns = are_adjacent && lines > 1;
  const int64_t of_block = are_columns ? ColumnGroup::kLinesOfBlock : 1;
  if (lines == 0 || lines / of_block >= kEnoughBlocks) return 1;
  return std::max<int64_t>(
      1, std::min(kPartialSumsMax / lines, n / kPartElementsMin));
}

template <typename Source>
struct JoinOf {
  Source source;

  template <typename T>
  SYNCLINE_DEVICE T operator()(T a, T b) const {
    return source.Join(a, b);
  }
};

// The fold of a group's elements of a line, [begin, end), in all threads.
template <typename Source, typename Group>
SYNCLINE_DEVICE typename Source::Value FoldElements(
    const Source& source, const Group& group,
    const typename Source::Place& place, int64_t begin, int64_t end) {
  typename Source::Value value = source.neutral();
  for (int64_t k = begin + group.rank(); k < end; k += group.size()) {
    value = source.Join(value, source.TermAt(place, k));
  }
  return group.Fold(value, JoinOf<Source>{source});
}

template <typename Source>
struct WholeLinesBody {
  Source source;
  int64_t lines;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t n) const {
    typename Source::Place place = {};
    if (n > 0) place = source.At(line);
    const auto value = FoldElements(source, group, place, 0, n);
    if (group.rank() == 0 && line < lines) source.Finish(place, line, value);
  }
};

// values [parts, lines]. Lines of the launch are parts of lines, those that are
// neighbours side by side.
template <typename Source>
struct PartsBody {
  Source source;
  int64_t lines;
  int64_t elements;  // of a line
  Global<typename Source::Value> values;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t at,
                                  int64_t n) const {
    typename Source::Place place = {};
    if (n > 0) place = source.At(at % lines);
    const int64_t begin = at / lines * n;
    const int64_t end = begin + n < elements ? begin + n : elements;
    const auto value = FoldElements(source, group, place, begin, end);
    if (group.rank() == 0 && n > 0) values[at] = value;
  }
};

template <typename Source>
struct JoinPartsBody {
  Source source;
  int64_t lines;
  Global<const typename Source::Value> values;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t n) const {
    typename Source::Value value = source.neutral();
    for (int64_t k = group.rank(); k < n; k += group.size()) {
      const typename Source::Value part = values[k * lines + line];
      value = source.Join(value, part);
    }
    value = group.Fold(value, JoinOf<Source>{source});
    if (group.rank() == 0 && n > 0) {
      source.Finish(source.At(line), line, value);
    }
  }
};

// Calls source.Finish with the fold of each line's terms. `are_adjacent`: as of
// LaunchLines.
template <typename Source>
void FoldLines(Stream& stream, int64_t lines, int64_t n, bool are_adjacent,
               const Source& source) {
  using Value = typename Source::Value;
  const int64_t parts = PartsOfLine(lines, n, are_adjacent);
  if (parts == 1) {
    LaunchLines(stream, lines, n, are_adjacent,
                WholeLinesBody<Source>{source, lines});
    return;
  }
  const Global<Value> values = Partials<Value>(stream);
  const Global<const Value> written = values;
  LaunchLines(stream, parts * lines, (n + parts - 1) / parts,
              are_adjacent && lines > 1,
              PartsBody<Source>{source, lines, n, values});
  LaunchLines(stream, lines, parts, /*are_adjacent=*/true,
              JoinPartsBody<Source>{source, lines, written});
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_WALK_SPLIT_LINES_H_
