#ifndef SYNCLINE_SERVER_CONSISTENCY_CONTROLLER_STATE_H_
#define SYNCLINE_SERVER_CONSISTENCY_CONTROLLER_STATE_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "common/cuts/cut_use.h"

namespace syncline::ps {

// The state of a consistency controller at a cut that is passed and held.
// There, each worker has closed all its clocks below the cut and started none
// above, so the clocks that it has closed are the whole record of its pushes: a
// repeat of any of them is a duplicate. All dense blocks have initial values.
struct ControllerState {
  struct Worker {
    int64_t closed = 0;  // clocks
    bool finished = false;
    // See ConsistencyController::left_out_pushes.
    uint64_t left_out_pushes = 0;
    // Of the closed clocks the latest ones that were applied without it, where
    // the mode leaves workers behind: a repeat of these is dropped, too.
    int64_t clocks_behind = 0;
  };
  std::vector<Worker> workers;  // by rank
  // Announced and not ended, in the order in which they are passed; without the
  // one at which the state is.
  struct Cut {
    uint64_t id = 0;
    std::vector<int64_t> clocks;  // by rank
    absl::Duration hold;
    CutUse use = CutUse::kEvaluation;
  };
  std::vector<Cut> cuts;
  // The latest ones that have ended, in order, for repeats and messages.
  struct PastCut {
    uint64_t id = 0;
    bool abandoned = false;
  };
  std::vector<PastCut> past_cuts;
  // See ConsistencyController.
  uint64_t skipped_clocks = 0;
  int64_t skipped_through = 0;  // SyncClock's
  uint64_t duplicate_blocks = 0;
  uint64_t abandoned_cuts = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_CONTROLLER_STATE_H_
