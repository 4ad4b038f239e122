// The gradients of tiled attention: those of queries along the keys, and those
// of keys and values along the queries. Each computes the weights again.

#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/launch.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline::cuda {
namespace {

// The arrays of both kernels.
template <typename E>
struct GradientArrays {
  Global<const E> q;
  Global<const E> k;
  Global<const E> v;
  Global<const E> dy;
  Global<const float> log_sums;
  Global<const float> products;
};

// All tiles of a block.
template <typename E, int kWidth>
struct GradientTiles {
  using Sizes = Tiling<E, kWidth>;
  using Operand = typename Sizes::Operand;
  using Scores = typename Sizes::Scores;

  Operand own_left, own_right;    // the block's rows
  Operand step_left, step_right;  // those that it goes along
  Scores scores;

  SYNCLINE_DEVICE static GradientTiles Take() {
    SharedMemory shared;
    GradientTiles tiles;
    tiles.own_left = Operand::Take(shared, Sizes::kRows);
    tiles.own_right = Operand::Take(shared, Sizes::kRows);
    tiles.step_left = Operand::Take(shared, Sizes::kSteps);
    tiles.step_right = Operand::Take(shared, Sizes::kSteps);
    tiles.scores = Scores::Take(shared, Sizes::kRows);
    return tiles;
  }
  static constexpr size_t kSharedBytes = 2 * Operand::Bytes(Sizes::kRows) +
                                         2 * Operand::Bytes(Sizes::kSteps) +
                                         Scores::Bytes(Sizes::kRows);
};

// A warp's gradient, row by row, into its array.
template <int kOutputs>
SYNCLINE_DEVICE void WriteRows(const MmaSums (&sums)[kOutputs], float scale,
                               int64_t begin, int64_t row_stride, int rows,
                               int columns, bool accumulate,
                               const FloatArray& to) {
  SYNCLINE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int row = MmaGroup() + 8 * i;
    if (row >= rows) continue;
    SYNCLINE_UNROLL
    for (int j = 0; j < kOutputs; ++j) {
      SYNCLINE_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int column = j * kMmaColumns + 2 * MmaMember() + c;
        if (column >= columns) continue;
        const int64_t at = begin + row * row_stride + column;
        const float value = sums[j].at[2 * i + c] * scale;
        to[at] = accumulate ? to[at] + value : value;
      }
    }
  }
}

template <typename E, int kWidth>
struct QueryGradientKernel {
  using Tiles = GradientTiles<E, kWidth>;
  using Sizes = typename Tiles::Sizes;
  static constexpr int kOutputs = kWidth / kMmaColumns;
  static constexpr int kScores = Sizes::kSteps / kMmaColumns;

  TiledShape s;
  DeviceMask mask;
  bool accumulate;
  GradientArrays<E> in;
  FloatArray dq;

  // The facts that a lane keeps of its two rows.
  struct Rows {
    int64_t seen[2] = {0, 0};
    int64_t mask[2] = {0, 0};
    float log_sum[2] = {INFINITY, INFINITY};
    float product[2] = {0, 0};
  };

