// Attention by matrix products, with the scores of some heads in memory at a
// time, where they are not computed tile by tile (tiled_attention.h). What lies
// between the products is one launch for all of these heads.

#include <algorithm>
#include <memory>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention_mask.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/report.h"
#include "kernels/cuda/tiled_attention.h"
#include "kernels/cuda/walk/lines.h"
#include "kernels/device/attention_kernels.h"
#include "kernels/device/device.h"
#include "kernels/device/matrix_product_kernels.h"
#include "kernels/device/softmax_kernels.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline {
namespace {

using cuda::DeviceMask;
using cuda::Global;
using cuda::MaskOnDevice;
using cuda::OnDevice;
using cuda::RoundScores;

// Scores of a round of heads at most, unless a head alone has more, where the
// weights of all heads are not kept anyway.
constexpr int64_t kRoundScores = int64_t{16} << 20;  // floats

int64_t OffsetOf(const Attention::Layout& layout, int64_t batch, int64_t head) {
  return batch * layout.batch + head * layout.head;
}

// From the scores of a query to its weights, in place.
struct WeightsBody {
  RoundScores r;
  DeviceMask mask;
  bool wants_masked;
  Global<float> scores;
  Global<float> masked;  // the scores between

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t keys) const {
    const int64_t begin = line * r.keys;
    const int64_t seen = keys > 0 ? mask.KeysFor(r, line) : 0;
    const int64_t at = keys > 0 ? mask.At(r, line) : 0;
    float largest = -INFINITY;
    for (int64_t j = group.rank(); j < keys; j += group.size()) {
      float score = -INFINITY;
      if (j < seen) {
        score = scores[begin + j];
        if (mask.adds) score += mask.added[at + j * mask.column];
        if (mask.Hides(at + j * mask.column)) score = mask.hidden;
      }
      scores[begin + j] = score;
      if (wants_masked) masked[begin + j] = score;
      largest = cuda::Larger()(largest, score);
    }
    largest = group.Fold(largest, cuda::Larger());
    const bool sees_none = largest == -INFINITY;
    float sum = 0;
    for (int64_t j = group.rank(); j < seen; j += group.size()) {
      sum += Exp(scores[begin + j] - largest);
    }
    sum = group.Fold(sum, cuda::Plus());
    const float share = 1.0f / sum;
    for (int64_t j = group.rank(); j < keys; j += group.size()) {
      const bool counts = j < seen && !sees_none;
      scores[begin + j] =
          counts ? Exp(scores[begin + j] - largest) * share : 0.0f;
    }
  }
};

void Cap(Stream& stream, int64_t count, float cap, float* scores) {
  cuda::LaunchElements(
      stream, count,
      [cap, scores = OnDevice(scores)] SYNCLINE_DEVICE(int64_t i) {
        scores[i] = cap * Tanh(scores[i] / cap);
      });
}

// In place: of the capped scores to begin with.
void CapGradient(Stream& stream, int64_t count, float cap, const float* capped,
                 float* d) {
  cuda::LaunchElements(stream, count,
                       [cap, capped = OnDevice(capped),
                        d = OnDevice(d)] SYNCLINE_DEVICE(int64_t i) {
                         const float y = capped[i] / cap;
                         d[i] = d[i] * (1.0f - y * y);
                       });
}

// Sets the gradient to 0 of scores that the mask replaced.
struct DropHidden {
  RoundScores r;
  DeviceMask mask;
  Global<float> d;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const int64_t line = i / r.keys;
    const int64_t j = i % r.keys;
    if (j >= mask.KeysFor(r, line)) return;
    if (mask.Hides(mask.At(r, line) + j * mask.column)) d[i] = 0;
  }
};

