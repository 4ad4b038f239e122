#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/report.h"
#include "kernels/cuda/tiled_attention.h"
#include "kernels/cuda/walk/lines.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline::cuda {
namespace {

// Rows of queries along all keys.
template <typename E, int kWidth>
struct ForwardKernel {
  using Sizes = Tiling<E, kWidth>;
  using Operand = typename Sizes::Operand;
  using Scores = typename Sizes::Scores;
  static constexpr int kOutputs = kWidth / kMmaColumns;
  static constexpr int kScores = Sizes::kSteps / kMmaColumns;

  TiledShape s;
  DeviceMask mask;
  bool wants_log_sums;
  Global<const E> q;
  Global<const E> k;
  Global<const E> v;
  FloatArray y;
  Global<float> log_sums;

  static constexpr size_t kSharedBytes = Operand::Bytes(Sizes::kRows) +
                                         2 * Operand::Bytes(Sizes::kSteps) +
                                         Scores::Bytes(Sizes::kRows);

  // A lane's part of the two rows that it has.
  struct Rows {
    int64_t seen[2] = {0, 0};  // keys
    int64_t mask[2] = {0, 0};
    float largest[2] = {-INFINITY, -INFINITY};
    float sum[2] = {0, 0};
    MmaSums out[kOutputs] = {};
  };

  SYNCLINE_DEVICE void operator()() const {
    SharedMemory shared;
    const Operand queries = Operand::Take(shared, Sizes::kRows);
    const Operand keys = Operand::Take(shared, Sizes::kSteps);
    const Operand values = Operand::Take(shared, Sizes::kSteps);
    const Scores weights = Scores::Take(shared, Sizes::kRows);
    const int64_t tiles = (s.queries + Sizes::kRows - 1) / Sizes::kRows;
    const int64_t sample = blockIdx.x / tiles / s.heads;
    const int64_t head = blockIdx.x / tiles % s.heads;
    const int64_t first = blockIdx.x % tiles * Sizes::kRows;
    const int count = AtMost(s.queries - first, Sizes::kRows);
    const int row = threadIdx.x / kWarpThreads * kMmaRows;
    LoadTile(queries, q, RowAt(s.q, sample, head, first), s.q.row, count,
             s.width);
    Rows rows;
    SYNCLINE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int64_t query = first + row + MmaGroup() + 8 * i;
      if (query >= s.queries) continue;
      rows.seen[i] = mask.KeysFor(s.scores, sample, query);
      rows.mask[i] = mask.At(sample, head, query);
    }
    // The last row sees the most.
    const int64_t end = mask.KeysFor(s.scores, sample, first + count - 1);
    for (int64_t step = 0; step < end; step += Sizes::kSteps) {
      const int n = AtMost(s.keys - step, Sizes::kSteps);
      LoadTile(keys, k, RowAt(s.k, sample, head / s.group, step), s.k.row, n,
               s.width);
      LoadTile(values, v, RowAt(s.v, sample, head / s.group, step), s.v.row, n,
               s.value_width);
      __syncthreads();
      if (row < count) Weigh(queries, keys, row, step, n, weights, rows);
      __syncthreads();
      if (row < count) {
        SYNCLINE_UNROLL
        for (int i = 0; i < kOutputs; ++i) {
          if (i * kMmaColumns >= s.value_width) continue;
          MultiplyTiles<Stored::kByRow>(s.type, weights, row, values,
                                        i * kMmaColumns,
                                        FilledUp(n) / kMmaDepth, rows.out[i]);
        }
      }
      __syncthreads();
    }
    if (row < count) Write(sample, head, first + row, rows);
  }