  SYNCLINE_DEVICE void operator()() const {
    const Tiles tiles = Tiles::Take();
    const int64_t blocks = (s.queries + Sizes::kRows - 1) / Sizes::kRows;
    const int64_t sample = blockIdx.x / blocks / s.heads;
    const int64_t head = blockIdx.x / blocks % s.heads;
    const int64_t first = blockIdx.x % blocks * Sizes::kRows;
    const int count = AtMost(s.queries - first, Sizes::kRows);
    const int row = threadIdx.x / kWarpThreads * kMmaRows;
    LoadTile(tiles.own_left, in.q, RowAt(s.q, sample, head, first), s.q.row,
             count, s.width);
    LoadTile(tiles.own_right, in.dy, RowAt(s.y, sample, head, first), s.y.row,
             count, s.value_width);
    Rows rows;
    SYNCLINE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int64_t query = first + row + MmaGroup() + 8 * i;
      if (query >= s.queries) continue;
      const int64_t line = (sample * s.heads + head) * s.queries + query;
      rows.seen[i] = mask.KeysFor(s.scores, sample, query);
      rows.mask[i] = mask.At(sample, head, query);
      rows.log_sum[i] = in.log_sums[line];
      rows.product[i] = in.products[line];
    }
    MmaSums sums[kOutputs] = {};
    const int64_t end = mask.KeysFor(s.scores, sample, first + count - 1);
    for (int64_t step = 0; step < end; step += Sizes::kSteps) {
      const int n = AtMost(s.keys - step, Sizes::kSteps);
      const int64_t key_head = head / s.group;
      LoadTile(tiles.step_left, in.k, RowAt(s.k, sample, key_head, step),
               s.k.row, n, s.width);
      LoadTile(tiles.step_right, in.v, RowAt(s.v, sample, key_head, step),
               s.v.row, n, s.value_width);
      __syncthreads();
      if (row < count) ScoreGradients(tiles, row, step, n, rows);
      __syncthreads();
      if (row < count) {
        SYNCLINE_UNROLL
        for (int i = 0; i < kOutputs; ++i) {
          if (i * kMmaColumns >= s.width) continue;
          MultiplyTiles<Stored::kByRow>(s.type, tiles.scores, row,
                                        tiles.step_left, i * kMmaColumns,
                                        FilledUp(n) / kMmaDepth, sums[i]);
        }
      }
      __syncthreads();
    }
    if (row < count) {
      WriteRows(sums, s.scale, RowAt(s.q, sample, head, first + row), s.q.row,
                count - row, s.width, accumulate, dq);
    }
  }

  SYNCLINE_DEVICE void ScoreGradients(const Tiles& tiles, int row, int64_t step,
                                      int n, const Rows& rows) const {
    SYNCLINE_UNROLL
    for (int j = 0; j < kScores; ++j) {
      const int column = j * kMmaColumns;
      if (column >= FilledUp(n)) continue;
      MmaSums scores = {};
      MmaSums d = {};
      MultiplyTiles<Stored::kByColumn>(s.type, tiles.own_left, row,
                                       tiles.step_left, column,
                                       FilledUp(s.width) / kMmaDepth, scores);
      MultiplyTiles<Stored::kByColumn>(s.type, tiles.own_right, row,
                                       tiles.step_right, column,
                                       FilledUp(s.value_width) / kMmaDepth, d);
      SYNCLINE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int r = i / 2;
        const int64_t key = step + column + 2 * MmaMember() + i % 2;
        const float score = MaskedScore(mask, rows.mask[r], rows.seen[r], key,
                                        scores.at[i] * s.scale);
        const bool has_none =
            score == -INFINITY || mask.Hides(rows.mask[r] + key * mask.column);
        d.at[i] = has_none ? 0.0f
                           : Exp(score - rows.log_sum[r]) *
                                 (d.at[i] - rows.product[r]);
      }
      StoreSums(s.type, d, tiles.scores, row, column);
    }
  }
};

// A block has keys; rows of its scores are keys, columns are queries.
template <typename E, int kWidth>
struct KeyGradientsKernel {
  using Tiles = GradientTiles<E, kWidth>;
  using Sizes = typename Tiles::Sizes;
  static constexpr int kOutputs = kWidth / kMmaColumns;
  static constexpr int kScores = Sizes::kSteps / kMmaColumns;

  TiledShape s;
  DeviceMask mask;
  bool wants_dk;
  bool wants_dv;
  bool add_dk;
  bool add_dv;
  GradientArrays<E> in;
  FloatArray dk;
  FloatArray dv;

  struct Sums {
    MmaSums dk[kOutputs] = {};
    MmaSums dv[kOutputs] = {};
  };