// Adds the gradient of one head's scores to that of the mask: a line for each
// element of this, over the rows or columns that share it.
template <typename Sum>
struct MaskGradientBody {
  int64_t keys;
  int64_t line_columns;  // 1 if all columns share an element
  int64_t sum_columns;
  int64_t row;
  int64_t column;
  int64_t lines;
  Global<const float> d;
  Global<Sum> dmask;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t n) const {
    double sum = 0;
    for (int64_t k = group.rank(); k < n; k += group.size()) {
      const int64_t i = line / line_columns + k / sum_columns;
      const int64_t j = line % line_columns + k % sum_columns;
      sum += d[i * keys + j];
    }
    sum = group.Fold(sum, cuda::Plus());
    if (group.rank() != 0 || line >= lines) return;
    dmask[line / line_columns * row + line % line_columns * column] +=
        static_cast<Sum>(sum);
  }
};

template <typename Sum>
void AddMaskGradient(Stream& stream, const AttentionShape& s,
                     const Attention::Mask& mask, const float* d, Sum* dmask) {
  if (dmask == nullptr) return;
  const int64_t columns = std::min(s.keys, mask.columns);
  const bool by_row = mask.row != 0;
  const bool by_column = mask.column != 0;
  const int64_t lines = (by_row ? s.queries : 1) * (by_column ? columns : 1);
  const int64_t sum_columns = by_column ? 1 : columns;
  const int64_t n = (by_row ? 1 : s.queries) * sum_columns;
  if (lines == 0 || n == 0) return;
  cuda::LaunchLines(stream, lines, n, /*are_adjacent=*/by_column,
                    MaskGradientBody<Sum>{s.keys, by_column ? columns : 1,
                                          sum_columns, mask.row, mask.column,
                                          lines, OnDevice(d), OnDevice(dmask)});
}

// The products of a head, or of all heads of a round where they lie one after
// another.
struct Products {
  std::unique_ptr<MatrixProduct> scores, mix, dweights, dq, dk, dv;
};

bool AreDense(const AttentionShape& s) {
  const auto is_dense = [&](const Attention::Layout& layout, int64_t rows,
                            int64_t width) {
    return layout.row == width && layout.head == rows * width &&
           layout.batch == s.heads * rows * width;
  };
  return s.heads == s.key_heads && is_dense(s.q, s.queries, s.width) &&
         is_dense(s.k, s.keys, s.width) &&
         is_dense(s.v, s.keys, s.value_width) &&
         is_dense(s.y, s.queries, s.value_width);
}

class CudaAttentionLayer : public AttentionLayer {
 public:
  explicit CudaAttentionLayer(const AttentionShape& shape) : s_(shape) {
    const int64_t most = std::max<int64_t>(1, HeadCount());
    round_heads_ = s_.keeps_weights
                       ? heads()
                       : std::clamp<int64_t>(kRoundScores / most, 1,
                                             std::max<int64_t>(1, heads()));
    product_heads_ = s_.keeps_weights && AreDense(s_) ? heads() : 1;
  }

  // Errors: the product library's.
  absl::Status Compile(Device& device, bool backward);

  int64_t weights_count() const override {
    return s_.keeps_weights ? heads() * HeadCount() : 0;
  }
  int64_t forward_scratch_count() const override {
    return s_.keeps_weights ? 0 : round_heads_ * HeadCount();
  }
  int64_t backward_scratch_count() const override {
    const int64_t capped = s_.softcap != 0 ? 1 : 0;
    return (1 + capped) * round_heads_ * HeadCount() + forward_scratch_count();
  }

  absl::Status Forward(Stream& stream, ConstFloats q, ConstFloats k,
                       ConstFloats v, const Attention::Mask& mask, Floats y,
                       float* weights, float* scratch,
                       const Attention::Scores& scores,
                       const ErrorSlot& errors) override;
  absl::Status Backward(Stream& stream, ConstFloats q, ConstFloats k,
                        ConstFloats v, const Attention::Mask& mask,
                        const float* weights, ConstFloats y, ConstFloats dy,
                        float* scratch, const AttentionGradients& out) override;

 private:
  struct Operands {
    const float *q, *k, *v;
    Attention::Mask mask;
  };
  // Heads [first, first + count) of all samples'.
  struct Round {
    int64_t first, count;
  };
  // Where a head's matrices are.
  struct Head {
    int64_t q, k, v, y;
    bool shares_keys;  // with the one before it
  };

