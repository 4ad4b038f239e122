#ifndef SYNCLINE_COMMON_CUTS_CUT_COORDINATOR_H_
#define SYNCLINE_COMMON_CUTS_CUT_COORDINATOR_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/cuts/cut_id.h"
#include "common/cuts/cut_use.h"

namespace syncline {

// A cut that somebody wants.
struct CutRequest {
  // For actions and later events; of no other request that has not ended.
  uint64_t name = 0;
  CutUse use = CutUse::kEvaluation;
  // By rank: the cut is there, or behind it where a worker is past. Zeros: as
  // soon as possible.
  std::vector<int64_t> clocks = {};
  // Clocks are raised to multiples of this: the clocks of an epoch, for a cut
  // at some epoch's end.
  int64_t period = 1;
  // The clocks are raised together: the cut is at one clock of all workers.
  bool equal_clocks = false;
  // Of the first try, where another member must know it without asking; used if
  // it is above the ids so far. 0: made of the clocks.
  uint64_t id = 0;
  absl::Duration hold = absl::ZeroDuration();
  // The cut fails if it is not agreed upon by then.
  absl::Time deadline = absl::InfiniteFuture();
};

// The answer of a shard to a BeginCut.
struct CutAnswer {
  absl::Status status = absl::OkStatus();
  // With a refusal: by rank, the smallest clocks at which the shard can be cut
  // (common/wire/smallest_cut.h). None: it refuses whatever the clocks are.
  std::optional<std::vector<int64_t>> smallest = {};
};

// An instruction to the owner's shell, or an answer to the owner.
struct CutAction {
  enum class Kind {
    kBegin,  // BeginCut of `cut_id` at `shard`, with clocks, use and hold.
    kEnd,    // EndCut of `cut_id` at `shard`.
    // To the owner of `name`.
    kAgreed,  // All shards are cut at `clocks`, under `cut_id`.
    kFailed,  // The cut is not to be had: `status`.
    kEnded,   // All shards have let the cut go. `status`: OK, or a shard had
              // given it up before: what was read there since may be torn.
  };
  Kind kind;
  uint64_t name = 0;
  uint64_t cut_id = 0;
  uint32_t shard = 0;
  std::vector<int64_t> clocks = {};
  CutUse use = CutUse::kEvaluation;
  absl::Duration hold = absl::ZeroDuration();
  absl::Status status = absl::OkStatus();
};
using CutActions = std::vector<CutAction>;

// Brings all shards of a job to agree on cuts, for one member that wants some:
// for evaluations, checkpoints, changes of the regime and of the routing.
//
// A cut is announced at all shards. If a shard is past it, the cut is withdrawn
// where it was announced, raised in each clock to what the shards have said,
// and announced again under a new id, with more headroom each time, until all
// agree. Cuts of one coordinator never cross, and at most kCutsMax of them are
// announced at a time. Where another member's cuts are in the way, the shards
// say so, and this one waits or goes behind them.
//
// A withdrawn try holds no worker: a shard that has it, or has passed it, lets
// its workers go on, and does not take it up if it hears of it later.
//
// A pure state machine: events and `now` in, actions appended to `out`. Answers
// may come twice, late, or never; each message is sent again after
// `resend_after`. Thread-compatible.
class CutCoordinator {
 public:
  static constexpr size_t kCutsMax = 3;  // fewer than CutSchedule's
  static constexpr size_t kRequestsMax = 16;

  struct Options {
    std::string label = {};                // "job j-0001", for messages
    std::vector<std::string> shards = {};  // "ps:1 at 10.0.0.5:4000", not empty
    uint32_t attempt = 0;
    CutSeries series = CutSeries::kChief;
    // How far apart the clocks of a cut may be: 0 in SYNC, staleness_bound in
    // BOUNDED_STALENESS, none in ASYNC.
    std::optional<int64_t> spread = {};
    // A cut that some worker has passed is raised so many times. 15 raises find
    // workers that make thousands of steps while a message travels.
    int raises_max = 15;
    // Infinite where the shell repeats lost messages itself.
    absl::Duration resend_after = absl::InfiniteDuration();
    // Before a try that changes nothing but the time; longer with each one.
    absl::Duration wait_for_others = absl::Milliseconds(50);
  };

  explicit CutCoordinator(Options options);