  // The weights of a warp's rows for a tile of keys, into `weights`; what there
  // is of the rows is scaled to the new maximum.
  SYNCLINE_DEVICE void Weigh(const Operand& queries, const Operand& keys,
                             int row, int64_t step, int n,
                             const Scores& weights, Rows& rows) const {
    MmaSums scores[kScores] = {};
    float largest[2] = {rows.largest[0], rows.largest[1]};
    SYNCLINE_UNROLL
    for (int j = 0; j < kScores; ++j) {
      if (j * kMmaColumns >= FilledUp(n)) continue;
      MultiplyTiles<Stored::kByColumn>(
          s.type, queries, row, keys, j * kMmaColumns,
          FilledUp(s.width) / kMmaDepth, scores[j]);
      SYNCLINE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t key = step + j * kMmaColumns + 2 * MmaMember() + i % 2;
        float& score = scores[j].at[i];
        score = MaskedScore(mask, rows.mask[i / 2], rows.seen[i / 2], key,
                            score * s.scale);
        largest[i / 2] = Larger()(largest[i / 2], score);
      }
    }
    SYNCLINE_UNROLL
    for (int i = 0; i < 2; ++i) {
      for (int distance = 1; distance < 4; distance *= 2) {
        const float other = __shfl_xor_sync(kAllLanes, largest[i], distance);
        largest[i] = Larger()(largest[i], other);
      }
      // Nothing is seen yet: what there is is 0.
      const float scale =
          largest[i] == -INFINITY ? 1.0f : Exp(rows.largest[i] - largest[i]);
      rows.largest[i] = largest[i];
      rows.sum[i] *= scale;
      SYNCLINE_UNROLL
      for (MmaSums& out : rows.out) {
        out.at[2 * i] *= scale;
        out.at[2 * i + 1] *= scale;
      }
    }
    SYNCLINE_UNROLL
    for (int j = 0; j < kScores; ++j) {
      if (j * kMmaColumns >= FilledUp(n)) continue;
      SYNCLINE_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& score = scores[j].at[i];
        score = score == -INFINITY ? 0.0f : Exp(score - largest[i / 2]);
        rows.sum[i / 2] += score;
      }
      StoreSums(s.type, scores[j], weights, row, j * kMmaColumns);
    }
  }

  SYNCLINE_DEVICE void Write(int64_t sample, int64_t head, int64_t first,
                             Rows& rows) const {
    SYNCLINE_UNROLL
    for (int i = 0; i < 2; ++i) {
      float sum = rows.sum[i];
      for (int distance = 1; distance < 4; distance *= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, distance);
      }
      const int64_t query = first + MmaGroup() + 8 * i;
      if (query >= s.queries) continue;
      const bool sees_none = rows.largest[i] == -INFINITY;
      const float share = sees_none ? 0.0f : 1.0f / sum;
      const int64_t begin = RowAt(s.y, sample, head, query);
      SYNCLINE_UNROLL
      for (int j = 0; j < kOutputs; ++j) {
        SYNCLINE_UNROLL
        for (int c = 0; c < 2; ++c) {
          const int column = j * kMmaColumns + 2 * MmaMember() + c;
          if (column >= s.value_width) continue;
          y[begin + column] = rows.out[j].at[2 * i + c] * share;
        }
      }
      if (!wants_log_sums || MmaMember() != 0) continue;
      log_sums[(sample * s.heads + head) * s.queries + query] =
          sees_none ? INFINITY : rows.largest[i] + std::log(sum);
    }
  }
};

// Of each row of y with dy.
struct RowProductsBody {
  TiledShape s;
  ConstFloatArray y;
  ConstFloatArray dy;
  Global<float> products;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t n) const {
    const int64_t head = line / s.queries;
    const int64_t begin =
        RowAt(s.y, head / s.heads, head % s.heads, line % s.queries);
    float sum = 0;
    for (int64_t i = group.rank(); i < n; i += group.size()) {
      sum += y[begin + i] * dy[begin + i];
    }
    sum = group.Fold(sum, Plus());
    if (group.rank() == 0 && n > 0) products[line] = sum;
  }
};

class TiledAttentionLayer : public AttentionLayer {
 public:
  TiledAttentionLayer(const AttentionShape& shape, const AttentionUses& uses)
      : shape_(shape), backward_(uses.backward) {
    s_.heads = static_cast<int>(shape.heads);
    s_.group = static_cast<int>(shape.heads / shape.key_heads);
    s_.batch = shape.batch;
    s_.queries = shape.queries;
    s_.keys = shape.keys;
    s_.width = static_cast<int>(shape.width);
    s_.value_width = static_cast<int>(shape.value_width);
    s_.scale = shape.scale;
    s_.type = uses.type;
    s_.q = shape.q;
    s_.k = shape.k;
    s_.v = shape.v;
    s_.y = shape.y;
    s_.scores = {0,          shape.heads, shape.queries,
                 shape.keys, shape.past,  shape.causal};
  }

