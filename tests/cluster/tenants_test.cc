// Goal: tenants of one cluster do not see, read, stop, or start from what
// belongs to another one, and its ps let nobody in without the job's secret.
// Method: the real executables on loopback, synctl with the tokens of two
// tenants, and calls to a ps by generated code.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.grpc.pb.h"
#include "proto/scheduler.pb.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(120);

std::string Lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&lines, i % 7, ",", i % 5, ",", i % 3, ",", i % 2, "\n");
  }
  return lines;
}

class TenantsTest : public testing::Test {
 protected:
  void SetUp() override {
    data_.Write("tenants/acme/train.csv", Lines(64));
    data_.Write("tenants/zeta/own.csv", Lines(64));
    data_.Write("common.csv", Lines(64));
    acme_ = Make("alice", "acme");
    zeta_ = Make("zoe", "zeta");
    const std::string quotas =
        cluster_.dir().Write("quotas", "acme workers=1 queued=1\n");
    ASSERT_OK(cluster_.StartDaemon(
        "scheduler", {"--token-file=" + file_, "--quota-file=" + quotas}));
    ASSERT_OK(cluster_.StartDaemon(
        "ps-0", {"--checkpoint-dir=" + cluster_.dir().path()}));
    ASSERT_OK(cluster_.StartDaemon("chief-0"));
    ASSERT_TRUE(Eventually(kPatience, [&] {
      const auto members = Synctl({"cluster"}, acme_);
      return members.ok() && absl::StrContains(members->out, "ps:0") &&
             absl::StrContains(members->out, "chief:0");
    }));
  }

  absl::StatusOr<RunningProgram::Result> Synctl(
      const std::vector<std::string>& arguments,
      const std::optional<std::string>& token) {
    return cluster_.SynctlWithToken(arguments, token);
  }

  std::string Make(const std::string& name, const std::string& tenant) {
    const auto made = Synctl({"token", "create", name, "--role", "admin",
                              "--tenant", tenant, "--file", file_},
                             std::nullopt);
    EXPECT_OK(made);
    EXPECT_EQ(made->exit.code, 0) << made->err;
    return std::string(absl::StripAsciiWhitespace(made->out));
  }

  std::string CsvJob(const std::string& path) {
    JobSpec job = DigitsJob();
    job.mutable_data()->mutable_train()->mutable_csv()->set_path(path);
    job.mutable_data()->mutable_feeds(0)->set_field("0:3");
    job.mutable_data()->mutable_label()->set_field("3");
    return WriteJob(cluster_.dir(), job, MlpModel(3, 4, 2));
  }

  // Trains as the bearer of `token` until the end.
  RunningProgram::Result Train(const std::string& job,
                               const std::string& token) {
    const auto result = Synctl({"submit", job, "--watch"}, token);
    EXPECT_OK(result);
    return *result;
  }

  const TempDir data_;
  TestCluster cluster_{
      TestCluster::Options{.ps = 0, .workers = 0, .data_root = data_.path()}};
  const std::string file_ = cluster_.dir().File("tokens");
  std::string acme_;
  std::string zeta_;
};

