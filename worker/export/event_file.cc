#include "worker/export/event_file.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/job/evaluation_values.h"
#include "proto/tensorboard.pb.h"

namespace syncline::worker {
namespace {

// TensorBoard takes it for the format's version.
constexpr char kVersion[] = "brain.Event:2";

template <typename Number>
void AppendLittleEndian(Number number, std::string* to) {
  for (size_t i = 0; i < sizeof(number); ++i) {
    to->push_back(static_cast<char>(number >> (8 * i)));
  }
}

uint32_t MaskedCrc(absl::string_view data) {
  constexpr uint32_t kMask = 0xa282ead8u;
  const uint32_t crc = Crc32c(data);
  return ((crc >> 15) | (crc << 17)) + kMask;
}

double Seconds(absl::Time time) {
  return absl::ToDoubleSeconds(time - absl::UnixEpoch());
}

void AddValue(absl::string_view tag, double value, TensorBoardEvent* event) {
  TensorBoardSummary::Value* const added =
      event->mutable_summary()->add_value();
  added->set_tag(std::string(tag));
  added->set_simple_value(static_cast<float>(value));
}

TensorBoardEvent EventOf(const HistoryPoint& point) {
  TensorBoardEvent event;
  event.set_wall_time(Seconds(point.time));
  event.set_step(point.clock);
  if (point.samples > 0) AddValue("train/loss", point.loss, &event);
  AddValue("train/learning_rate", point.learning_rate, &event);
  if (point.seconds > 0) {
    AddValue("train/samples_per_second",
             static_cast<double>(point.samples) / point.seconds, &event);
  }
  if (point.loss_scale > 0) {
    AddValue("train/loss_scale", point.loss_scale, &event);
  }
  return event;
}

TensorBoardEvent EventOf(const Evaluation& evaluation) {
  TensorBoardEvent event;
  event.set_wall_time(static_cast<double>(evaluation.time().seconds()) +
                      1e-9 * evaluation.time().nanos());
  event.set_step(evaluation.clock());
  if (evaluation.has_loss()) AddValue("test/loss", evaluation.loss(), &event);
  for (const EvaluationValue& value : EvaluationValues(evaluation)) {
    AddValue(absl::StrCat("test/", value.field), value.value, &event);
  }
  return event;
}

}  // namespace

std::string EventRecord(absl::string_view data) {
  std::string record;
  AppendLittleEndian(uint64_t{data.size()}, &record);
  AppendLittleEndian(MaskedCrc(record), &record);
  record.append(data.data(), data.size());
  AppendLittleEndian(MaskedCrc(data), &record);
  return record;
}

std::string EventFile(absl::Span<const HistoryPoint> history,
                      absl::Span<const Evaluation> evaluations) {
  std::vector<TensorBoardEvent> events;
  for (const HistoryPoint& point : history) events.push_back(EventOf(point));
  for (const Evaluation& evaluation : evaluations) {
    events.push_back(EventOf(evaluation));
  }
  // A reader takes a smaller step for a run that began anew.
  std::stable_sort(events.begin(), events.end(),
                   [](const TensorBoardEvent& a, const TensorBoardEvent& b) {
                     return a.step() < b.step();
                   });
  TensorBoardEvent first;
  first.set_file_version(kVersion);
  if (!events.empty()) first.set_wall_time(events.front().wall_time());
  std::string file = EventRecord(first.SerializeAsString());
  for (const TensorBoardEvent& event : events) {
    file.append(EventRecord(event.SerializeAsString()));
  }
  return file;
}

}  // namespace syncline::worker
