// Part of ps_server_test. Goal: a change of the routing that fails leaves alone
// what is not its own. Method: a ps whose job goes to a later routing, while
// the test does to the job what another member would.

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/shard_exporter.h"
#include "tests/component/ps_server_fixture.h"
#include "tests/testing/fakes/shard_states.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kCut = 5;

// The job has two shards by it, on its one ps.
JobAssignment LaterRouting(const PsFixture& fixture) {
  JobAssignment later = fixture.assignment();
  later.mutable_routing()->set_version(2);
  later.mutable_routing()->clear_shard_ps();
  later.mutable_routing()->add_shard_ps(0);
  later.mutable_routing()->add_shard_ps(0);
  return later;
}

TEST(PsServerRoutingTest, AChangeThatFailsClosesNoLaterOpeningOfTheJob) {
  PsFixture fixture({});
  ps::PsServer& server = fixture.server(0);
  PlainWorker first(&fixture, 0);
  ASSERT_OK(first.Init(Constant(fixture, 1)));
  ASSERT_OK(first.BeginCut(kCut, {0}));
  const auto opened_again = [&](uint32_t) -> absl::StatusOr<ps::ShardStart> {
    server.CloseJob(fixture.assignment().job_id(), "stopped");
    EXPECT_OK(server.OpenJob(fixture.assignment(), 0));
    return absl::CancelledError("no state any more");
  };
  EXPECT_EQ(
      server
          .ChangeRouting(LaterRouting(fixture), 0, kCut, opened_again, nullptr)
          .code(),
      absl::StatusCode::kCancelled);
  PlainWorker chief(&fixture, 0);
  const Flat values = RandomFlat(fixture, 1);
  ASSERT_OK(chief.Init(values));
  ASSERT_OK_AND_ASSIGN(const Flat pulled, chief.Pull(0));
  EXPECT_EQ(pulled, values);
}

// A push after the hold is in no state that was exported under it.
TEST(PsServerRoutingTest, ARoutingIsLeftAtACutThatIsStillHeld) {
  PsFixture fixture({});
  ps::PsServer& server = fixture.server(0);
  const std::string& job_id = fixture.assignment().job_id();
  PlainWorker chief(&fixture, 0);
  ASSERT_OK(chief.Init(Constant(fixture, 5)));
  ASSERT_OK(chief.BeginCut(kCut, {0}));
  MemoryStateSink state;
  ASSERT_OK(server.ExportState(job_id, 0, kCut, {}, &state));
  ASSERT_OK(chief.EndCut(kCut));
  ASSERT_OK_AND_ASSIGN(const Flat trained,
                       chief.PushPull(0, Constant(fixture, 1), 1));
  const absl::Status refused = server.ChangeRouting(
      LaterRouting(fixture), 0, kCut, StartsOf({state.bytes}), nullptr);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused), HasSubstr("cut 5 has ended"));
  ASSERT_OK_AND_ASSIGN(const Flat values, chief.Pull(1));
  EXPECT_EQ(values, trained) << "nothing has changed";

  ASSERT_OK(chief.BeginCut(kCut + 1, {1}));
  state.bytes.clear();
  ASSERT_OK(server.ExportState(job_id, 0, kCut + 1, {}, &state));
  ASSERT_OK(server.ChangeRouting(LaterRouting(fixture), 0, kCut + 1,
                                 StartsOf({state.bytes}), nullptr));
  EXPECT_EQ(chief.Pull(1).status().code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace syncline
