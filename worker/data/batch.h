#ifndef SYNCLINE_WORKER_DATA_BATCH_H_
#define SYNCLINE_WORKER_DATA_BATCH_H_

#include <cstdint>
#include <vector>

namespace syncline::worker {

// A position with this label counts for nothing (Label.ignore).
inline constexpr float kIgnoredLabel = -1;

// Samples of one step, as data delivers them and the executor consumes them.
// Reused from step to step; capacity is kept. Thread-compatible.
struct Batch {
  // Samples; 0 for a worker that has run out of data in this epoch.
  int64_t size = 0;
  // Samples of the same clock before these: those of its earlier steps, and of
  // this step those that workers of lower rank have.
  int64_t first_in_step = 0;
  // The size of the graph inputs' symbolic dimension for these samples: a
  // length of LengthBuckets; 0: there is no symbolic dimension.
  int64_t length = 0;
  // By DataSpec.feeds index: [size, elements of the field], float32, row-major,
  // scale and offset applied. Empty where the graph input is int64.
  std::vector<std::vector<float>> feeds;
  // The same for int64 graph inputs, values as in the data; empty elsewhere.
  std::vector<std::vector<int64_t>> int_feeds;
  // [size, label_width]: the class number for classification losses, or
  // kIgnoredLabel; the target for regression. Class numbers are exact in
  // float32 (below 2^24).
  std::vector<float> labels;
  int64_t label_width = 1;
  // Of the numbers in both kinds of feeds: those of samples, and those that
  // their lists are padded with.
  int64_t value_count = 0;
  int64_t padding_count = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_BATCH_H_