TEST_F(TenantsTest, AnothersJobIsNotThere) {
  JobSpec job = DigitsJob();
  job.mutable_checkpoint()->set_every_clocks(8);
  const std::string file = WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10));
  const auto trained = Train(file, acme_);
  ASSERT_EQ(trained.exit.code, 0) << trained.err;

  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{
           {"get", "j-0001"},
           {"watch", "j-0001"},
           {"cancel", "j-0001"},
           {"why", "j-0001"},
           {"download", "j-0001", "--to", cluster_.dir().File("stolen")},
           {"resume", "j-0001"},
           {"submit", file, "--from", "j-0001"}}) {
    ASSERT_OK_AND_ASSIGN(const auto refused, Synctl(command, zeta_));
    EXPECT_NE(refused.exit.code, 0) << command[0];
    EXPECT_THAT(refused.err, HasSubstr("no job \"j-0001\"")) << command[0];
  }
  EXPECT_FALSE(FileSize(cluster_.dir().File("stolen/trained.onnx")).ok());
  ASSERT_OK_AND_ASSIGN(const auto listed, Synctl({"list"}, zeta_));
  EXPECT_THAT(listed.out, Not(HasSubstr("j-0001")));

  // By the folder of the checkpoint, which it might guess.
  JobSpec from = job;
  from.set_name("thief");
  from.mutable_start()->set_checkpoint(
      cluster_.dir().File("j-0001/00000000000000000008"));
  const std::string thief =
      WriteJob(cluster_.dir(), from, MlpModel(784, 32, 10));
  ASSERT_OK_AND_ASSIGN(const auto stolen, Synctl({"submit", thief}, zeta_));
  EXPECT_NE(stolen.exit.code, 0);

  // The tenant itself.
  ASSERT_OK_AND_ASSIGN(const auto own, Synctl({"download", "j-0001", "--to",
                                               cluster_.dir().File("own")},
                                              acme_));
  EXPECT_EQ(own.exit.code, 0) << own.err;
  ASSERT_OK_AND_ASSIGN(
      const auto again,
      Synctl({"submit", file, "--from", "j-0001", "--weights-only", "--watch"},
             acme_));
  EXPECT_EQ(again.exit.code, 0) << again.err;
}

TEST_F(TenantsTest, AnothersDataAreNotRead) {
  const auto own = Train(CsvJob("train.csv"), acme_);
  EXPECT_EQ(own.exit.code, 0) << own.err;
  for (const std::string& path :
       {std::string("../acme/train.csv"), data_.File("tenants/acme/train.csv"),
        std::string("../../common.csv"), data_.File("common.csv"),
        std::string("../*/train.csv")}) {
    const auto refused = Train(CsvJob(path), zeta_);
    EXPECT_EQ(refused.exit.code, 1) << path;
    EXPECT_THAT(refused.err, HasSubstr("outside the folder of tenant zeta"))
        << path;
  }
  // Its own folder has no such file.
  const auto missing = Train(CsvJob("train.csv"), zeta_);
  EXPECT_EQ(missing.exit.code, 1);
  EXPECT_THAT(missing.err, HasSubstr("train.csv"));
}

TEST_F(TenantsTest, AStrangerAttachesToNoPs) {
  JobSpec job = EndlessJob();
  const std::string file = WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10));
  ASSERT_OK_AND_ASSIGN(const auto submitted, Synctl({"submit", file}, acme_));
  ASSERT_EQ(submitted.exit.code, 0) << submitted.err;
  ASSERT_TRUE(Eventually(kPatience, [&] {
    const auto got = Synctl({"get", "j-0001"}, acme_);
    return got.ok() && absl::StrContains(got->out, "running");
  }));
  ASSERT_OK_AND_ASSIGN(const auto members,
                       Synctl({"cluster", "--output", "json"}, zeta_));
  EXPECT_THAT(members.out, Not(HasSubstr("j-0001")));
  EXPECT_THAT(members.out, HasSubstr("(in use)"));

  // The address is no secret.
  ClusterStatus cluster;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(members.out, &cluster).ok());
  std::string address;
  for (const ClusterStatus::Entry& entry : cluster.members()) {
    if (entry.member().task().type() == PS) address = entry.member().address();
  }
  ASSERT_NE(address, "");
  const auto stub = ParameterServer::NewStub(MakeChannel(address));
  Caller caller;
  caller.set_job_id("j-0001");
  caller.set_attempt(1);
  caller.set_routing_version(1);
  caller.set_job_secret(std::string(16, 'x'));
  const auto context = [] { return MakeContext(absl::Now() + kPatience); };
  OfferMemoryRequest offer;
  *offer.mutable_caller() = caller;
  OfferMemoryResponse offered;
  EXPECT_EQ(FromGrpcStatus(stub->OfferMemory(context().get(), offer, &offered))
                .code(),
            absl::StatusCode::kPermissionDenied);
  AttachMemoryRequest attach;
  *attach.mutable_caller() = caller;
  AttachMemoryResponse attached;
  EXPECT_EQ(
      FromGrpcStatus(stub->AttachMemory(context().get(), attach, &attached))
          .code(),
      absl::StatusCode::kPermissionDenied);
  PullRequest pull;
  *pull.mutable_header()->mutable_caller() = caller;
  PullResponse pulled;
  EXPECT_EQ(FromGrpcStatus(stub->Pull(context().get(), pull, &pulled)).code(),
            absl::StatusCode::kPermissionDenied);
  ASSERT_OK_AND_ASSIGN(const auto cancelled,
                       Synctl({"cancel", "j-0001"}, acme_));
  EXPECT_EQ(cancelled.exit.code, 0) << cancelled.err;
}

