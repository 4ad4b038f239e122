#ifndef SYNCLINE_WORKER_DATA_DATASET_H_
#define SYNCLINE_WORKER_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/job_spec.pb.h"
#include "worker/data/batch.h"
#include "worker/data/reading/data_root.h"
#include "worker/data/reading/value_order.h"

namespace syncline::worker {

// The elements of each sample that a graph input takes.
struct FeedShape {
  int64_t elements = 0;
  bool integers = false;  // int64; else float32
  // Of the elements; empty: not known, so only their number is compared.
  SampleDims dims = {};
};

// The elements of each sample that a batch of one of several lengths
// (LengthBuckets) takes.
struct BucketShape {
  int64_t length = 0;
  std::vector<int64_t> elements;  // by feed
  int64_t label_width = 1;
};

// Samples [first, first + count).
struct SampleRange {
  int64_t first = 0;
  int64_t count = 0;
};

// All samples of one DataSource, loaded and checked, in file order. Immutable
// after Open, hence thread-safe.
class Dataset {
 public:
  // Loads `source`, mapped by `data` (feeds, label). Relative paths are below
  // `data_root`. `feeds` are what the graph inputs take, by feed index, which
  // fields of variable width are padded to; `class_count` bounds the labels of
  // a classification loss (0: regression, no bound) and `label_width` is how
  // many label values a sample has. Errors, each naming file, and line or
  // record: NotFound (missing file, a glob without match), InvalidArgument
  // (malformed, wrong magic, field unknown or of the wrong size, label outside
  // the classes, NaN or infinity), DataLoss (truncated, bad gzip checksum),
  // PermissionDenied, ResourceExhausted (more than fits into memory, or onto
  // the disk). Samples not kept in memory are in a file below `work_dir`.
  //
  // With `buckets`, ascending, of which the last takes what `feeds` and
  // `label_width` say, each sample is in the first bucket that takes all its
  // lists. InvalidArgument: a bucket takes less than one before it.
  //
  // Shapes of source and input must fit where both are known (Feed.reshape).
  // `label_dims` is that of the labels that the loss takes; empty: not known.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(
      const DataSource& source, const DataSpec& data, const DataRoot& data_root,
      absl::Span<const FeedShape> feeds, int64_t class_count,
      int64_t label_width, const std::string& work_dir = "/var/tmp",
      absl::Span<const BucketShape> buckets = {},
      const SampleDims& label_dims = {});
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  // By sample: its bucket. Empty: there are none.
  virtual absl::Span<const uint8_t> buckets() const { return {}; }
  // How often `id` is in the data of a feed of ids, before padding; 0 in
  // formats without lists, which pad nothing. Passes over them all.
  virtual int64_t CountIds(int feed, int64_t id) const { return 0; }
  // Fills *batch with the samples `indices` (each in [0, size())), in order;
  // its length is that of their largest bucket.
  virtual void Read(absl::Span<const int64_t> indices, Batch* batch) const = 0;
  // Hints: samples that will soon be read, or not again in this epoch.
  virtual void WillRead(const SampleRange& samples) const {}
  virtual void HasRead(const SampleRange& samples) const {}
};

// OK unless a field means other columns in data.test than in data.train, as far
// as CSV headers tell (CompareColumns in formats/csv_columns.h).
absl::Status CompareSources(const DataSpec& data, const DataRoot& data_root);

// Which samples a worker sees when. A pure function of its arguments: the order
// of an epoch depends on (seed, epoch) alone, and step `s` of an epoch takes
// the positions [s * workers * batch, (s + 1) * workers * batch) of it, of
// which rank r gets the r-th run of `batch`. With a global batch g step `s`
// takes [s * g, (s + 1) * g) instead, whatever the number of workers, and of
// its n samples rank r gets the run [n * r / workers, n * (r + 1) / workers).
// So n workers x batch b see, step
// by step, what one worker x batch n*b sees. Short last batches are cut in rank
// order; a rank may get nothing.
//
// With windows, an epoch's order is that of pieces of kPieceSamples
// neighbouring samples, shuffled (but for a short one, which is the last), and
// within each window of neighbouring pieces of that order the samples are
// shuffled: so what is read at a time lies in few places. Nothing is kept per
// sample but a window's.
//
// With buckets, all samples of a step are of one. Samples wait, in the epoch's
// order, until there are workers * batch of their bucket: these are the next
// step. Samples that wait at the end make short steps, one a bucket. So
// the order in which the samples of a bucket are seen depends on (seed, epoch)
// alone; how steps of different buckets alternate depends on workers * batch
// too, and n workers x batch b still see what one x n*b does.
//
// Thread-compatible.
class BatchPlan {
 public:
  struct Options {
    int64_t sample_count = 0;
    int64_t batch_size = 0;    // per worker
    int64_t global_batch = 0;  // TrainingSpec.global_batch; 0: none
    uint32_t workers = 1;
    uint32_t rank = 0;
    bool shuffle = true;
    uint64_t seed = 0;
    int64_t window_samples = 0;  // rounded up to whole pieces; 0: no windows
    // By sample; empty: there are none. Outlives the plan; not with windows.
    absl::Span<const uint8_t> buckets = {};
  };
  static constexpr int64_t kPieceSamples = 4096;
  explicit BatchPlan(const Options& options);

  // ceil(sample_count / (workers * batch_size)), or of global_batch; with
  // buckets the sum of that over them.
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  // From here on so many workers share a step's samples, which stay the same,
  // and this one has another rank among them.
  void ShareAmong(uint32_t workers, uint32_t rank);

  // Of all ranks; the last step of an epoch, or of a bucket, may have fewer.
  int64_t samples_per_step() const {
    if (options_.global_batch > 0) return options_.global_batch;
    return options_.workers * options_.batch_size;
  }
  // Sample numbers of `step` (from 0) in `epoch` (from 0); may be empty.
  // Borrowed until the next call.
  absl::Span<const int64_t> Indices(int64_t epoch, int64_t step);

  // Samples of `step` that ranks below this one have. REQUIRES: Indices was
  // called for it last.
  int64_t FirstInStep(int64_t step) const {
    return ShareOf(step).first - PositionsOf(step).first;
  }

  // With windows: the samples that Indices, since the last call of this, has
  // begun to need a window ahead (soon), and those that it has passed (past).
  struct Moves {
    std::vector<SampleRange> soon;
    std::vector<SampleRange> past;
  };
  Moves TakeMoves();

 private:
  int64_t pieces_per_window() const {
    return (options_.window_samples + kPieceSamples - 1) / kPieceSamples;
  }
  // Positions of the epoch's order, of all ranks and of this one.
  SampleRange PositionsOf(int64_t step) const;
  SampleRange ShareOf(int64_t step) const;
  void OrderEpoch(int64_t epoch);
  // Brings order_ into that of the steps.
  void GroupByBucket();
  void EnterWindow(int64_t epoch, int64_t window);
  // Window `next` follows the present one; -1: another epoch.
  void LeaveWindow(int64_t next);
  // Samples of the pieces of `window` in the epoch's order.
  std::vector<SampleRange> WindowPieces(int64_t window) const;
  Options options_;  // const, but for its share
  int64_t steps_per_epoch_ = 0;
  int64_t permuted_epoch_ = -1;
  std::vector<int64_t> order_;  // of samples, or with windows of pieces
  // With buckets: where in order_ the steps begin, and it ends.
  std::vector<int64_t> step_begins_;
  int64_t window_ = -1;  // of permuted_epoch_
  std::vector<int64_t> window_order_;
  std::vector<int64_t> indices_;  // scratch
  Moves moves_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_DATASET_H_