  int64_t heads() const { return s_.batch * s_.heads; }
  int64_t HeadCount() const { return s_.queries * s_.keys; }
  Head HeadAt(int64_t index) const;
  RoundScores ScoresOf(const Round& round) const {
    return {round.first, s_.heads, s_.queries, s_.keys, s_.past, s_.causal};
  }

  template <typename Run>
  absl::Status ForRounds(Run run) const;
  // Calls run(head, its scores' offset within the round) for each product.
  template <typename Run>
  absl::Status ForProducts(const Round& round, Run run) const;

  // The scores of a round, capped.
  absl::Status ComputeScores(Stream& stream, const Round& round,
                             const Operands& in, float* scores,
                             const Attention::Scores& wanted) const;
  absl::Status ComputeWeights(Stream& stream, const Round& round,
                              const Operands& in, float* weights,
                              const Attention::Scores& wanted) const;
  // Where a round's scores of this stage go; null: nowhere.
  float* Wanted(const Attention::Scores& wanted, Attention::Stage stage,
                const Round& round) const;
  void CopyTo(Stream& stream, const Attention::Scores& wanted,
              Attention::Stage stage, const Round& round,
              const float* scores) const;
  // `d` becomes the gradient of the products; `capped` is for the scores.
  absl::Status ScoresGradient(Stream& stream, const Round& round,
                              const Operands& in, const float* weights,
                              const float* dy, float* d, float* capped,
                              const AttentionGradients& out) const;
  absl::Status RoundGradients(Stream& stream, const Round& round,
                              const Operands& in, const float* weights,
                              const float* dy, float* d, float* capped,
                              const AttentionGradients& out) const;

  const AttentionShape s_;
  int64_t round_heads_ = 1;
  int64_t product_heads_ = 1;  // of one product
  Products products_;
};

absl::Status CudaAttentionLayer::Compile(Device& device, bool backward) {
  const auto make = [&](MatrixProductShape shape,
                        std::unique_ptr<MatrixProduct>* to) -> absl::Status {
    shape.batch = product_heads_;
    // Rows lie one after another then.
    if (product_heads_ > 1) shape.a_row = shape.b_row = shape.c_row = 0;
    SYNCLINE_ASSIGN_OR_RETURN(*to,
                              CudaMatrixProductKernels().make(device, shape));
    return absl::OkStatus();
  };
  const AttentionShape& s = s_;
  SYNCLINE_RETURN_IF_ERROR(make({.m = s.queries,
                                 .n = s.keys,
                                 .k = s.width,
                                 .transpose_b = true,
                                 .a_row = s.q.row,
                                 .b_row = s.k.row,
                                 .alpha = s.scale},
                                &products_.scores));
  SYNCLINE_RETURN_IF_ERROR(make({.m = s.queries,
                                 .n = s.value_width,
                                 .k = s.keys,
                                 .b_row = s.v.row,
                                 .c_row = s.y.row},
                                &products_.mix));
  if (!backward) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(make({.m = s.queries,
                                 .n = s.keys,
                                 .k = s.value_width,
                                 .transpose_b = true,
                                 .a_row = s.y.row,
                                 .b_row = s.v.row},
                                &products_.dweights));
  SYNCLINE_RETURN_IF_ERROR(make({.m = s.queries,
                                 .n = s.width,
                                 .k = s.keys,
                                 .b_row = s.k.row,
                                 .c_row = s.q.row,
                                 .alpha = s.scale},
                                &products_.dq));
  SYNCLINE_RETURN_IF_ERROR(make({.m = s.keys,
                                 .n = s.width,
                                 .k = s.queries,
                                 .transpose_a = true,
                                 .b_row = s.q.row,
                                 .c_row = s.k.row,
                                 .alpha = s.scale},
                                &products_.dk));
  return make({.m = s.keys,
               .n = s.value_width,
               .k = s.queries,
               .transpose_a = true,
               .b_row = s.y.row,
               .c_row = s.v.row},
              &products_.dv);
}

