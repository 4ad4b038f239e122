// Goal: each method of each service has a guard: the secret of a job's attempt,
// the secret of a stream, a process' incarnation, a person's token, or at least
// the role in the caller's certificate. Method: a table of all methods, which
// must be those of the services' descriptors; the requests must have the fields
// that the guard needs; and a real ps is called with a wrong secret by each of
// its methods.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/security/peer_identity.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "gtest/gtest.h"
#include "proto/collective.pb.h"
#include "proto/quorum.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/state_transfer.pb.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

enum class Guard {
  // The request shows JobAssignment.attempt and job_secret.
  kJobSecret,
  // The first message registers; with TLS as a task of the certificate.
  kRegistration,
  // The request names the incarnation of the process that is called.
  kIncarnation,
  // Of people: a token and its role (user_tokens_test), and the tenant of the
  // job (scheduler_tenants_test).
  kToken,
  // Nothing but the role: it tells numbers of all jobs, and no values.
  kRole,
};

struct Row {
  const char* method;
  Guard guard;
  const char* roles;  // who may call it, by certificate
};

constexpr char kClient[] = "client";
constexpr char kScheduler[] = "scheduler";
constexpr char kPs[] = "ps";
constexpr char kTrainers[] = "worker chief evaluator";
constexpr char kMembers[] = "ps worker chief evaluator";

constexpr Row kRows[] = {
    {"Jobs/Submit", Guard::kToken, kClient},
    {"Jobs/Watch", Guard::kToken, kClient},
    {"Jobs/Get", Guard::kToken, kClient},
    {"Jobs/List", Guard::kToken, kClient},
    {"Jobs/Cancel", Guard::kToken, kClient},
    {"Jobs/Download", Guard::kToken, kClient},
    {"Jobs/GetCluster", Guard::kToken, kClient},
    {"Jobs/GetTables", Guard::kToken, kClient},
    {"Jobs/Profile", Guard::kToken, kClient},
    {"Jobs/ChangeRegime", Guard::kToken, kClient},
    {"Jobs/Events", Guard::kToken, kClient},
    {"Jobs/TakeCheckpoint", Guard::kToken, kClient},
    {"Jobs/Scale", Guard::kToken, kClient},
    {"Jobs/SetMemberUse", Guard::kToken, kClient},
    {"Jobs/Logs", Guard::kToken, kClient},
    {"Jobs/BackupState", Guard::kToken, kClient},
    {"Identity/Confirm", Guard::kIncarnation, kScheduler},
    {"MemberLogs/Read", Guard::kIncarnation, kScheduler},
    {"Daemons/Session", Guard::kRegistration, kMembers},
    {"Daemons/FetchArtifact", Guard::kJobSecret, kMembers},
    {"Daemons/UploadArtifact", Guard::kJobSecret, kMembers},
    {"ParameterServer/Init", Guard::kJobSecret, kMembers},
    {"ParameterServer/PushPull", Guard::kJobSecret, kMembers},
    {"ParameterServer/Push", Guard::kJobSecret, kMembers},
    {"ParameterServer/Pull", Guard::kJobSecret, kMembers},
    {"ParameterServer/BeginCut", Guard::kJobSecret, kMembers},
    {"ParameterServer/EndCut", Guard::kJobSecret, kMembers},
    {"ParameterServer/ReportActivity", Guard::kJobSecret, kMembers},
    {"ParameterServer/AwaitCheckpoint", Guard::kJobSecret, kMembers},
    {"ParameterServer/CommitCheckpoint", Guard::kJobSecret, kMembers},
    {"ParameterServer/FoldNorm", Guard::kJobSecret, kPs},
    {"Quorum/FixClock", Guard::kJobSecret, kPs},
    {"ParameterServer/FoldStatistics", Guard::kJobSecret, kMembers},
    {"ParameterServer/ScanTable", Guard::kJobSecret, kMembers},
    {"ParameterServer/OfferMemory", Guard::kJobSecret, kMembers},
    {"ParameterServer/AttachMemory", Guard::kJobSecret, kMembers},
    {"ParameterServer/GetRouting", Guard::kJobSecret, kMembers},
    {"ParameterServer/GetRegimes", Guard::kJobSecret, kMembers},
    {"ParameterServer/GetShardStatus", Guard::kRole, kMembers},
    {"StateTransfer/GetProposal", Guard::kJobSecret, kTrainers},
    {"StateTransfer/ReadHeader", Guard::kJobSecret, kTrainers},
    {"StateTransfer/ReadPieces", Guard::kJobSecret, kTrainers},
    {"StateTransfer/WritePieces", Guard::kJobSecret, kTrainers},
    {"StateTransfer/TakeBack", Guard::kJobSecret, kTrainers},
    {"Peers/Meet", Guard::kJobSecret, kTrainers},
};

std::vector<const ServiceDescriptor*> Services() {
  std::vector<const ServiceDescriptor*> services;
  for (const auto* file :
       {SubmitRequest::descriptor()->file(), PushHeader::descriptor()->file(),
        FixClockRequest::descriptor()->file(),
        MeetRequest::descriptor()->file(),
        TakeBackRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      services.push_back(file->service(i));
    }
  }
  return services;
}