  SYNCLINE_DEVICE void operator()() const {
    const Tiles tiles = Tiles::Take();
    const int64_t blocks = (s.keys + Sizes::kRows - 1) / Sizes::kRows;
    const int64_t key_heads = s.heads / s.group;
    const int64_t sample = blockIdx.x / blocks / key_heads;
    const int64_t key_head = blockIdx.x / blocks % key_heads;
    const int64_t first = blockIdx.x % blocks * Sizes::kRows;
    const int count = AtMost(s.keys - first, Sizes::kRows);
    const int row = threadIdx.x / kWarpThreads * kMmaRows;
    LoadTile(tiles.own_left, in.k, RowAt(s.k, sample, key_head, first), s.k.row,
             count, s.width);
    LoadTile(tiles.own_right, in.v, RowAt(s.v, sample, key_head, first),
             s.v.row, count, s.value_width);
    Sums sums;
    for (int64_t g = 0; g < s.group; ++g) {
      const int64_t head = key_head * s.group + g;
      for (int64_t step = 0; step < s.queries; step += Sizes::kSteps) {
        const int n = AtMost(s.queries - step, Sizes::kSteps);
        // The last query sees the most; the block agrees.
        if (mask.KeysFor(s.scores, sample, step + n - 1) <= first) continue;
        AddQueries(tiles, sample, head, first, count, row, step, n, sums);
      }
    }
    if (row >= count) return;
    // In this order, by the same threads: both may be one array.
    if (wants_dv) {
      WriteRows(sums.dv, 1, RowAt(s.v, sample, key_head, first + row), s.v.row,
                count - row, s.value_width, add_dv, dv);
    }
    if (wants_dk) {
      WriteRows(sums.dk, s.scale, RowAt(s.k, sample, key_head, first + row),
                s.k.row, count - row, s.width, add_dk, dk);
    }
  }

  SYNCLINE_DEVICE void AddQueries(const Tiles& tiles, int64_t sample,
                                  int64_t head, int64_t first, int count,
                                  int row, int64_t step, int n,
                                  Sums& sums) const {
    LoadTile(tiles.step_left, in.q, RowAt(s.q, sample, head, step), s.q.row, n,
             s.width);
    LoadTile(tiles.step_right, in.dy, RowAt(s.y, sample, head, step), s.y.row,
             n, s.value_width);
    __syncthreads();
    MmaSums weights[kScores] = {};
    if (row < count) {
      Weigh(tiles, sample, head, first, row, step, n, weights);
    }
    __syncthreads();
    if (row < count && wants_dv) {
      Multiply(tiles.scores, row, tiles.step_right, s.value_width, n, sums.dv);
    }
    __syncthreads();
    if (row < count) {
      ScoreGradients(tiles, sample, head, row, step, n, weights);
    }
    __syncthreads();
    if (row < count && wants_dk) {
      Multiply(tiles.scores, row, tiles.step_left, s.width, n, sums.dk);
    }
    __syncthreads();
  }

  SYNCLINE_DEVICE void Multiply(const typename Tiles::Scores& scores, int row,
                                const typename Tiles::Operand& other,
                                int columns, int n,
                                MmaSums (&sums)[kOutputs]) const {
    SYNCLINE_UNROLL
    for (int i = 0; i < kOutputs; ++i) {
      if (i * kMmaColumns >= columns) continue;
      MultiplyTiles<Stored::kByRow>(s.type, scores, row, other, i * kMmaColumns,
                                    FilledUp(n) / kMmaDepth, sums[i]);
    }
  }

