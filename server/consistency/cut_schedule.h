#ifndef SYNCLINE_SERVER_CONSISTENCY_CUT_SCHEDULE_H_
#define SYNCLINE_SERVER_CONSISTENCY_CUT_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/cuts/cut_use.h"
#include "common/regime/regime_schedule.h"
#include "server/consistency/controller_state.h"

namespace syncline::ps {

// The announced cuts of one shard, in the order in which they are passed: those
// that are held, and those to come. They never cross. Says which pushes must
// wait for them. Pure; thread-compatible.
class CutSchedule {
 public:
  // An epoch's end that is held and the next one, and cuts of other members.
  static constexpr size_t kCutsMax = 4;

  struct Cut {
    uint64_t id = 0;
    std::vector<int64_t> clocks;  // by rank
    absl::Duration hold;
    absl::Time held_until = absl::InfiniteFuture();  // once passed
    bool passed = false;
    CutUse use = CutUse::kEvaluation;
    // kRegime: in force from the cut on, once its end says so. None: the cut
    // came with the state of another shard.
    std::optional<TrainingRegime> regime = {};

    // "the checkpoint cut at clock 8", the same in each attempt of a job.
    std::string Name() const;
  };

  // Adds a cut between those that it does not cross, behind those that have
  // been passed. OK without effect if it is announced already or has ended.
  // Errors: InvalidArgument: `id` is announced with other clocks. OutOfRange:
  // it crosses one; SmallestClocks has those at which it would not.
  // FailedPrecondition: kCutsMax are announced.
  absl::Status Announce(uint64_t id, std::vector<int64_t> clocks,
                        absl::Duration hold, CutUse use = CutUse::kEvaluation,
                        std::optional<TrainingRegime> regime = {});

  // Removes a cut, passed or not. OK without effect if it has ended already.
  // Errors: FailedPrecondition: not announced, or abandoned. An announcement
  // that comes after the end, on a network that reorders, has no effect.
  absl::Status End(uint64_t id);

  // The smallest clocks, by rank and none below `clocks`, at which a cut with
  // this id crosses no announced one.
  std::vector<int64_t> SmallestClocks(uint64_t id,
                                      std::vector<int64_t> clocks) const;

  // The cut that makes this push wait; null: none. Valid until the next change.
  const Cut* Gate(uint32_t rank, int64_t clock) const;

  // The announced cut at which the regime is to change; null: none.
  const Cut* RegimeCut() const;

  // True if a cut was passed and has not ended.
  bool Holds() const { return !cuts_.empty() && cuts_.front().passed; }

  // Announced, or one of the latest that were.
  bool Knows(uint64_t id) const;

  // Those that are announced, in order.
  const std::deque<Cut>& cuts() const { return cuts_; }

  // Null: not announced.
  const Cut* Find(uint64_t id) const;

  // The first cut that has not been passed; null: none.
  const Cut* Next() const;
  // Returns that cut. REQUIRES: Next() is not null.
  const Cut& PassNext(absl::Time now);

  // Holds the cuts that have been passed for so much longer.
  void Postpone(absl::Duration delay);

  // Gives up the cuts that were held until `now`; returns how many.
  int Expire(absl::Time now);

  // Writes the cuts but `at`, which is over for whoever goes on from there.
  void Export(uint64_t at, ControllerState* state) const;
  // Goes on from the cuts of a state; those that were passed are passed anew,
  // and held as long again. A cut that some shards alone had been told of may
  // cross another one; then it is left out, as if the announcement had not come
  // yet. REQUIRES: nothing was announced; a clock of each worker.
  void Import(const ControllerState& state);

  // Why `id` is not announced, for people.
  std::string Absence(uint64_t id) const;

 private:
  static constexpr size_t kRemembered = 64;
  using Past = ControllerState::PastCut;
  // True if a cut at these clocks is passed before `cut`. Where clocks are
  // equal the ids decide.
  static bool IsBefore(uint64_t id, absl::Span<const int64_t> clocks,
                       const Cut& cut);
  void Forget(uint64_t id, bool abandoned);

  std::deque<Cut> cuts_;   // in order
  std::deque<Past> past_;  // the latest ones, for repeats and messages
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_CUT_SCHEDULE_H_