const MethodDescriptor* Find(const Row& row) {
  const std::vector<std::string> names = absl::StrSplit(row.method, '/');
  for (const ServiceDescriptor* service : Services()) {
    if (service->name() == names[0]) return service->FindMethodByName(names[1]);
  }
  return nullptr;
}

// Calls `visit` with each message in `message`, itself included, that has the
// fields of a pass; makes the messages on the way.
void ForEachPass(Message* message, const std::function<void(Message*)>& visit) {
  const auto* type = message->GetDescriptor();
  if (type->FindFieldByName("job_secret") != nullptr &&
      type->FindFieldByName("attempt") != nullptr) {
    return visit(message);
  }
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const bool leads_to_one =
        field->name() == "caller" || field->name() == "header" ||
        field->name() == "begin" || field->name() == "push";
    if (!leads_to_one || field->is_repeated() ||
        field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    }
    ForEachPass(message->GetReflection()->MutableMessage(message, field),
                visit);
  }
}

std::unique_ptr<Message> MakeRequest(const MethodDescriptor& method) {
  return std::unique_ptr<Message>(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(method.input_type())
          ->New());
}

TEST(MethodGuardsTest, EachMethodIsInTheTableOnce) {
  std::multiset<std::string> listed;
  for (const Row& row : kRows) listed.insert(row.method);
  std::multiset<std::string> all;
  for (const ServiceDescriptor* service : Services()) {
    for (int i = 0; i < service->method_count(); ++i) {
      all.insert(
          absl::StrCat(service->name(), "/", service->method(i)->name()));
    }
  }
  EXPECT_EQ(listed, all) << "a new method needs a guard, and a row here";
}

TEST(MethodGuardsTest, EachMethodIsForTheRolesOfTheTable) {
  for (const Row& row : kRows) {
    const std::set<std::string> may =
        absl::StrSplit(row.roles, ' ', absl::SkipEmpty());
    for (const char* role :
         {"scheduler", "ps", "worker", "chief", "evaluator", "client"}) {
      const std::vector<PeerIdentity> caller = {*ParseIdentity("c", role)};
      EXPECT_EQ(CheckCall(absl::StrCat("/syncline.", row.method), caller).ok(),
                may.contains(role))
          << row.method << " by " << role;
    }
  }
}

TEST(MethodGuardsTest, RequestsHaveTheFieldsOfTheirGuards) {
  for (const Row& row : kRows) {
    const MethodDescriptor* method = Find(row);
    ASSERT_NE(method, nullptr) << row.method;
    int passes = 0;
    const auto request = MakeRequest(*method);
    ForEachPass(request.get(), [&](Message*) { ++passes; });
    // A person's DownloadRequest has the fields, and they do not count.
    if (row.guard != Guard::kToken) {
      EXPECT_EQ(passes > 0, row.guard == Guard::kJobSecret) << row.method;
    }
    if (row.guard == Guard::kIncarnation) {
      EXPECT_NE(method->input_type()->FindFieldByName("incarnation"), nullptr)
          << row.method;
    }
  }
}

// Everything else about these calls may be wrong, too: the secret is what is
// looked at first.
TEST(MethodGuardsTest, APsRefusesAWrongSecretInEachMethod) {
  PsFixture fixture({.workers = 1});
  PlainWorker chief(&fixture, 0);
  const Caller right = chief.caller();
  const auto channel = MakeChannel(fixture.address(0));
  for (const Row& row : kRows) {
    if (row.guard != Guard::kJobSecret ||
        (!absl::StartsWith(row.method, "ParameterServer/") &&
         !absl::StartsWith(row.method, "Quorum/") &&
         !absl::StartsWith(row.method, "StateTransfer/"))) {
      continue;
    }
    const auto request = MakeRequest(*Find(row));
    ForEachPass(request.get(), [&](Message* pass) {
      const auto set = [&](const char* name, auto setter, const auto& value) {
        const auto* field = pass->GetDescriptor()->FindFieldByName(name);
        if (field == nullptr) return;
        (pass->GetReflection()->*setter)(pass, field, value);
      };
      using Reflection = google::protobuf::Reflection;
      set("job_id", &Reflection::SetString, right.job_id());
      set("incarnation", &Reflection::SetUInt64, right.incarnation());
      set("attempt", &Reflection::SetUInt32, right.attempt());
      set("routing_version", &Reflection::SetUInt64, right.routing_version());
      set("job_secret", &Reflection::SetString, std::string(16, 'x'));
    });
    const std::string path = absl::StrCat("/syncline.", row.method);
    const grpc::internal::RpcMethod method(
        path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC, channel);
    const auto context = MakeContext(absl::Now() + absl::Seconds(60));
    const std::unique_ptr<Message> response(
        google::protobuf::MessageFactory::generated_factory()
            ->GetPrototype(Find(row)->output_type())
            ->New());
    const absl::Status status =
        FromGrpcStatus(grpc::internal::BlockingUnaryCall<Message, Message>(
            channel.get(), method, context.get(), *request, response.get()));
    // Not built, hence open to nobody.
    if (absl::IsUnimplemented(status)) {
      EXPECT_STREQ(row.method, "ParameterServer/GetRegimes");
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied)
        << row.method << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("secret of attempt 1"))
        << row.method;
  }
}

}  // namespace
}  // namespace syncline
