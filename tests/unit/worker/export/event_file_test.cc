// Goal: an event file is one that TensorBoard's readers take, with every value
// of the history and the evaluations by clock. Method: a decoder written here
// from the format's description, bit by bit, without the code under test; and a
// record of TensorFlow's documentation.

#include "worker/export/event_file.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// CRC-32C, a bit at a time.
uint32_t SlowCrc(const std::string& data) {
  uint32_t crc = ~0u;
  for (const unsigned char byte : data) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
  }
  return ~crc;
}

uint64_t Little(const std::string& bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

uint32_t Unmasked(uint64_t masked) {
  const uint32_t rotated = static_cast<uint32_t>(masked) - 0xa282ead8u;
  return rotated >> 17 | rotated << 15;
}

std::vector<std::string> Records(const std::string& file) {
  std::vector<std::string> records;
  for (size_t at = 0; at < file.size();) {
    const std::string length = file.substr(at, 8);
    EXPECT_EQ(Unmasked(Little(file.substr(at + 8, 4))), SlowCrc(length));
    records.push_back(file.substr(at + 12, Little(length)));
    EXPECT_EQ(records.back().size(), Little(length));
    at += 12 + records.back().size();
    EXPECT_EQ(Unmasked(Little(file.substr(at, 4))), SlowCrc(records.back()));
    at += 4;
  }
  return records;
}

// Fields of a message on the wire: their numbers and bytes.
std::vector<std::pair<uint32_t, std::string>> Fields(const std::string& text) {
  std::vector<std::pair<uint32_t, std::string>> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0; at < text.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(text[at++]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < text.size()) {
    const uint64_t key = varint();
    std::string bytes;
    switch (key & 7) {
      case 0: {
        const uint64_t value = varint();
        bytes.assign(reinterpret_cast<const char*>(&value), 8);
        break;
      }
      case 1:
        bytes = text.substr(at, 8);
        at += 8;
        break;
      case 2: {
        const uint64_t size = varint();
        bytes = text.substr(at, size);
        at += size;
        break;
      }
      case 5:
        bytes = text.substr(at, 4);
        at += 4;
        break;
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
        return fields;
    }
    fields.emplace_back(static_cast<uint32_t>(key >> 3), bytes);
  }
  return fields;
}

struct Event {
  double wall_time = 0;
  uint64_t step = 0;
  std::string version;
  std::map<std::string, float> values;
};

Event Decode(const std::string& record) {
  Event event;
  for (const auto& [number, bytes] : Fields(record)) {
    if (number == 1) std::memcpy(&event.wall_time, bytes.data(), 8);
    if (number == 2) event.step = Little(bytes);
    if (number == 3) event.version = bytes;
    if (number != 5) continue;
    for (const auto& [of_summary, value] : Fields(bytes)) {
      EXPECT_EQ(of_summary, 1u);
      std::string tag;
      float simple = 0;  // proto3 leaves 0 out
      for (const auto& [of_value, part] : Fields(value)) {
        if (of_value == 1) tag = part;
        if (of_value == 2) std::memcpy(&simple, part.data(), 4);
      }
      event.values[tag] = simple;
    }
  }
  return event;
}

TEST(EventFileTest, ARecordIsFramedAsDocumented) {
  const std::string record = EventRecord("123456789");
  EXPECT_EQ(SlowCrc("123456789"), 0xe3069283u);  // RFC 3720's
  EXPECT_THAT(Records(record), ElementsAre("123456789"));
  EXPECT_EQ(record.size(), 8 + 4 + 9 + 4u);
  EXPECT_THAT(Records(EventRecord("")), ElementsAre(""));
}

TEST(EventFileTest, HistoryAndEvaluationsComeByClock) {
  const absl::Time begin = absl::FromUnixSeconds(1'800'000'000);
  const std::vector<HistoryPoint> history = {
      {.clock = 1,
       .time = begin,
       .samples = 20,
       .loss = 2.5,
       .learning_rate = 0.5,
       .seconds = 0.25},
      {.clock = 3,
       .time = begin + absl::Milliseconds(1500),
       .samples = 0,
       .learning_rate = 0.25,
       .loss_scale = 65536,
       .seconds = 0.5},
      {.clock = 5,
       .time = begin + absl::Seconds(2),
       .samples = 4,
       .loss = std::nan(""),
       .learning_rate = 0}};
  Evaluation evaluation;
  evaluation.set_clock(4);
  evaluation.set_loss(0.75);
  evaluation.set_accuracy(0.5);
  evaluation.mutable_time()->set_seconds(1'800'000'001);
  evaluation.mutable_time()->set_nanos(500'000'000);
  const auto records = Records(EventFile(history, {&evaluation, 1}));
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(Decode(records[0]).version, "brain.Event:2");
  EXPECT_EQ(Decode(records[0]).wall_time, 1'800'000'000.0);

  Event event = Decode(records[1]);
  EXPECT_EQ(event.step, 1u);
  EXPECT_THAT(
      event.values,
      ElementsAre(Pair("train/learning_rate", 0.5f), Pair("train/loss", 2.5f),
                  Pair("train/samples_per_second", 80.0f)));
  event = Decode(records[2]);
  EXPECT_EQ(event.step, 3u);
  EXPECT_EQ(event.wall_time, 1'800'000'001.5);
  EXPECT_THAT(event.values,
              ElementsAre(Pair("train/learning_rate", 0.25f),
                          Pair("train/loss_scale", 65536.0f),
                          Pair("train/samples_per_second", 0.0f)));
  event = Decode(records[3]);
  EXPECT_EQ(event.step, 4u);
  EXPECT_EQ(event.wall_time, 1'800'000'001.5);
  EXPECT_THAT(event.values, ElementsAre(Pair("test/accuracy", 0.5f),
                                        Pair("test/loss", 0.75f)));
  event = Decode(records[4]);
  EXPECT_TRUE(std::isnan(event.values.at("train/loss")));
  EXPECT_EQ(event.values.at("train/learning_rate"), 0.0f);
}

TEST(EventFileTest, NothingIsAFileToo) {
  const auto records = Records(EventFile({}, {}));
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(Decode(records[0]).version, "brain.Event:2");
}

}  // namespace
}  // namespace syncline::worker
