// The rules of a history, checked while it runs and at its end.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/shard_history.h"

namespace syncline {

int64_t ShardHistory::NeededOfOthers(int64_t clock) const {
  const std::optional<int64_t> bound = regimes_.At(clock).bound();
  int64_t needed = bound.has_value() ? clock - *bound : 0;
  for (int64_t c = clock - 1; c >= needed; --c) {
    if (regimes_.At(c).sync()) return c + 1;
  }
  return needed;
}

int64_t ShardHistory::NeededBeforePush(int64_t clock) const {
  if (regimes_.At(clock).sync()) return clock;
  int64_t border = clock;
  while (border > 0 && !regimes_.At(border - 1).sync()) --border;
  return border;
}

void ShardHistory::CheckDeliver(const ps::ShardAction& action) {
  const Outstanding& call = outstanding_[action.token];
  if (closed_) return Broken("delivered after the job was closed");
  if (call.zombie) return Broken("a zombie's gradient was delivered");
  if (call.push->blocks[action.position] != action.block ||
      call.push->clock != action.clock || call.rank != action.rank) {
    return Broken("an action contradicts its call");
  }
  if (!kept_[action.block][action.rank].insert(action.clock).second ||
      applied_[action.block][action.rank].count(action.clock) > 0) {
    Broken(absl::StrCat("delivered twice: rank ", action.rank, " clock ",
                        action.clock, " block ", action.block));
  }
}

void ShardHistory::CheckApply(const ps::ShardAction& action) {
  uint64_t samples = 0;
  for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
    std::set<int64_t>& kept = kept_[action.block][rank];
    if (regimes_.At(action.clock).sync()) {
      samples += script_.samples(rank, action.clock);
      if (script_.sends(rank, action.clock, action.block) !=
          (kept.count(action.clock) > 0)) {
        Broken(absl::StrCat("clock ", action.clock, " of block ", action.block,
                            " was applied with the wrong workers"));
      }
    } else if (!kept.empty()) {
      samples += script_.samples(rank, action.clock);
    }
    for (const int64_t clock : kept) {
      if (clock != action.clock) Broken("applied with another clock's");
      applied_[action.block][rank].insert(clock);
    }
    kept.clear();
  }
  if (samples != action.sample_count) Broken("divided by a wrong count");
}

void ShardHistory::CheckRead(const Outstanding& call) {
  for (const ps::BlockIndex block : call.pull->blocks) {
    if (call.pull->cut_id != 0) {
      CheckCutState(*call.pull, block);
      continue;
    }
    CheckBlockIsFresh(call, block);
    if (script_.FoldsInSync()) {
      CheckSyncValue(*call.pull, block);
    }
  }
}

void ShardHistory::CheckBlockIsFresh(const Outstanding& call,
                                     ps::BlockIndex block) {
  for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
    int64_t needed =
        rank == call.rank ? call.pull->clock : NeededOfOthers(call.pull->clock);
    needed = std::min(needed, script_.clock_count(rank));
    for (int64_t clock = 0; clock < needed; ++clock) {
      if (script_.sends(rank, clock, block) &&
          applied_[block][rank].count(clock) == 0) {
        Broken(absl::StrCat("rank ", call.rank, " read block ", block,
                            " at clock ", call.pull->clock, " without clock ",
                            clock, " of rank ", rank));
      }
    }
  }
}

void ShardHistory::CheckSyncValue(const ps::PullFacts& pull,
                                  ps::BlockIndex block) {
  const absl::Span<const float> value = updater_->values(block);
  // Only a late duplicate, whose worker has gone on, may see a later version.
  for (int64_t version = pull.clock; version <= script_.clock_count(0);
       ++version) {
    const std::vector<float>& folded = script_.folded(block, version);
    if (std::equal(value.begin(), value.end(), folded.begin())) return;
  }
  Broken(absl::StrCat("block ", block, " read at clock ", pull.clock,
                      " is not the serial fold"));
}

void ShardHistory::CheckSnapshot(const ps::ShardAction& action) {
  if (action.cut_clocks != cut_clocks_[action.cut_id]) {
    return Broken("a snapshot at other clocks than its cut's");
  }
  for (const ps::BlockIndex block : AllBlocks()) {
    CheckCutState({0, {}, action.cut_id}, block);
  }
}

