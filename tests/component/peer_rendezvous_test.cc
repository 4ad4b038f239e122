// Ranks that find each other by gRPC: a group forms, and what does not belong
// to it is refused by name.

#include "worker/collectives/peer_rendezvous.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/rpc/grpc_channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/collectives/collectives.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;

constexpr char kSecret[] = "sixteen secret b";

absl::Status GoOn() { return absl::OkStatus(); }

// Gives back to each rank what FormGroup says.
class PeerRendezvousTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kRanks = 3;

  PeerRendezvousTest() {
    for (uint32_t r = 0; r < kRanks; ++r) {
      services_.push_back(std::make_unique<PeersService>());
      grpc::ServerBuilder builder;
      builder.RegisterService(services_[r].get());
      auto server = StartServer(&builder, "127.0.0.1:0");
      EXPECT_TRUE(server.ok()) << server.status();
      servers_.push_back(*std::move(server));
    }
    PeerGroupPlan plan;
    plan.pass = {3, kSecret};
    plan.meeting.group.job = "j-0001";
    plan.meeting.group.epoch = 5;
    for (uint32_t r = 0; r < kRanks; ++r) {
      plan.meeting.group.peers.push_back(
          {absl::StrCat("worker:", r), servers_[r].address});
      plan.incarnations.push_back(100 + r);
    }
    for (uint32_t r = 0; r < kRanks; ++r) {
      plan.meeting.group.rank = r;
      plans_.push_back(plan);
    }
  }

  void Form(absl::Duration patience) {
    const absl::Time deadline = MonotonicNow() + patience;
    std::vector<std::thread> threads;
    transports_.resize(kRanks);
    statuses_.resize(kRanks);
    for (uint32_t r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        auto formed = FormGroup(plans_[r], services_[r].get(), deadline, GoOn);
        statuses_[r] = formed.status();
        if (formed.ok()) transports_[r] = *std::move(formed);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<std::unique_ptr<PeersService>> services_;
  std::vector<ListeningServer> servers_;
  std::vector<PeerGroupPlan> plans_;
  std::vector<std::unique_ptr<PeerTransport>> transports_;
  std::vector<absl::Status> statuses_;
};

TEST_F(PeerRendezvousTest, AGroupForms) {
  for (const bool shared : {true, false}) {
    for (PeerGroupPlan& plan : plans_) {
      plan.meeting.shared_memory = shared;
      ++plan.meeting.group.epoch;
    }
    Form(absl::Seconds(60));
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < kRanks; ++r) {
      ASSERT_TRUE(statuses_[r].ok()) << statuses_[r];
      threads.emplace_back([&, r] {
        Collectives collectives(transports_[r].get(), {});
        std::vector<float> values(1000, static_cast<float>(r + 1));
        const absl::Status status = collectives.Run(
            {CollectiveKind::kAllReduce, 0, 0, absl::MakeSpan(values),
             MonotonicNow() + absl::Seconds(60)});
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_EQ(values, std::vector<float>(1000, 6.0f));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(PeerRendezvousTest, AnotherSecretIsRefused) {
  plans_[0].pass.secret = "another secret b";
  Form(absl::Seconds(2));
  EXPECT_EQ(statuses_[0].code(), absl::StatusCode::kPermissionDenied);
  // Those who wait for it name it.
  EXPECT_EQ(statuses_[1].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(statuses_[1].message()),
              HasSubstr("rank 0 (worker:0 at "));
  EXPECT_THAT(std::string(statuses_[0].message()), Not(HasSubstr(kSecret)));
}

TEST_F(PeerRendezvousTest, AnotherAttemptIsRefused) {
  plans_[0].pass.attempt = 2;
  Form(absl::Seconds(2));
  EXPECT_EQ(statuses_[0].code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(PeerRendezvousTest, AnotherIncarnationIsRefused) {
  plans_[0].incarnations[1] = 7;
  Form(absl::Seconds(2));
  EXPECT_EQ(statuses_[0].code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(statuses_[0].message()),
              HasSubstr("another incarnation of rank 1"));
}

TEST_F(PeerRendezvousTest, AnEarlierEpochIsAborted) {
  plans_[0].meeting.group.epoch = 4;
  Form(absl::Seconds(2));
  EXPECT_EQ(statuses_[0].code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(statuses_[0].message()),
              HasSubstr("forms group epoch 5, not 4"));
}

TEST_F(PeerRendezvousTest, ALaterEpochWaitsForTheOthers) {
  plans_[0].meeting.group.epoch = 6;
  Form(absl::Seconds(2));
  EXPECT_EQ(statuses_[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(statuses_[0].message()),
              HasSubstr("forms group epoch 5, not 6"));
}

TEST_F(PeerRendezvousTest, AGroupOfOtherRanksIsRefused) {
  plans_[0].meeting.group.peers.pop_back();
  plans_[0].incarnations.pop_back();
  Form(absl::Seconds(2));
  EXPECT_EQ(statuses_[0].code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(PeerRendezvousTest, ARankThatDoesNotComeIsNamed) {
  const auto formed = FormGroup(plans_[0], services_[0].get(),
                                MonotonicNow() + absl::Milliseconds(200), GoOn);
  EXPECT_EQ(formed.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(formed.status().message()),
              HasSubstr("group epoch 5 of job j-0001: rank 1 (worker:1 at "));
}

TEST_F(PeerRendezvousTest, AJobThatEndsWaitsForNobody) {
  const auto formed = FormGroup(
      plans_[0], services_[0].get(), MonotonicNow() + absl::Seconds(60),
      [] { return absl::CancelledError("the job has ended"); });
  EXPECT_EQ(formed.status().message(), "the job has ended");
}

}  // namespace
}  // namespace syncline::worker