CudaAttentionLayer::Head CudaAttentionLayer::HeadAt(int64_t index) const {
  const int64_t batch = index / s_.heads;
  const int64_t head = index % s_.heads;
  const int64_t group = s_.heads / s_.key_heads;
  return {.q = OffsetOf(s_.q, batch, head),
          .k = OffsetOf(s_.k, batch, head / group),
          .v = OffsetOf(s_.v, batch, head / group),
          .y = OffsetOf(s_.y, batch, head),
          .shares_keys = head % group != 0};
}

template <typename Run>
absl::Status CudaAttentionLayer::ForRounds(Run run) const {
  for (int64_t first = 0; first < heads(); first += round_heads_) {
    SYNCLINE_RETURN_IF_ERROR(
        run(Round{first, std::min(round_heads_, heads() - first)}));
  }
  return absl::OkStatus();
}

template <typename Run>
absl::Status CudaAttentionLayer::ForProducts(const Round& round,
                                             Run run) const {
  for (int64_t i = 0; i < round.count; i += product_heads_) {
    SYNCLINE_RETURN_IF_ERROR(run(HeadAt(round.first + i), i * HeadCount()));
  }
  return absl::OkStatus();
}

float* CudaAttentionLayer::Wanted(const Attention::Scores& wanted,
                                  Attention::Stage stage,
                                  const Round& round) const {
  if (wanted.scores == nullptr || wanted.stage != stage) return nullptr;
  return wanted.scores + round.first * HeadCount();
}

void CudaAttentionLayer::CopyTo(Stream& stream, const Attention::Scores& wanted,
                                Attention::Stage stage, const Round& round,
                                const float* scores) const {
  float* const to = Wanted(wanted, stage, round);
  if (to == nullptr) return;
  stream.Copy(to, scores, round.count * HeadCount() * sizeof(float));
}

absl::Status CudaAttentionLayer::ComputeScores(
    Stream& stream, const Round& round, const Operands& in, float* scores,
    const Attention::Scores& wanted) const {
  SYNCLINE_RETURN_IF_ERROR(
      ForProducts(round, [&](const Head& head, int64_t at) {
        return products_.scores->Run(stream, in.q + head.q, in.k + head.k,
                                     /*bias=*/nullptr, scores + at);
      }));
  CopyTo(stream, wanted, Attention::Stage::kProducts, round, scores);
  if (s_.softcap != 0) {
    Cap(stream, round.count * HeadCount(), s_.softcap, scores);
  }
  CopyTo(stream, wanted, Attention::Stage::kCapped, round, scores);
  return absl::OkStatus();
}

absl::Status CudaAttentionLayer::ComputeWeights(
    Stream& stream, const Round& round, const Operands& in, float* weights,
    const Attention::Scores& wanted) const {
  SYNCLINE_RETURN_IF_ERROR(ComputeScores(stream, round, in, weights, wanted));
  float* const masked = Wanted(wanted, Attention::Stage::kMasked, round);
  if (s_.keys > 0) {
    cuda::LaunchLines(
        stream, round.count * s_.queries, s_.keys, /*are_adjacent=*/false,
        WeightsBody{ScoresOf(round), MaskOnDevice(in.mask), masked != nullptr,
                    OnDevice(weights), OnDevice(masked)});
  }
  CopyTo(stream, wanted, Attention::Stage::kWeights, round, weights);
  return absl::OkStatus();
}

absl::Status CudaAttentionLayer::Forward(Stream& stream, ConstFloats q,
                                         ConstFloats k, ConstFloats v,
                                         const Attention::Mask& mask, Floats y,
                                         float* weights, float* scratch,
                                         const Attention::Scores& scores,
                                         const ErrorSlot& errors) {
  cuda::CheckKeyCounts(stream, s_, mask, errors);
  const Operands in = {q, k, v, mask};
  return ForRounds([&](const Round& round) -> absl::Status {
    float* const p = s_.keeps_weights ? weights : scratch;
    SYNCLINE_RETURN_IF_ERROR(ComputeWeights(stream, round, in, p, scores));
    return ForProducts(round, [&](const Head& head, int64_t at) {
      return products_.mix->Run(stream, p + at, v + head.v, /*bias=*/nullptr,
                                y + head.y);
    });
  });
}

