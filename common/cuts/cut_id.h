#ifndef SYNCLINE_COMMON_CUTS_CUT_ID_H_
#define SYNCLINE_COMMON_CUTS_CUT_ID_H_

#include <cstdint>

namespace syncline {

// The ids of a job's cuts: non-zero, unique over all who announce cuts and over
// the job's attempts, and in the order of the clocks. A shard may be told of
// cuts by several members that know nothing of each other, so an id is made of
// what each knows:
//
//   bits 52..63  the attempt, modulo 4096
//   bits 12..51  the largest clock of the cut
//   bits 10..11  the member that announces
//   bits  0..9   a number, where one member has several cuts at that clock
//
// Of two cuts that do not cross, the later one has the larger clock, or both
// have the same: then the announcing members' numbers decide, and a shard that
// was told the larger id first asks for later clocks.

// Of whom the id is. kEpochEnds: each epoch's end has one cut, which the chief
// announces or the evaluator; both know its id without asking.
enum class CutSeries { kEpochEnds, kChief, kEvaluator, kScheduler };

inline constexpr int kCutSeriesBits = 2;
inline constexpr int kCutNumberBits = 10;
inline constexpr int kCutClockBits = 40;
inline constexpr int64_t kCutClockMax = (int64_t{1} << kCutClockBits) - 1;

// REQUIRES: 0 <= clock <= kCutClockMax. 0 for clock 0 of kEpochEnds in attempt
// 0, which is no id.
inline uint64_t MakeCutId(uint32_t attempt, int64_t largest_clock,
                          CutSeries series, uint32_t number) {
  uint64_t id = attempt;
  id = (id << kCutClockBits) | static_cast<uint64_t>(largest_clock);
  id = (id << kCutSeriesBits) | static_cast<uint64_t>(series);
  return (id << kCutNumberBits) | (number & ((1u << kCutNumberBits) - 1));
}

// Modulo 4096.
inline uint64_t AttemptOfCut(uint64_t cut_id) {
  return cut_id >> (kCutClockBits + kCutSeriesBits + kCutNumberBits);
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CUTS_CUT_ID_H_