  // The weights, and where their scores have no gradient minus these; into the
  // tile of scores, too.
  SYNCLINE_DEVICE void Weigh(const Tiles& tiles, int64_t sample, int64_t head,
                             int64_t first, int row, int64_t step, int n,
                             MmaSums (&weights)[kScores]) const {
    SYNCLINE_UNROLL
    for (int j = 0; j < kScores; ++j) {
      const int column = j * kMmaColumns;
      if (column >= FilledUp(n)) continue;
      MultiplyTiles<Stored::kByColumn>(
          s.type, tiles.own_left, row, tiles.step_left, column,
          FilledUp(s.width) / kMmaDepth, weights[j]);
      MmaSums plain = {};
      SYNCLINE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t key = first + row + MmaGroup() + i / 2 * 8;
        const int64_t query = step + column + 2 * MmaMember() + i % 2;
        float weight = 0;
        bool is_hidden = false;
        if (query < s.queries && key < s.keys) {
          const int64_t begin = mask.At(sample, head, query);
          const int64_t line = (sample * s.heads + head) * s.queries + query;
          const int64_t seen = mask.KeysFor(s.scores, sample, query);
          const float score =
              MaskedScore(mask, begin, seen, key, weights[j].at[i] * s.scale);
          if (score != -INFINITY) {
            weight = Exp(score - in.log_sums[line]);
            is_hidden = mask.Hides(begin + key * mask.column);
          }
        }
        plain.at[i] = weight;
        weights[j].at[i] = is_hidden ? 0.0f : weight;
      }
      StoreSums(s.type, plain, tiles.scores, row, column);
    }
  }

  // From the weights to the gradients of scores, into their tile.
  SYNCLINE_DEVICE void ScoreGradients(const Tiles& tiles, int64_t sample,
                                      int64_t head, int row, int64_t step,
                                      int n,
                                      const MmaSums (&weights)[kScores]) const {
    SYNCLINE_UNROLL
    for (int j = 0; j < kScores; ++j) {
      const int column = j * kMmaColumns;
      if (column >= FilledUp(n)) continue;
      MmaSums d = {};
      MultiplyTiles<Stored::kByColumn>(s.type, tiles.own_right, row,
                                       tiles.step_right, column,
                                       FilledUp(s.value_width) / kMmaDepth, d);
      SYNCLINE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t query = step + column + 2 * MmaMember() + i % 2;
        float product = 0;
        if (query < s.queries) {
          product = in.products[(sample * s.heads + head) * s.queries + query];
        }
        const float weight = weights[j].at[i];
        d.at[i] = weight == 0 ? 0.0f : weight * (d.at[i] - product);
      }
      StoreSums(s.type, d, tiles.scores, row, column);
    }
  }
};

template <typename E>
GradientArrays<E> ArraysOf(const TiledShape& s, const TiledGradient& g) {
  SYNCLINE_CHECK(g.q.type() == s.type && g.k.type() == s.type &&
                 g.v.type() == s.type && g.dy.type() == s.type);
  return {OnDevice(static_cast<const E*>(g.q.data())),
          OnDevice(static_cast<const E*>(g.k.data())),
          OnDevice(static_cast<const E*>(g.v.data())),
          OnDevice(static_cast<const E*>(g.dy.data())),
          OnDevice(g.log_sums),
          OnDevice(g.products)};
}

template <typename Kernel>
LaunchShape ShapeOf(int64_t heads, int64_t rows) {
  constexpr int kRows = Kernel::Sizes::kRows;
  return {.blocks = heads * ((rows + kRows - 1) / kRows),
          .threads = Kernel::Sizes::kThreads,
          .shared_bytes = Kernel::Tiles::kSharedBytes};
}

}  // namespace

void TiledQueryGradient(Stream& stream, const TiledShape& s,
                        const DeviceMask& mask, const TiledGradient& g) {
  if (g.out.dq == nullptr) return;
  WithTiling(s.type, std::max(s.width, s.value_width),
             [&](auto element, auto width) {
               using E = decltype(element);
               using Kernel = QueryGradientKernel<E, decltype(width)::value>;
               Launch(stream, ShapeOf<Kernel>(s.batch * s.heads, s.queries),
                      Kernel{s, mask, g.out.add_dq, ArraysOf<E>(s, g),
                             OnDevice(g.out.dq)});
             });
}

void TiledKeyGradients(Stream& stream, const TiledShape& s,
                       const DeviceMask& mask, const TiledGradient& g) {
  if (g.out.dk == nullptr && g.out.dv == nullptr) return;
  WithTiling(
      s.type, std::max(s.width, s.value_width), [&](auto element, auto width) {
        using E = decltype(element);
        using Kernel = KeyGradientsKernel<E, decltype(width)::value>;
        Launch(stream, ShapeOf<Kernel>(s.batch * (s.heads / s.group), s.keys),
               Kernel{s, mask, g.out.dk != nullptr, g.out.dv != nullptr,
                      g.out.add_dk, g.out.add_dv, ArraysOf<E>(s, g),
                      OnDevice(g.out.dk), OnDevice(g.out.dv)});
      });
}

}  // namespace syncline::cuda