void ShardHistory::CheckCutState(const ps::PullFacts& pull,
                                 ps::BlockIndex block) {
  const std::vector<int64_t>& cut = cut_clocks_[pull.cut_id];
  for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
    for (int64_t clock = 0; clock < script_.clock_count(rank); ++clock) {
      const bool expected =
          clock < cut[rank] && script_.sends(rank, clock, block);
      if (expected != (applied_[block][rank].count(clock) > 0)) {
        Broken(absl::StrCat("cut ", pull.cut_id, ": clock ", clock, " of rank ",
                            rank, " and block ", block,
                            expected ? " is missing" : " is too much"));
      }
    }
  }
}

bool ShardHistory::AllHaveClosed(int64_t clocks) const {
  for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
    const ps::PushLedger& worker = controller_->worker(rank);
    if (!worker.finished() && worker.closed() < clocks) return false;
  }
  return true;
}

bool ShardHistory::MayReadWholeShard(uint32_t rank, int64_t clock) const {
  for (uint32_t other = 0; other < script_.worker_count(); ++other) {
    const ps::PushLedger& worker = controller_->worker(other);
    if (worker.finished()) continue;
    const int64_t needed = other == rank ? clock : NeededOfOthers(clock);
    if (worker.closed() < needed) return false;
  }
  return true;
}

void ShardHistory::CheckNobodyWaitsInVain() {
  if (closed_ || controller_->initialised_count() < script_.block_count() ||
      (regimes_.AnySync() && options_.clip_norm)) {
    return;
  }
  for (const auto& [token, call] : outstanding_) {
    const ps::PushLedger& worker = controller_->worker(call.rank);
    const bool pushed =
        !call.push.has_value() || call.push->clock < worker.closed();
    if (pushed && call.pull.has_value() && call.pull->cut_id == 0 &&
        MayReadWholeShard(call.rank, call.pull->clock)) {
      Broken(absl::StrCat("rank ", call.rank, " waits in vain at clock ",
                          call.pull->clock));
    }
    if (!options_.cuts && call.push.has_value() && !call.pull.has_value() &&
        call.push->clock <= worker.closed() &&
        AllHaveClosed(NeededBeforePush(call.push->clock))) {
      Broken(
          absl::StrCat("a push of clock ", call.push->clock, " waits in vain"));
    }
  }
}

bool ShardHistory::AllDone() const {
  return closed_ || std::all_of(workers_.begin(), workers_.end(),
                                [](const WorkerActor& w) { return w.done; });
}

std::vector<float> ShardHistory::ExpectedOfRegimes(ps::BlockIndex block) const {
  std::vector<float> expected = script_.initial(block);
  int64_t clocks = 0;
  for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
    clocks = std::max(clocks, script_.clock_count(rank));
  }
  for (int64_t clock = 0; clock < clocks; ++clock) {
    const TrainingRegime& regime = regimes_.At(clock);
    const std::vector<float> step = script_.step(clock, block, regime.sync());
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] -= static_cast<float>(regime.learning_rate_factor) * step[i];
    }
  }
  return expected;
}

void ShardHistory::CheckEnd() {
  if (!outstanding_.empty()) return Broken("a call never ended");
  if (controller_->parked_pulls() + controller_->parked_pushes() > 0) {
    return Broken("a call is still parked");
  }
  if (closed_) return;
  if (!AllDone()) return Broken("a worker never got through its script");
  for (ps::BlockIndex block = 0; block < script_.block_count(); ++block) {
    std::vector<float> expected = script_.initial(block);
    for (uint32_t rank = 0; rank < script_.worker_count(); ++rank) {
      for (int64_t clock = 0; clock < script_.clock_count(rank); ++clock) {
        const bool sent = script_.sends(rank, clock, block);
        if (sent != (applied_[block][rank].count(clock) > 0)) {
          Broken(absl::StrCat(sent ? "lost" : "invented", ": rank ", rank,
                              " clock ", clock, " block ", block));
        }
        if (!sent) continue;
        const std::vector<float> g = script_.gradient(rank, clock, block);
        for (size_t i = 0; i < expected.size(); ++i) {
          expected[i] -=
              g[i] / static_cast<float>(script_.samples(rank, clock));
        }
      }
    }
    if (script_.FoldsInSync()) {
      expected = script_.folded(block, script_.clock_count(0));
    } else if (options_.changes > 0) {
      expected = ExpectedOfRegimes(block);
    }
    const absl::Span<const float> value = updater_->values(block);
    if (!std::equal(value.begin(), value.end(), expected.begin())) {
      Broken(absl::StrCat("block ", block, " has a wrong final value"));
    }
  }
}

}  // namespace syncline