  // Errors: InvalidArgument: no clocks, clocks or a period out of range, a name
  // that is taken; ResourceExhausted: kRequestsMax have not ended. The request
  // is then not taken.
  absl::Status Request(CutRequest request, absl::Time now, CutActions* out);
  // The owner is done with the cut, agreed or not. An agreed cut ends in
  // kEnded, any other in kFailed. False: there is none of this name.
  bool End(uint64_t name, absl::Time now, CutActions* out);
  // A read at the agreed cut was refused with `why`, since a shard has given
  // the cut up. Ends it, with this status.
  void OnLost(uint64_t name, const absl::Status& why, absl::Time now,
              CutActions* out);
  // The shard's own answers to kBegin and kEnd.
  void OnBegun(uint32_t shard, uint64_t cut_id, const CutAnswer& answer,
               absl::Time now, CutActions* out);
  void OnEnded(uint32_t shard, uint64_t cut_id, const absl::Status& status,
               absl::Time now, CutActions* out);
  // Sends again, goes on after a wait, and ends what is overdue.
  void OnTick(absl::Time now, CutActions* out);

  // Cuts that are announced from now on may be so far apart: Options.spread.
  void UseSpread(std::optional<int64_t> spread) { options_.spread = spread; }
  // The job's shards are others from now on, which know of the cuts what those
  // before them knew. Sends again what was under way, and says again of each
  // cut what its owner has been told: the shell may have lost it.
  void UseShards(std::vector<std::string> shards, absl::Time now,
                 CutActions* out);
  // True for a request that has not ended.
  bool Has(uint64_t name) const;

  // When the next OnTick does something; InfiniteFuture: not before another
  // event.
  absl::Time next_tick() const;
  // The id under which a cut is announced now; 0: none of this name is.
  uint64_t IdOf(uint64_t name) const;
  bool idle() const { return cuts_.empty(); }

 private:
  enum class State { kQueued, kAnnouncing, kWithdrawing, kAgreed, kEnding };
  // Of a cut at a shard.
  enum class Standing { kNone, kAsked, kAnnounced, kLeaving };
  struct Cut {
    CutRequest request;
    State state = State::kQueued;
    uint64_t id = 0;
    std::vector<int64_t> clocks;
    std::vector<Standing> shards;
    absl::Time sent_at;
    // Of the tries so far.
    int tries = 0;
    int raises = 0;
    int waits = 0;
    std::vector<int64_t> smallest;  // by rank, the largest that was asked for
    std::string refusal;            // the last one
    absl::Time retry_at = absl::InfinitePast();
    // The owner has been told that it fails; or how an agreed one has ended.
    bool failed = false;
    absl::Status outcome;
  };
  using CutIterator = std::list<Cut>::iterator;

  absl::Status Check(const CutRequest& request) const;
  CutIterator FindName(uint64_t name);
  CutIterator FindId(uint64_t cut_id);
  // Announces the next cut if it may be.
  void Advance(absl::Time now, CutActions* out);
  void Announce(Cut* cut, absl::Time now, CutActions* out);
  // Before the last agreed cut or behind it, in the period, within the spread.
  void Arrange(const CutRequest& request, std::vector<int64_t>* clocks) const;
  // None of these clocks is behind the last agreed cut. An epoch's end is
  // announced when the epoch begins, and a checkpoint before it later. Where
  // the last one is passed already, the shards say so.
  bool GoesBeforeLast(const std::vector<int64_t>& clocks) const;
  uint64_t NextId(const Cut& cut) const;
  void NoteRefusal(Cut* cut, uint32_t shard, const CutAnswer& answer);
  // Sends EndCut to each shard.
  void Leave(Cut* cut, State state, absl::Time now, CutActions* out);
  // No shard has the cut any more.
  void AfterLeaving(CutIterator cut, absl::Time now, CutActions* out);
  // A worker is past the last try.
  bool MustRaise(const Cut& cut) const;
  void Raise(Cut* cut, absl::Time now);
  // Ends a cut that has not been agreed upon, once no shard has it.
  void Fail(CutIterator cut, absl::Status status, absl::Time now,
            CutActions* out);
  absl::Status GivenUp(const Cut& cut) const;
  // "job j-0001: the checkpoint cut".
  std::string Name(const Cut& cut) const;
  void TellAgreed(const Cut& cut, CutActions* out) const;
  void TellFailed(const Cut& cut, CutActions* out) const;
  void Send(const Cut& cut, uint32_t shard, CutActions* out) const;
  bool IsUnderWay(const Cut& cut) const {
    return cut.state != State::kQueued && cut.state != State::kAgreed;
  }
  bool IsAgreed(const Cut& cut) const {
    return cut.state == State::kAgreed || cut.state == State::kEnding;
  }

  Options options_;      // const, but for its shards and spread
  std::list<Cut> cuts_;  // in the order of the requests
  uint64_t last_id_ = 0;
  std::vector<int64_t> last_clocks_;  // of the last agreed cut
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CUTS_CUT_COORDINATOR_H_
