// Part of ps_server_test. Goal: a change of the routing that fails leaves alone
// what is not its own. Method: a ps whose job goes to a later routing, while
// the test does to the job what another member would.

#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/component/ps_server_fixture.h"
#include "tests/testing/fakes/shard_states.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

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
  const auto opened_again = [&](uint32_t) -> absl::StatusOr<ps::ShardStart> {
    server.CloseJob(fixture.assignment().job_id(), "stopped");
    EXPECT_OK(server.OpenJob(fixture.assignment(), 0));
    return absl::CancelledError("no state any more");
  };
  EXPECT_EQ(
      server.ChangeRouting(LaterRouting(fixture), 0, opened_again, nullptr)
          .code(),
      absl::StatusCode::kCancelled);
  PlainWorker chief(&fixture, 0);
  const Flat values = RandomFlat(fixture, 1);
  ASSERT_OK(chief.Init(values));
  ASSERT_OK_AND_ASSIGN(const Flat pulled, chief.Pull(0));
  EXPECT_EQ(pulled, values);
}

}  // namespace
}  // namespace syncline
