#ifndef SYNCLINE_TESTS_UNIT_SERVER_CONSISTENCY_CONSISTENCY_CONTROLLER_FIXTURE_H_
#define SYNCLINE_TESTS_UNIT_SERVER_CONSISTENCY_CONSISTENCY_CONTROLLER_FIXTURE_H_

// The parts of consistency_controller_test share a controller of two workers
// and two blocks, which is fed with one event at a time.

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/consistency/consistency_controller.h"

namespace syncline::ps {

using Kind = ShardAction::Kind;

inline const absl::Time kStart = absl::UnixEpoch();

class ControllerTest : public ::testing::Test {
 protected:
  void Open(ConsistencyController::Options options) {
    options.workers = {{10, "chief:0 at a:1"}, {11, "worker:0 at b:2"}};
    if (options.block_count == 0) options.block_count = 2;
    options.label = "job j on ps:0 at p:9";
    controller_ = std::make_unique<ConsistencyController>(std::move(options));
  }
  void OpenAndInit(ConsistencyMode mode) {
    Open({.regimes = In(mode)});
    Init();
  }
  // A job that stays in the mode; the bound is 1 where the mode has one.
  static RegimeSchedule In(ConsistencyMode mode) {
    const bool has_bound = mode == ConsistencyMode::kBoundedStaleness;
    return RegimeSchedule(
        TrainingRegime{.mode = mode, .staleness_bound = has_bound ? 1 : 0});
  }
  void Init() {
    ShardActions actions;
    controller_->OnInit(1, 0, 10, {0, 1}, kStart, &actions);
  }

  // Each returns the kinds of the actions it caused; the last failure's status
  // is in `failure_`.
  std::vector<Kind> Push(CallToken token, uint32_t rank, int64_t clock,
                         std::vector<BlockIndex> blocks,
                         uint32_t blocks_in_clock = 2) {
    PushFacts push;
    push.clock = clock;
    push.sample_count = blocks_in_clock > 0 ? 8 : 0;
    push.blocks_in_clock = blocks_in_clock;
    push.blocks = std::move(blocks);
    return Push(token, rank, std::move(push));
  }
  std::vector<Kind> Push(CallToken token, uint32_t rank, PushFacts push) {
    return Call({.token = token,
                 .rank = rank,
                 .incarnation = 10 + rank,
                 .deadline = kStart + absl::Seconds(5),
                 .push = std::move(push),
                 .pull = std::nullopt});
  }
  std::vector<Kind> Pull(CallToken token, uint32_t rank, int64_t clock,
                         std::vector<BlockIndex> blocks = {0, 1},
                         uint64_t cut_id = 0) {
    return Call({.token = token,
                 .rank = rank,
                 .incarnation = 10 + rank,
                 .deadline = kStart + absl::Seconds(5),
                 .push = std::nullopt,
                 .pull = PullFacts{clock, std::move(blocks), cut_id}});
  }
  std::vector<Kind> Call(ShardCall call) {
    ShardActions actions;
    controller_->OnCall(std::move(call), kStart, &actions);
    return Kinds(actions);
  }
  std::vector<Kind> Tick(absl::Duration after) {
    ShardActions actions;
    controller_->OnTick(kStart + after, &actions);
    return Kinds(actions);
  }
  absl::Status BeginCut(uint64_t id, std::vector<int64_t> clocks,
                        CutUse use = CutUse::kEvaluation) {
    ShardActions actions;
    return controller_->OnBeginCut(0, 10, id, std::move(clocks),
                                   absl::Seconds(3), kStart, &actions, use);
  }
  absl::Status EndCut(uint64_t id) {
    ShardActions actions;
    return controller_->OnEndCut(0, 10, id, kStart, &actions);
  }
  std::vector<Kind> Kinds(const ShardActions& actions) {
    std::vector<Kind> kinds;
    last_ = actions;
    for (const ShardAction& action : actions) {
      kinds.push_back(action.kind);
      if (action.kind == Kind::kFail) failure_ = action.status;
    }
    return kinds;
  }

  std::unique_ptr<ConsistencyController> controller_;
  ShardActions last_;
  absl::Status failure_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_TESTS_UNIT_SERVER_CONSISTENCY_CONSISTENCY_CONTROLLER_FIXTURE_H_