TEST_F(TenantsTest, AQuotaIsWaitedForByItsTenantAlone) {
  ASSERT_OK(cluster_.StartDaemon("ps-1"));
  ASSERT_OK(cluster_.StartDaemon("worker-0"));
  JobSpec job = EndlessJob();
  const std::string file = WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10));
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const auto submitted, Synctl({"submit", file}, acme_));
    ASSERT_EQ(submitted.exit.code, 0) << submitted.err;
  }
  ASSERT_OK_AND_ASSIGN(const auto too_many, Synctl({"submit", file}, acme_));
  EXPECT_NE(too_many.exit.code, 0);
  EXPECT_THAT(too_many.err, HasSubstr("the quota of tenant acme is 1 queued"));
  job.set_name("large");
  job.mutable_resources()->set_workers(2);
  const std::string large =
      WriteJob(cluster_.dir(), job, MlpModel(784, 32, 10));
  ASSERT_OK_AND_ASSIGN(const auto never, Synctl({"submit", large}, acme_));
  EXPECT_EQ(never.exit.code, 1);
  EXPECT_THAT(never.err, HasSubstr("resources.workers: the job needs 2"));

  // Another tenant's job passes it. (j-0003 and j-0004 were refused.)
  ASSERT_OK_AND_ASSIGN(const auto other,
                       Synctl({"submit", file, "--output", "json"}, zeta_));
  ASSERT_EQ(other.exit.code, 0) << other.err;
  EXPECT_TRUE(Eventually(kPatience, [&] {
    const auto listed = Synctl({"list"}, zeta_);
    return listed.ok() && absl::StrContains(listed->out, "running");
  }));
  ASSERT_OK_AND_ASSIGN(const auto why, Synctl({"why", "j-0002"}, acme_));
  EXPECT_THAT(why.out, HasSubstr("the quota of tenant acme, 1 worker: it has 1 "
                                 "worker in use"));
}

TEST_F(TenantsTest, AWatchEndsWithItsToken) {
  const std::string file =
      WriteJob(cluster_.dir(), EndlessJob(), MlpModel(784, 32, 10));
  ASSERT_OK_AND_ASSIGN(const auto submitted, Synctl({"submit", file}, acme_));
  ASSERT_EQ(submitted.exit.code, 0) << submitted.err;
  const std::string token = Make("guest", "acme");
  ASSERT_OK_AND_ASSIGN(
      const auto watch,
      RunningProgram::Start(
          cluster_.dir().path(), {BinaryDir() + "/synctl", "watch", "j-0001"},
          {{"SYNCLINE_SCHEDULER", cluster_.scheduler_address()},
           {"SYNCLINE_TOKEN", token}}));
  ASSERT_TRUE(Eventually(kPatience, [&] { return !watch->out().empty(); }));
  ASSERT_OK_AND_ASSIGN(
      const auto revoked,
      Synctl({"token", "revoke", "guest", "--file", file_}, std::nullopt));
  ASSERT_EQ(revoked.exit.code, 0) << revoked.err;
  ASSERT_OK_AND_ASSIGN(const auto ended, watch->Finish(kPatience));
  EXPECT_NE(ended.exit.code, 0);
  EXPECT_THAT(ended.err, HasSubstr("revoked"));
}

}  // namespace
}  // namespace syncline
