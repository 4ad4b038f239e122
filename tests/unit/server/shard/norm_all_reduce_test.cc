// Goal: an answer of ps rank 0, the root, is believed only where it can be;
// after Close nothing of a NormAllReduce is left on gRPC's threads. Method: a
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
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/status_matchers.h"

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

class SilentRoot final : public ParameterServer::CallbackService {
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

// Answers every FoldNorm with `sums` sums.
class OddRoot final : public ParameterServer::CallbackService {
 public:
  explicit OddRoot(int sums) : sums_(sums) {}
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
// the first is `root`.
class Fixture {
 public:
  explicit Fixture(ParameterServer::CallbackService* root) {
    grpc::ServerBuilder builder;
    builder.RegisterService(root);
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
    all_reduce_ = std::make_shared<NormAllReduce>(
        assignment, map_, absl::Span<const TableMap>(), 1, "job j on ps:1",
        kTimeout,
        [this](PeerUnreachable report) { told.Add(std::move(report)); });
  }
  ~Fixture() { server_->Shutdown(); }

  NormAllReduce* operator->() { return all_reduce_.get(); }
  void StopRoot() { server_->Shutdown(); }
  std::vector<double> Norms(ReductionStage stage) const {
    return std::vector<double>(
        map_.shard_blocks(1).size() * NormsPerBlock(stage), 1);
  }
  NormAllReduce::Sums Answer(ReductionStage stage) {
    NormAllReduce::Sums answer;
    absl::Notification answered;
    all_reduce_->AllReduce({.clock = 3, .stage = stage}, Norms(stage),
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
  std::shared_ptr<NormAllReduce> all_reduce_;
};

// The sums of another version, or of another job.
TEST(NormAllReduceTest, AnAnswerHasAsManySumsAsWereAskedFor) {
  for (const ReductionStage stage :
       {ReductionStage::kGradient, ReductionStage::kTrust}) {
    const int expected = NormsPerBlock(stage);
    for (int sums = 0; sums <= 3; ++sums) {
      SCOPED_TRACE(absl::StrCat(sums, " sums, expected ", expected));
      OddRoot root(sums);
      Fixture fixture(&root);
      const NormAllReduce::Sums answer = fixture.Answer(stage);
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

TEST(NormAllReduceTest, AShardThatIsOutOfReachIsReported) {
  OddRoot root(1);
  Fixture fixture(&root);
  ASSERT_OK(fixture.Answer(ReductionStage::kGradient).status());
  fixture.StopRoot();
  // Its outage is told once it has lasted for a while.
  ASSERT_TRUE(Eventually(kTimeout, [&] {
    EXPECT_EQ(fixture.Answer(ReductionStage::kGradient).status().code(),
              absl::StatusCode::kUnavailable);
    return !fixture.told.Await(0).empty();
  }));
  const PeerUnreachable report = fixture.told.Await(1).at(0);
  EXPECT_EQ(report.job_id(), "j");
  EXPECT_EQ(report.peer().incarnation(), 500u);
  EXPECT_GE(report.seconds(), 2);
  EXPECT_FALSE(report.error().empty());
}

TEST(NormAllReduceTest, AClosedAllReduceHasReleasedItsCallbacks) {
  SilentRoot root;
  Fixture fixture(&root);
  auto owned = std::make_shared<absl::Status>();
  absl::Notification closing, go_on;
  fixture->AllReduce({.clock = 0}, fixture.Norms(ReductionStage::kGradient),
                     [&, owned](NormAllReduce::Sums norm) {
                       closing.Notify();
                       go_on.WaitForNotification();
                       *owned = norm.status();
                     });
  ASSERT_TRUE(Eventually(kTimeout, [&] { return root.calls() == 1; }));
  std::atomic<bool> closed = false;
  std::thread close([&] {
    fixture->Close(absl::CancelledError("over"));
    closed = true;
  });
  ASSERT_TRUE(closing.WaitForNotificationWithTimeout(kTimeout));
  EXPECT_FALSE(closed);  // it waits for the callback
  go_on.Notify();
  close.join();
  ASSERT_EQ(owned.use_count(), 1);
  EXPECT_EQ(owned->code(), absl::StatusCode::kCancelled);
  // Later ones hear it at once.
  fixture->AllReduce({.clock = 1}, {}, [owned](NormAllReduce::Sums norm) {
    *owned = norm.status();
  });
  ASSERT_EQ(owned.use_count(), 1);
  EXPECT_EQ(*owned, absl::CancelledError("over"));
}

}  // namespace
}  // namespace syncline::ps
