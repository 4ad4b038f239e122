#ifndef SYNCLINE_TESTS_TESTING_CLIENT_PARTS_H_
#define SYNCLINE_TESTS_TESTING_CLIENT_PARTS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/fakes/fake_ps.h"
#include "tests/testing/fakes/test_metrics.h"
#include "worker/client/carry_over.h"
#include "worker/client/client_context.h"

namespace syncline::testing {

// The surroundings of one part of PsClient, for its test: a fake ps for each
// shard, and everything between.
class ClientParts {
 public:
  using AnswerFunction =
      std::function<FakePs::Answer(uint32_t shard, const FakePs::Call&)>;

  // `answer_call` says what each ps answers, on threads of gRPC.
  ClientParts(BlockMap map, worker::DenseTensors tensors,
              AnswerFunction answer_call, size_t chunk_bytes = 1 << 20)
      : answer_call_(std::move(answer_call)),
        map_(std::move(map)),
        tensors_(std::move(tensors)) {
    worker::FanoutCall::Options options;
    options.job_id = "j-7";
    options.patience = absl::Seconds(60);
    options.push_window_bytes = options.pull_window_bytes = 8 << 20;
    for (uint32_t shard = 0; shard < map_.shard_count(); ++shard) {
      ps_.push_back(
          std::make_unique<FakePs>([this, shard](const FakePs::Call& call) {
            return answer_call_(shard, call);
          }));
      options.peers.push_back(
          {absl::StrCat("ps:", shard), ps_.back()->address()});
    }
    calls_ = std::make_unique<worker::FanoutCall>(options);
    context_.map = &map_;
    context_.tensors = &tensors_;
    context_.headers = &headers_;
    context_.step = &step_;
    context_.answers = &answers_;
    context_.calls = calls_.get();
    context_.telemetry = Telemetry();
    context_.chunk_bytes = context_.shared_chunk_bytes = chunk_bytes;
  }

  const worker::ClientContext& context() const { return context_; }
  worker::PushedStep& step() { return step_; }
  worker::FanoutCall& calls() { return *calls_; }
  uint64_t pushed_bytes() const {
    return static_cast<uint64_t>(pushed_.value());
  }
  uint64_t pulled_bytes() const {
    return static_cast<uint64_t>(pulled_.value());
  }

  // The calls that came to `shard`, in order.
  std::vector<FakePs::Call> CallsOf(uint32_t shard) {
    return ps_[shard]->calls().Await(0);
  }
  // Their names.
  std::vector<std::string> MethodsOf(uint32_t shard) {
    std::vector<std::string> methods;
    for (const FakePs::Call& call : CallsOf(shard)) {
      methods.push_back(call.method);
    }
    return methods;
  }

 private:
  worker::ClientTelemetry Telemetry() {
    worker::ClientTelemetry telemetry;
    telemetry.pushed_bytes = &pushed_;
    telemetry.pulled_bytes = &pulled_;
    return telemetry;
  }

  const AnswerFunction answer_call_;
  const BlockMap map_;
  const worker::DenseTensors tensors_;
  TestCounter pushed_;
  TestCounter pulled_;
  const worker::HeaderEncoder headers_{
      {.job_id = "j-7", .rank = 1, .incarnation = 5, .routing_version = 1},
      RegimeSchedule(),
      absl::Seconds(60)};
  worker::PushedStep step_{&headers_, &map_};
  worker::CarryOver carry_over_;
  worker::AnswerLog answers_{map_.shard_count(), Telemetry(),
                             &carry_over_.non_finite};
  worker::ClientContext context_;
  std::vector<std::unique_ptr<FakePs>> ps_;
  std::unique_ptr<worker::FanoutCall> calls_;  // before its ps
};

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_CLIENT_PARTS_H_
