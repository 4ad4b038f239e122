// Goal: when an exchange is closed nothing of it is left on gRPC's threads.
// Method: a server that never answers, and a callback that owns something and
// takes its time.

#include "server/norm_exchange.h"

#include <memory>

#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/grpc_channel.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

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

TEST(NormExchangeTest, AClosedExchangeHasLetGoOfItsCallbacks) {
  SilentFolder folder;
  grpc::ServerBuilder builder;
  builder.RegisterService(&folder);
  auto listening = StartServer(&builder, "127.0.0.1:0");
  ASSERT_OK(listening.status());
  JobAssignment assignment;
  assignment.set_job_id("j");
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Member* const member = assignment.add_ps()->mutable_member();
    member->set_address(listening->address);
    member->set_incarnation(500 + rank);
  }
  const auto map = BlockMap::Create({TensorSize{"w", 4096}}, 2);
  ASSERT_OK(map.status());
  const auto exchange = std::make_shared<NormExchange>(
      assignment, *map, absl::Span<const TableMap>(), 1, "job j on ps:1",
      kTimeout);
  auto owned = std::make_shared<absl::Status>();
  exchange->Exchange({.clock = 0},
                     std::vector<double>(map->shard_blocks(1).size(), 1),
                     [owned](NormExchange::Sums norm) {
                       // Whoever does not wait for it is gone by then.
                       absl::SleepFor(absl::Milliseconds(200));
                       *owned = norm.status();
                     });
  ASSERT_TRUE(Eventually(kTimeout, [&] { return folder.calls() == 1; }));
  exchange->Close(absl::CancelledError("over"));
  ASSERT_EQ(owned.use_count(), 1);
  EXPECT_EQ(owned->code(), absl::StatusCode::kCancelled);
  // Later ones hear it at once.
  exchange->Exchange({.clock = 1}, {}, [owned](NormExchange::Sums norm) {
    *owned = norm.status();
  });
  ASSERT_EQ(owned.use_count(), 1);
  EXPECT_EQ(*owned, absl::CancelledError("over"));
  listening->server->Shutdown();
}

}  // namespace
}  // namespace syncline
