// Goal: what the shard that folds answers is believed only where it can be;
// when an exchange is closed nothing of it is left on gRPC's threads. Method: a
// server that answers what it is told, or never, and a callback that owns
// something and takes its time.

#include "server/shard/norm_all_reduce.h"

#include <atomic>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/grpc_channel.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/wait_log.h"

namespace syncline::ps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);

// Ends when its caller gives up.
class Unanswered : public grpc::ServerUnaryReactor {
  void OnCancel() override { Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }
};

class SilentFolder final : public ParameterServer::CallbackService {
 public:
  grpc::ServerUnaryReactor* FoldNorm(grpc::CallbackServerContext*,
                                     const FoldNormRequest*,
                                     FoldNormResponse*) override {
    {
      MutexLock lock(&mu_);
      ++calls_;
    }
    return new Unanswered;
  }
  int calls() {
    MutexLock lock(&mu_);
    return calls_;
  }

 private:
  Mutex mu_;
  int calls_ = 0;
};

// Whatever it is asked.
class OddFolder final : public ParameterServer::CallbackService {
 public:
  explicit OddFolder(int sums) : sums_(sums) {}
  grpc::ServerUnaryReactor* FoldNorm(grpc::CallbackServerContext* call,
                                     const FoldNormRequest*,
                                     FoldNormResponse* response) override {
    for (int i = 0; i < sums_; ++i) response->add_sums(i + 1);
    grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const int sums_;
};

// A job of one tensor on two ps, and the second one's part in its norms, while
// the first is `folder`.
class Exchange {
 public:
  explicit Exchange(ParameterServer::CallbackService* folder) {
    grpc::ServerBuilder builder;
    builder.RegisterService(folder);
    auto listening = StartServer(&builder, "127.0.0.1:0");
    EXPECT_OK(listening.status());
    server_ = std::move(listening->server);
    JobAssignment assignment;
    assignment.set_job_id("j");
    for (uint32_t rank = 0; rank < 2; ++rank) {
      Member* const member = assignment.add_ps()->mutable_member();
      member->set_address(listening->address);
      member->set_incarnation(500 + rank);
      member->mutable_task()->set_type(PS);
      member->mutable_task()->set_index(rank);
    }
    exchange_ = std::make_shared<NormAllReduce>(
        assignment, map_, absl::Span<const TableMap>(), 1, "job j on ps:1",
        kTimeout,
        [this](PeerUnreachable report) { told.Add(std::move(report)); });
  }
  ~Exchange() { server_->Shutdown(); }

  NormAllReduce* operator->() { return exchange_.get(); }
  void StopFolder() { server_->Shutdown(); }
  std::vector<double> Norms(FoldStage stage) const {
    return std::vector<double>(map_.shard_blocks(1).size() * FoldWidth(stage),
                               1);
  }
  NormAllReduce::Sums Answer(FoldStage stage) {
    NormAllReduce::Sums answer;
    absl::Notification answered;
    exchange_->Exchange({.clock = 3, .stage = stage}, Norms(stage),
                        [&](NormAllReduce::Sums sums) {
                          answer = std::move(sums);
                          answered.Notify();
                        });
    answered.WaitForNotification();
    return answer;
  }

  WaitLog<PeerUnreachable> told;

 private:
  const BlockMap map_ = *BlockMap::Create({TensorSize{"w", 4096}}, 2);
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<NormAllReduce> exchange_;
};

// The sums of another version, or of another job.
TEST(NormAllReduceTest, AnAnswerHasAsManySumsAsWereAskedFor) {
  for (const FoldStage stage : {FoldStage::kGradient, FoldStage::kTrust}) {
    const int expected = FoldWidth(stage);
    for (int sums = 0; sums <= 3; ++sums) {
      SCOPED_TRACE(absl::StrCat(sums, " sums, expected ", expected));
      OddFolder folder(sums);
      Exchange exchange(&folder);
      const NormAllReduce::Sums answer = exchange.Answer(stage);
      if (sums == expected) {
        ASSERT_OK(answer.status());
        EXPECT_EQ(answer->size(), static_cast<size_t>(sums));
        continue;
      }
      EXPECT_EQ(answer.status().code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(answer.status().message()),
                  AllOf(HasSubstr("ps:0 at 127.0.0.1:"), HasSubstr("clock 3"),
                        HasSubstr(absl::StrCat("answered ", sums,
                                               " sums, expected ", expected))));
    }
  }
}

TEST(NormAllReduceTest, AShardThatIsOutOfReachIsTold) {
  OddFolder folder(1);
  Exchange exchange(&folder);
  ASSERT_OK(exchange.Answer(FoldStage::kGradient).status());
  exchange.StopFolder();
  // Its outage is told once it has lasted for a while.
  ASSERT_TRUE(Eventually(kTimeout, [&] {
    EXPECT_EQ(exchange.Answer(FoldStage::kGradient).status().code(),
              absl::StatusCode::kUnavailable);
    return !exchange.told.Await(0).empty();
  }));
  const PeerUnreachable report = exchange.told.Await(1).at(0);
  EXPECT_EQ(report.job_id(), "j");
  EXPECT_EQ(report.peer().incarnation(), 500u);
  EXPECT_GE(report.seconds(), 2);
  EXPECT_FALSE(report.error().empty());
}

TEST(NormAllReduceTest, AClosedExchangeHasLetGoOfItsCallbacks) {
  SilentFolder folder;
  Exchange exchange(&folder);
  auto owned = std::make_shared<absl::Status>();
  absl::Notification closing, go_on;
  exchange->Exchange({.clock = 0}, exchange.Norms(FoldStage::kGradient),
                     [&, owned](NormAllReduce::Sums norm) {
                       closing.Notify();
                       go_on.WaitForNotification();
                       *owned = norm.status();
                     });
  ASSERT_TRUE(Eventually(kTimeout, [&] { return folder.calls() == 1; }));
  std::atomic<bool> closed = false;
  std::thread close([&] {
    exchange->Close(absl::CancelledError("over"));
    closed = true;
  });
  ASSERT_TRUE(closing.WaitForNotificationWithTimeout(kTimeout));
  EXPECT_FALSE(closed);  // it waits for the callback
  go_on.Notify();
  close.join();
  ASSERT_EQ(owned.use_count(), 1);
  EXPECT_EQ(owned->code(), absl::StatusCode::kCancelled);
  // Later ones hear it at once.
  exchange->Exchange({.clock = 1}, {}, [owned](NormAllReduce::Sums norm) {
    *owned = norm.status();
  });
  ASSERT_EQ(owned.use_count(), 1);
  EXPECT_EQ(*owned, absl::CancelledError("over"));
}

}  // namespace
}  // namespace syncline::ps
