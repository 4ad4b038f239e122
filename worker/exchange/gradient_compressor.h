#ifndef SYNCLINE_WORKER_EXCHANGE_GRADIENT_COMPRESSOR_H_
#define SYNCLINE_WORKER_EXCHANGE_GRADIENT_COMPRESSOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/regime/gradient_compression.h"
#include "common/wire/block_map.h"
#include "common/wire/compression.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline::worker {

// The state of Adam for some elements.
struct AdamMoments {
  absl::Span<const float> first;
  absl::Span<const float> second;
};

// Residuals and momentum that a compressor keeps from step to step, by tensor;
// both are empty for a tensor of which it keeps nothing.
struct KeptGradients {
  struct Tensor {
    uint64_t samples = 0;  // of the step that it is of; 0: of none yet
    AlignedFloats residual;
    AlignedFloats momentum;  // kDgc with momentum
  };
  std::vector<Tensor> tensors;
};

// Compresses one rank's dense gradients, or sums that it sends back, step by
// step, and keeps what was lost for the next one (error feedback). A function
// of the job's seed, the rank, the clock and the gradients, whatever shards
// there are: the same bits each time.
//
//   kInt8      sent = rounded(g + r), r = g + r - sent
//   kTopK      sent = the largest elements of g + r by tensor, r = the others
//   kDgc       u = m * u + g, v = v + u; sent = the largest elements of v by
//              tensor; u and v become 0 where they were sent (momentum factor
//              masking). Source: Lin et al. 2018, "Deep Gradient Compression"
//   kTernGrad  sent = g by chance, unbiased; nothing is kept
//   kOneBitAdam  up to warmup_clocks: sent = g, whole. Then u is the first
//              moment that Adam makes of g, over the root of its second moment
//              (FrozenAdam): sent = signs(u + r), r = u + r - sent. Source:
//              Tang et al. 2021, "1-bit Adam", which sends the moment itself
//
// Gradients are of the summed loss. A residual is of the samples of its step: a
// step of another number of samples takes it in proportion, as their means
// would.
//
// Running means stay whole, and out of the residuals. So does every block that
// is not finite, so that its owner finds it and does as the job's policy says.
// The
// residuals of such a block stay as they are.
//
// A job may change its kind between steps (Follow). Residuals stay; where the
// new kind keeps none, the next step sends g + r whole, so nothing is lost for
// good.
//
// A step of which no gradient is applied must not change them either. In a job
// that may skip steps after they were sent (`may_be_undone`), they are kept as
// they were until the next step says what has become of this one. A step that
// is abandoned before anything is sent is no step here.
//
// Memory: StateBytes. Thread-compatible.
class GradientCompressor {
 public:
  struct Options {
    GradientCompression compression;
    uint64_t seed = 0;
    uint32_t rank = 0;
    float momentum = 0;         // kDgc
    OptimizerParams adam = {};  // kOneBitAdam
    uint32_t workers = 1;       // kOneBitAdam, Clip
    // kOneBitAdam: the moments of a block, by id, before the step, of the mean
    // gradient. Null: what is compressed are sums of u.
    std::function<AdamMoments(uint32_t block)> moments = nullptr;
    bool may_be_undone = false;
    // A gradient that is not finite is sent and does not end the job: any
    // number of blocks may stay whole. For StateBytes alone.
    bool sends_non_finite = false;
    std::vector<bool> running_means = {};  // by tensor; empty: none is one
    // Residuals and momentum that the first step begins with, of the same kind
    // and tensors. The compressor takes their memory. Null: none.
    std::shared_ptr<KeptGradients> start = nullptr;
  };

  // `map`: any of the job's, whatever its shards.
  GradientCompressor(Options options, const BlockMap& map)
      : GradientCompressor(std::move(options), map.blocks()) {}
  // `blocks` of 1..kCompressedElementsMax elements, by tensor and offset.
  GradientCompressor(Options options, absl::Span<const Block> blocks);

  // Bytes that compression takes of a rank, at most: what is kept from step to
  // step, one encoded gradient and its copy in messages, and what finds the
  // largest elements. Some bytes a block are not counted. `tensors` are those
  // of the map; 0 where `options` compress nothing.
  static uint64_t StateBytes(const Options& options,
                             absl::Span<const TensorSize> tensors);
  static bool KeepsMomentum(const Options& options) {
    return options.compression.kind == GradientCompression::Kind::kDgc &&
           options.momentum > 0;
  }
  // Bytes of CopyKept.
  static uint64_t KeptBytes(const Options& options,
                            absl::Span<const TensorSize> tensors);
  // Bytes of one encoded gradient that are of a shard of `map`, at most; some
  // bytes a block are not counted. REQUIRES: `options` compress.
  static uint64_t EncodedBytes(const Options& options, const BlockMap& map,
                               uint32_t shard);

