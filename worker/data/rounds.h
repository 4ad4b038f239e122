#ifndef SYNCLINE_WORKER_DATA_ROUNDS_H_
#define SYNCLINE_WORKER_DATA_ROUNDS_H_

#include <cstdint>

namespace syncline::worker {

// How the steps of an epoch fall into clocks: the same on all ranks. In LOCAL a
// clock is a round of `steps_of_clock` steps, the last clock of an epoch has
// those that are left. In the other modes a clock is a step. Steps are counted
// from the job's start, over all epochs, as clocks are.
struct Rounds {
  int64_t steps_per_epoch = 0;
  int64_t steps_of_clock = 1;  // > 0

  int64_t clocks_per_epoch() const {
    return (steps_per_epoch + steps_of_clock - 1) / steps_of_clock;
  }
  // Of `clock`; also how many steps the clocks before it have. REQUIRES, here
  // and below: steps_per_epoch > 0, but where there is no clock.
  int64_t FirstStep(int64_t clock) const {
    if (clock == 0) return 0;
    const int64_t clocks = clocks_per_epoch();
    return clock / clocks * steps_per_epoch + clock % clocks * steps_of_clock;
  }
  int64_t StepsOf(int64_t clock) const {
    return FirstStep(clock + 1) - FirstStep(clock);
  }
  int64_t ClockOf(int64_t step) const {
    return step / steps_per_epoch * clocks_per_epoch() +
           step % steps_per_epoch / steps_of_clock;
  }
  // Steps of the same clock before this one.
  int64_t PlaceOf(int64_t step) const {
    return step % steps_per_epoch % steps_of_clock;
  }
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_ROUNDS_H_
