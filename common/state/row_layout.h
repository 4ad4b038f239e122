#ifndef SYNCLINE_COMMON_STATE_ROW_LAYOUT_H_
#define SYNCLINE_COMMON_STATE_ROW_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace syncline {

// The layout of a row of a table in memory:
//
//   key int64 | score float32 | clock uint32 | values [dim] | state [state]
//
// `score` is the number of pushes of the row, decayed up to `clock`, the clock
// of its last push. A spilled row keeps its optimizer state and its past; only
// its key is left out, which the cold store keeps in a place of its own
// (spill_segment.h). Rows are aligned to four bytes, so keys are copied and
// never pointed at.
class RowLayout {
 public:
  RowLayout(size_t dim, size_t state_floats)
      : dim_(dim),
        bytes_(kValuesOffset + (dim + state_floats) * sizeof(float)) {}

  size_t dim() const { return dim_; }
  size_t bytes() const { return bytes_; }
  size_t spilled_bytes() const { return bytes_ - kScoreOffset; }

  static int64_t Key(const char* row) { return Load<int64_t>(row); }
  static void SetKey(char* row, int64_t key) { Store(row, key); }

  // The part of a row in memory that is spilled, and how to read it.
  static char* Spilled(char* row) { return row + kScoreOffset; }
  static float SpilledScore(const char* spilled) {
    return Load<float>(spilled);
  }
  static uint32_t SpilledClock(const char* spilled) {
    return Load<uint32_t>(spilled + kClockOffset - kScoreOffset);
  }
  static const float* SpilledValues(const char* spilled) {
    return reinterpret_cast<const float*>(spilled + kValuesOffset -
                                          kScoreOffset);
  }

  static float Score(const char* row) {
    return Load<float>(row + kScoreOffset);
  }
  static uint32_t Clock(const char* row) {
    return Load<uint32_t>(row + kClockOffset);
  }
  static void SetPast(char* row, float score, uint32_t clock) {
    Store(row + kScoreOffset, score);
    Store(row + kClockOffset, clock);
  }

  static float* Values(char* row) {
    return reinterpret_cast<float*>(row + kValuesOffset);
  }
  static const float* Values(const char* row) {
    return reinterpret_cast<const float*>(row + kValuesOffset);
  }
  float* State(char* row) const { return Values(row) + dim_; }

 private:
  static constexpr size_t kScoreOffset = sizeof(int64_t);
  static constexpr size_t kClockOffset = kScoreOffset + sizeof(float);
  static constexpr size_t kValuesOffset = kClockOffset + sizeof(uint32_t);

  template <typename T>
  static T Load(const char* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  template <typename T>
  static void Store(char* to, T value) {
    std::memcpy(to, &value, sizeof(T));
  }

  size_t dim_;
  size_t bytes_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_STATE_ROW_LAYOUT_H_
