#ifndef SYNCLINE_WORKER_EXPORT_EVENT_FILE_H_
#define SYNCLINE_WORKER_EXPORT_EVENT_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"

namespace syncline::worker {

// One point of the training history.
struct HistoryPoint {
  int64_t clock = 0;     // steps closed at its end
  absl::Time time;       // of its end, by the wall clock
  uint64_t samples = 0;  // that the chief trained on in it
  double loss = 0;       // the chief's mean per sample; counts with samples > 0
  double learning_rate = 0;
  double loss_scale = 0;  // 0: none
  double seconds = 0;     // that its steps took
};

// An event file as TensorBoard reads it: records of
//
//   uint64 length | uint32 crc of it | length bytes | uint32 crc of them
//
// little-endian; a crc is CRC-32C, rotated right by 15 bits, + 0xa282ead8. The
// bytes are an event (proto/tensorboard.proto). Of each point train/loss,
// train/learning_rate, train/samples_per_second of the chief and, with loss
// scaling, train/loss_scale; of each evaluation test/loss and test/METRIC.
// Source: TensorFlow's documentation of TFRecord, "TFRecords format details".
std::string EventFile(absl::Span<const HistoryPoint> history,
                      absl::Span<const Evaluation> evaluations);

// One record around `data`.
std::string EventRecord(absl::string_view data);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXPORT_EVENT_FILE_H_
