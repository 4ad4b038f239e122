// Goal: a port has one owner, errors say why, calls end at their deadline, and
// long errors arrive whole. Method: real servers on free ports of loopback.

#include "common/rpc/grpc_channel.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/host_port.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

class JobsThatRefuse final : public Jobs::CallbackService {
 public:
  explicit JobsThatRefuse(std::string message) : message_(std::move(message)) {}
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const GetRequest*, JobStatus*) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(absl::NotFoundError(message_)));
    return reactor;
  }

 private:
  const std::string message_;
};

absl::Status CallGet(const std::string& address, absl::Time deadline) {
  const auto stub = Jobs::NewStub(MakeChannel(address));
  const auto context = MakeContext(deadline);
  JobStatus response;
  return FromGrpcStatus(stub->Get(context.get(), GetRequest(), &response));
}

TEST(GrpcChannelTest, AnyFreePortIsNamedAndAnswers) {
  JobsThatRefuse service("no such job");
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const auto server = StartServer(&builder, "127.0.0.1:0");
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE(ParseHostPort(server->address).ok()) << server->address;
  EXPECT_EQ(CallGet(server->address, absl::Now() + absl::Seconds(30)),
            absl::NotFoundError("no such job"));
}

TEST(GrpcChannelTest, ASecondServerOnThePortIsRefusedWithTheReason) {
  JobsThatRefuse service("x");
  grpc::ServerBuilder first_builder;
  first_builder.RegisterService(&service);
  const auto first = StartServer(&first_builder, "127.0.0.1:0");
  ASSERT_TRUE(first.ok());
  grpc::ServerBuilder second_builder;
  second_builder.RegisterService(&service);
  const auto second = StartServer(&second_builder, first->address);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("cannot listen on ", first->address,
                                     ": Address already in use")));
}

TEST(GrpcChannelTest, AddressesThatAreNotOursOrNoneAreRefused) {
  JobsThatRefuse service("x");
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  EXPECT_EQ(StartServer(&builder, "nonsense").status().code(),
            absl::StatusCode::kInvalidArgument);
  grpc::ServerBuilder other;
  other.RegisterService(&service);
  const auto not_local = StartServer(&other, "192.0.2.1:0");
  EXPECT_EQ(not_local.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(not_local.status().message()),
              HasSubstr("Cannot assign requested address"));
}

TEST(GrpcChannelTest, LongErrorsArriveWhole) {
  // Beyond gRPC's default of 8 KiB for metadata, and percent-encoded on top.
  std::string problems;
  while (problems.size() < 15000) absl::StrAppend(&problems, "field: bad\n");
  JobsThatRefuse service(problems);
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const auto server = StartServer(&builder, "127.0.0.1:0");
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(CallGet(server->address, absl::Now() + absl::Seconds(30)),
            absl::NotFoundError(problems));
}

// A message of zeros is a thousandth of its size on the way. One that was
// inflated would be RESOURCE_EXHAUSTED, larger than any may be.
TEST(GrpcChannelTest, ACompressedMessageIsRefusedUnread) {
  JobsThatRefuse service("no such job");
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const auto server = StartServer(&builder, "127.0.0.1:0");
  ASSERT_TRUE(server.ok()) << server.status();
  // A channel of MakeChannel sends no message that large.
  grpc::ChannelArguments args;
  args.SetMaxSendMessageSize(-1);
  const auto stub = Jobs::NewStub(grpc::CreateCustomChannel(
      server->address, grpc::InsecureChannelCredentials(), args));
  GetRequest request;
  request.set_job_id(std::string(64 << 20, '\0'));
  for (const grpc_compression_algorithm algorithm :
       {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    const auto context = MakeContext(absl::Now() + absl::Seconds(60));
    context->set_compression_algorithm(algorithm);
    JobStatus response;
    const grpc::Status refused = stub->Get(context.get(), request, &response);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNIMPLEMENTED)
        << refused.error_message();
  }
  EXPECT_EQ(CallGet(server->address, absl::Now() + absl::Seconds(30)),
            absl::NotFoundError("no such job"));
}

TEST(GrpcChannelTest, ACallWithoutServerEndsByItsDeadline) {
  const absl::Status status =
      CallGet("127.0.0.1:1", absl::Now() + absl::Seconds(20));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

}  // namespace
}  // namespace syncline