  // Steps behind the one that was begun last are compressed so, kNone: not at
  // all. Residuals stay, and memory is taken for those of the new kind. Without
  // effect if nothing differs. REQUIRES: kDgc is neither begun nor ended.
  void Follow(const GradientCompression& compression, bool may_be_undone);

  // Before the first tensor of a step with `samples` > 0. Without effect if
  // that step is open already: it is sent again, to other shards.
  void BeginStep(int64_t clock, uint64_t samples);
  // Of the open step: its gradients, whose mean has `norm`, are scaled down so
  // that the step that is made of them has clip_norm (> 0) at most. `averaged`:
  // that step is the mean of all workers. Of N independent gradients it has
  // 1 / sqrt(N) times the norm of one, so each may have sqrt(N) clip_norm.
  // Source: Lin et al. 2018, section 3.2 and appendix C, which has
  // clip_norm / sqrt(N) for what each adds to the mean, 1 / N of its gradient.
  void Clip(double norm, double clip_norm, bool averaged);
  // A repeat within the step changes nothing: it is the same gradient.
  void Compress(uint32_t tensor, absl::Span<const float> gradient) {
    Compress(tensor, gradient, samples_);
  }
  // Of another number of samples than the step has, > 0: some ranks' were left
  // out of this tensor.
  void Compress(uint32_t tensor, absl::Span<const float> gradient,
                uint64_t samples);
  // Nothing of the step that was begun last was applied anywhere: what is kept
  // is again what it was before. A repeat has no effect, nor has it where steps
  // cannot be undone.
  void Undo();
  // The open step is the first one of a kind that keeps no residuals: it sends
  // those that are there.
  bool sends_all() const { return sends_all_; }
  // g + r of a tensor that was compressed in a step of kNone that sends all:
  // what it sends, up to the next step. A block that is not finite too, with
  // which its residual goes. Empty: a running mean.
  absl::Span<const float> whole(uint32_t tensor) const;
  // The encoded block, by id, until its tensor is compressed again.
  absl::string_view block(uint32_t id) const { return encoded_[id]; }
  // The clock of the step that was begun last; -1: none.
  int64_t clock() const { return clock_; }

  GradientCompression::Kind kind() const { return options_.compression.kind; }
  // Copies residuals and momentum, between steps. Memory that *to has is used
  // again.
  void CopyKept(KeptGradients* to) const;

  // The residual that a tensor's next gradient is added to; of kDgc v. Empty:
  // nothing is kept. For tests.
  absl::Span<const float> residual(uint32_t tensor) const;

 private:
  struct Tensor {
    std::vector<uint32_t> blocks;
    bool is_running_mean = false;
    int64_t clock = -1;  // of the step that it was compressed in last
    // In what is kept: those of that step.
    uint64_t samples = 0;
    uint64_t old_samples = 0;
    // From step to step, and, where steps may be undone, of the step before.
    AlignedFloats residual;
    AlignedFloats momentum;
    AlignedFloats old_residual;
    AlignedFloats old_momentum;
  };

  void GoOnWith(KeptGradients* kept);
  // Takes the memory that the options say, where it is not there.
  void TakeMemory(Tensor* tensor);
  // The step that sent all residuals is not undone any more.
  void EmptyResiduals();
  // Adds the gradient to the residual, all of which this step sends.
  void AddWhole(Tensor* tensor, absl::Span<const float> gradient);
  // Adds `count` elements of a gradient, from `offset` of the tensor on, to
  // what is kept of them. False, which leaves that as it is: the block stays
  // whole.
  bool AddUp(Tensor* tensor, size_t offset, size_t count,
             const float* gradient);
  // The same of u, times `samples`, of which the gradient is.
  bool AddUpMoment(Tensor* tensor, size_t offset, const AdamMoments& moments,
                   const float* gradient, uint64_t samples);
  // Of kOneBitAdam.
  void CompressMoment(Tensor* tensor, absl::Span<const float> gradient,
                      uint64_t samples);
  void CompressLargest(Tensor* tensor, absl::Span<const float> gradient);
  static bool IsRunningMean(const Options& options, size_t tensor) {
    return tensor < options.running_means.size() &&
           options.running_means[tensor];
  }

  Options options_;
  std::vector<Block> blocks_;
  std::vector<Tensor> tensors_;
  std::vector<std::string> encoded_;  // by block
  std::vector<uint32_t> chosen_;
  std::vector<uint32_t> whole_;  // blocks of the tensor
  LargestFinder finder_;
  int64_t clock_ = -1;
  uint64_t samples_ = 0;  // of that step
  bool can_undo_ = false;
  bool keeps_some_ = false;  // some residual may not be zero
  bool sends_all_ = false;   // the step begun last sends all residuals
  // Of this gradient's samples to those of what is kept of its tensor.
  float ratio_ = 1;
  float scale_ = 1;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXCHANGE_GRADIENT_COMPRESSOR_H_
