// Goal: a gRPC message that is too large is refused as that, with both sizes,
// and the daemon that got it goes on. Method: real daemons, a client without a
// limit of its own, and then a job.

#include <string>

#include "absl/time/clock.h"
#include "common/rpc/grpc_channel.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.grpc.pb.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kTooLarge = kMessageBytesMax + (1 << 20);

std::shared_ptr<grpc::Channel> ChannelWithoutLimit(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

void ExpectTooLarge(const grpc::Status& status) {
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("larger than max"), HasSubstr("4194304")));
}

std::unique_ptr<grpc::ClientContext> Soon() {
  return MakeContext(absl::Now() + absl::Seconds(30));
}

class OversizedMessageTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(cluster_.Start()); }

  // Same processes as before, and they work.
  void TearDown() override {
    EXPECT_OK(cluster_.WaitForFreeMembers(2, absl::Seconds(30)));
    EXPECT_OK(cluster_.Train(
        WriteJob(cluster_.dir(), DigitsJob(), MlpModel(784, 32, 10))));
  }

  TestCluster cluster_{{.ps = 1, .workers = 1}};
};

TEST_F(OversizedMessageTest, ToTheScheduler) {
  const auto channel = ChannelWithoutLimit(cluster_.scheduler_address());
  const auto jobs = Jobs::NewStub(channel);
  GetRequest get;
  get.set_job_id(std::string(kTooLarge, 'j'));
  JobStatus job;
  ExpectTooLarge(jobs->Get(Soon().get(), get, &job));

  const auto submit_context = Soon();
  SubmitResponse response;
  const auto submit = jobs->Submit(submit_context.get(), &response);
  SubmitRequest part;
  part.mutable_model()->set_data(std::string(kTooLarge, 'm'));
  submit->Write(part);
  ExpectTooLarge(submit->Finish());

  const auto session_context = Soon();
  const auto session =
      Daemons::NewStub(channel)->Session(session_context.get());
  DaemonMessage hello;
  hello.mutable_register_()->set_job_id(std::string(kTooLarge, 'j'));
  session->Write(hello);
  ExpectTooLarge(session->Finish());
}

TEST_F(OversizedMessageTest, ToAPs) {
  ASSERT_OK_AND_ASSIGN(const ClusterStatus cluster, cluster_.Members());
  std::string address;
  for (const auto& entry : cluster.members()) {
    if (entry.member().task().type() == PS) address = entry.member().address();
  }
  const auto ps = ParameterServer::NewStub(ChannelWithoutLimit(address));
  BeginCutRequest begin;
  begin.mutable_clocks()->Resize(kTooLarge, 1);  // a byte each
  BeginCutResponse begun;
  ExpectTooLarge(ps->BeginCut(Soon().get(), begin, &begun));
  PushRequest push;
  push.GetReflection()->MutableUnknownFields(&push)->AddLengthDelimited(
      1000, std::string(kTooLarge, 'p'));
  PushResponse pushed;
  ExpectTooLarge(ps->Push(Soon().get(), push, &pushed));
}

}  // namespace
}  // namespace syncline