absl::Status CudaAttentionLayer::Backward(Stream& stream, ConstFloats q,
                                          ConstFloats k, ConstFloats v,
                                          const Attention::Mask& mask,
                                          const float* weights, ConstFloats,
                                          ConstFloats dy, float* scratch,
                                          const AttentionGradients& out) {
  const Operands in = {q, k, v, mask};
  return ForRounds([&](const Round& round) -> absl::Status {
    float* const d = scratch;
    float* const p = d + round_heads_ * HeadCount();  // if it was not kept
    if (s_.keeps_weights) {
      return RoundGradients(stream, round, in, weights, dy, d, /*capped=*/p,
                            out);
    }
    SYNCLINE_RETURN_IF_ERROR(ComputeWeights(stream, round, in, p, {}));
    return RoundGradients(stream, round, in, p, dy, d,
                          p + round_heads_ * HeadCount(), out);
  });
}

absl::Status CudaAttentionLayer::ScoresGradient(
    Stream& stream, const Round& round, const Operands& in,
    const float* weights, const float* dy, float* d, float* capped,
    const AttentionGradients& out) const {
  SYNCLINE_RETURN_IF_ERROR(
      ForProducts(round, [&](const Head& head, int64_t at) {
        return products_.dweights->Run(stream, dy + head.y, in.v + head.v,
                                       /*bias=*/nullptr, d + at);
      }));
  const int64_t count = round.count * HeadCount();
  CudaSoftmaxKernels().softmax.backward(
      stream, {.outer = round.count * s_.queries, .n = s_.keys, .inner = 1},
      weights, d, /*accumulate=*/false, d);
  if (in.mask.hidden_is_finite() && in.mask.seen != nullptr) {
    cuda::LaunchElements(
        stream, count,
        DropHidden{ScoresOf(round), MaskOnDevice(in.mask), OnDevice(d)});
  }
  for (int64_t i = 0; out.WantsMask() && i < round.count; ++i) {
    // Heads may share a mask: one after the other.
    const int64_t at = (round.first + i) / s_.heads * in.mask.batch +
                       (round.first + i) % s_.heads * in.mask.head;
    const float* const of_head = d + i * HeadCount();
    AddMaskGradient(stream, s_, in.mask, of_head,
                    out.dmask == nullptr ? nullptr : out.dmask + at);
    AddMaskGradient(stream, s_, in.mask, of_head,
                    out.long_dmask == nullptr ? nullptr : out.long_dmask + at);
  }
  if (s_.softcap == 0) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(ComputeScores(stream, round, in, capped, {}));
  CapGradient(stream, count, s_.softcap, capped, d);
  return absl::OkStatus();
}

absl::Status CudaAttentionLayer::RoundGradients(
    Stream& stream, const Round& round, const Operands& in,
    const float* weights, const float* dy, float* d, float* capped,
    const AttentionGradients& out) const {
  const bool needs_scores =
      out.dq != nullptr || out.dk != nullptr || out.WantsMask();
  // All that is read comes before what may be written over it.
  if (needs_scores) {
    SYNCLINE_RETURN_IF_ERROR(
        ScoresGradient(stream, round, in, weights, dy, d, capped, out));
  }
  return ForProducts(round, [&](const Head& head, int64_t at) -> absl::Status {
    if (out.dv != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(
          products_.dv->Into(stream, weights + at, dy + head.y,
                             head.shares_keys || out.add_dv, out.dv + head.v));
    }
    if (out.dk != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(
          products_.dk->Into(stream, d + at, in.q + head.q,
                             head.shares_keys || out.add_dk, out.dk + head.k));
    }
    if (out.dq == nullptr) return absl::OkStatus();
    return products_.dq->Into(stream, d + at, in.k + head.k, out.add_dq,
                              out.dq + head.q);
  });
}