  int64_t weights_count() const override { return backward_ ? rows() : 0; }
  int64_t forward_scratch_count() const override { return 0; }
  int64_t backward_scratch_count() const override { return rows(); }
  bool reads_output() const override { return true; }

  absl::Status Forward(Stream& stream, ConstFloats q, ConstFloats k,
                       ConstFloats v, const Attention::Mask& mask, Floats y,
                       float* weights, float* scratch,
                       const Attention::Scores& scores,
                       const ErrorSlot& errors) override {
    CheckKeyCounts(stream, shape_, mask, errors);
    TiledForward(stream, s_, MaskOnDevice(mask), q, k, v, y,
                 backward_ ? weights : nullptr);
    return absl::OkStatus();
  }

  absl::Status Backward(Stream& stream, ConstFloats q, ConstFloats k,
                        ConstFloats v, const Attention::Mask& mask,
                        const float* weights, ConstFloats y, ConstFloats dy,
                        float* scratch,
                        const AttentionGradients& out) override {
    LaunchLines(
        stream, rows(), s_.value_width, /*are_adjacent=*/false,
        RowProductsBody{s_, OnDevice(y), OnDevice(dy), OnDevice(scratch)});
    const DeviceMask on_device = MaskOnDevice(mask);
    const TiledGradient gradient = {q, k, v, dy, weights, scratch, out};
    TiledKeyGradients(stream, s_, on_device, gradient);
    TiledQueryGradient(stream, s_, on_device, gradient);
    return absl::OkStatus();
  }

 private:
  int64_t rows() const { return shape_.batch * shape_.heads * shape_.queries; }

  const AttentionShape shape_;
  const bool backward_;
  TiledShape s_;
};

}  // namespace

bool ServesTiledAttention(const AttentionShape& shape,
                          const AttentionUses& uses) {
  return shape.width > 0 && shape.width <= kTiledWidthMax &&
         shape.value_width > 0 && shape.value_width <= kTiledWidthMax &&
         shape.softcap == 0 && !uses.scores && !uses.mask_gradient;
}

std::unique_ptr<AttentionLayer> MakeTiledAttention(const AttentionShape& shape,
                                                   const AttentionUses& uses) {
  return std::make_unique<TiledAttentionLayer>(shape, uses);
}

void CheckKeyCounts(Stream& stream, const AttentionShape& shape,
                    const Attention::Mask& mask, const ErrorSlot& errors) {
  if (mask.keys == nullptr) return;
  LaunchElements(stream, shape.batch,
                 [most = shape.keys, keys = OnDevice(mask.keys),
                  errors = OnDevice(errors)] SYNCLINE_DEVICE(int64_t b) {
                   const int64_t count = keys[b];
                   if (count < 0 || count > most) {
                     errors.Report(/*kind=*/0, b, count);
                   }
                 });
}

void TiledForward(Stream& stream, const TiledShape& s, const DeviceMask& mask,
                  ConstFloats q, ConstFloats k, ConstFloats v, Floats y,
                  float* log_sums) {
  SYNCLINE_CHECK(q.type() == s.type && k.type() == s.type &&
                 v.type() == s.type);
  const auto launch = [&](auto element, auto width) {
    using E = decltype(element);
    using Kernel = ForwardKernel<E, decltype(width)::value>;
    constexpr int kRows = Kernel::Sizes::kRows;
    Launch(stream,
           {.blocks = s.batch * s.heads * ((s.queries + kRows - 1) / kRows),
            .threads = Kernel::Sizes::kThreads,
            .shared_bytes = Kernel::kSharedBytes},
           Kernel{s, mask, log_sums != nullptr,
                  OnDevice(static_cast<const E*>(q.data())),
                  OnDevice(static_cast<const E*>(k.data())),
                  OnDevice(static_cast<const E*>(v.data())), OnDevice(y),
                  OnDevice(log_sums)});
  };
  WithTiling(s.type, std::max(s.width, s.value_width), launch);
}

}  // namespace syncline::cuda