absl::StatusOr<std::unique_ptr<AttentionLayer>> Make(
    Device& device, const AttentionShape& shape, const AttentionUses& uses) {
  // Weights that are not kept would be T x T numbers on their way.
  if (cuda::ServesTiledAttention(shape, uses) &&
      (Is16Bit(uses.type) || !shape.keeps_weights)) {
    return cuda::MakeTiledAttention(shape, uses);
  }
  if (Is16Bit(uses.type)) {
    return absl::UnimplementedError("attention of a form that is not tiled");
  }
  auto layer = std::make_unique<CudaAttentionLayer>(shape);
  SYNCLINE_RETURN_IF_ERROR(layer->Compile(device, uses.backward));
  return layer;
}

// --- The past ----------------------------------------------------------------

// The part of JoinedHeads that kernels read.
struct Joined {
  int64_t heads, past, rows, width;
  int64_t batch_stride, head_stride, row_stride;

  // Where row `row` of head `head`, of all samples, begins.
  SYNCLINE_DEVICE int64_t IncomingAt(int64_t head, int64_t row) const {
    return head / heads * batch_stride + head % heads * head_stride +
           row * row_stride;
  }
  SYNCLINE_DEVICE int64_t JoinedAt(int64_t head, int64_t row) const {
    return (head * (past + rows) + row) * width;
  }
};

Joined JoinedOf(const JoinedHeads& s) {
  return {s.heads,          s.past,          s.rows,        s.width,
          s.incoming.batch, s.incoming.head, s.incoming.row};
}

void Join(Stream& stream, const JoinedHeads& s, const float* past,
          const float* incoming, float* joined) {
  cuda::LaunchElements(
      stream, s.count(),
      [s = JoinedOf(s), past = OnDevice(past), incoming = OnDevice(incoming),
       joined = OnDevice(joined)] SYNCLINE_DEVICE(int64_t i) {
        const int64_t column = i % s.width;
        const int64_t row = i / s.width % (s.past + s.rows);
        const int64_t head = i / s.width / (s.past + s.rows);
        float value = 0;
        if (row < s.past) {
          value = past[(head * s.past + row) * s.width + column];
        } else {
          value = incoming[s.IncomingAt(head, row - s.past) + column];
        }
        joined[i] = value;
      });
}

void PastGradient(Stream& stream, const JoinedHeads& s, const float* djoined,
                  bool accumulate, float* dpast) {
  cuda::LaunchElements(
      stream, s.head_count() * s.past * s.width,
      [s = JoinedOf(s), accumulate, djoined = OnDevice(djoined),
       dpast = OnDevice(dpast)] SYNCLINE_DEVICE(int64_t i) {
        const int64_t row = i / s.width % s.past;
        const int64_t head = i / s.width / s.past;
        const float d = djoined[s.JoinedAt(head, row) + i % s.width];
        dpast[i] = accumulate ? dpast[i] + d : d;
      });
}

void IncomingGradient(Stream& stream, const JoinedHeads& s,
                      const float* djoined, bool accumulate, float* dincoming) {
  cuda::LaunchElements(
      stream, s.head_count() * s.rows * s.width,
      [s = JoinedOf(s), accumulate, djoined = OnDevice(djoined),
       dincoming = OnDevice(dincoming)] SYNCLINE_DEVICE(int64_t i) {
        const int64_t row = i / s.width % s.rows;
        const int64_t head = i / s.width / s.rows;
        const int64_t column = i % s.width;
        const float d = djoined[s.JoinedAt(head, s.past + row) + column];
        const int64_t to = s.IncomingAt(head, row) + column;
        dincoming[to] = accumulate ? dincoming[to] + d : d;
      });
}

void AddSums(Stream& stream, int64_t count, const double* sums, float* to) {
  cuda::LaunchElements(
      stream, count,
      [sums = OnDevice(sums), to = OnDevice(to)] SYNCLINE_DEVICE(int64_t i) {
        to[i] += static_cast<float>(sums[i]);
      });
}

}  // namespace

const AttentionKernels& CudaAttentionKernels() {
  static constexpr AttentionKernels kKernels = {
      .make = Make,
      .join = Join,
      .past_gradient = PastGradient,
      .incoming_gradient = IncomingGradient,
      .add_sums = AddSums};
  return kKernels;
}

}  // namespace syncline
