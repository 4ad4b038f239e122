#include "tests/bench/serve.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/system/malloc_policy.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/service/ps_server.h"
#include "tests/bench/map_service.h"
#include "tests/bench/tls_files.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/eventually.h"

namespace syncline {
namespace {

constexpr char kServePs[] = "serve-ps";
constexpr char kServeEcho[] = "serve-echo";
constexpr char kServeMap[] = "serve-map";

// The least that gRPC can do with a message: nothing.
class EchoService final
    : public ParameterServer::WithRawCallbackMethod_PushPull<
          ParameterServer::Service> {
 public:
  grpc::ServerUnaryReactor* PushPull(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override {
    *response = *request;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

int ListenForever(grpc::ServerBuilder* builder) {
  const auto security = TlsBenchFiles::OfServed();
  if (!security.ok()) {
    std::fprintf(stderr, "%s\n", security.status().ToString().c_str());
    return 1;
  }
  const absl::StatusOr<ListeningServer> listening =
      StartServer(builder, "127.0.0.1:0", *security);
  if (!listening.ok()) {
    std::fprintf(stderr, "%s\n", listening.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", listening->address.c_str());
  std::fflush(stdout);
  listening->server->Wait();
  return 0;
}

int ServeEcho() {
  EchoService service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  return ListenForever(&builder);
}

int ServeMap(uint32_t dim) {
  KeepMessageMemory(/*arenas=*/1);  // as syncline-ps does
  const std::unique_ptr<grpc::Service> service = MakeMapService(dim);
  grpc::ServerBuilder builder;
  builder.RegisterService(service.get());
  return ListenForever(&builder);
}

JobAssignment BenchJob(const ServedPeer::Tensors& tensors,
                       OptimizerSpec::Kind optimizer) {
  JobSpec spec = PlainSgdJob();
  spec.mutable_optimizer()->set_kind(optimizer);
  spec.set_wire_type(tensors.wire_type);
  AssignmentBuilder job(spec, "bench");
  for (uint32_t i = 0; i < tensors.count; ++i) {
    job.Parameter(absl::StrCat("w", i), {tensors.elements});
  }
  return job.Workers(1).Ps(1).Build();
}

int ServePs(const ServedPeer::Tensors& tensors, OptimizerSpec::Kind optimizer) {
  KeepMessageMemory(/*arenas=*/1);  // as syncline-ps does
  absl::StatusOr<std::unique_ptr<ps::PsServer>> server =
      ps::PsServer::Create({});
  if (!server.ok()) return 1;
  const absl::Status opened =
      (*server)->OpenJob(BenchJob(tensors, optimizer), 0);
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.ToString().c_str());
    return 1;
  }
  grpc::ServerBuilder builder;
  (*server)->RegisterService(&builder);
  return ListenForever(&builder);
}

}  // namespace

bool IsServeCommand(int argc, char** argv) {
  return argc > 1 && (argv[1] == std::string(kServePs) ||
                      argv[1] == std::string(kServeEcho) ||
                      argv[1] == std::string(kServeMap));
}

int Serve(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argv[1] == std::string(kServeEcho)) return ServeEcho();
  uint32_t dim = 0;
  if (argv[1] == std::string(kServeMap) && argc == 3 &&
      absl::SimpleAtoi(argv[2], &dim)) {
    return ServeMap(dim);
  }
  ServedPeer::Tensors tensors;
  OptimizerSpec::Kind optimizer = OptimizerSpec::KIND_UNSPECIFIED;
  if (argc != 6 || !absl::SimpleAtoi(argv[2], &tensors.count) ||
      !absl::SimpleAtoi(argv[3], &tensors.elements) ||
      !OptimizerSpec::Kind_Parse(argv[4], &optimizer) ||
      !WireType_Parse(argv[5], &tensors.wire_type)) {
    std::fprintf(stderr, "usage: serve-ps COUNT ELEMENTS OPTIMIZER\n");
    return 2;
  }
  return ServePs(tensors, optimizer);
}

absl::StatusOr<std::unique_ptr<ServedPeer>> ServedPeer::Ps(
    const Tensors& tensors, OptimizerSpec::Kind optimizer) {
  return Start(
      {kServePs, absl::StrCat(tensors.count), absl::StrCat(tensors.elements),
       OptimizerSpec::Kind_Name(optimizer), WireType_Name(tensors.wire_type)});
}

absl::StatusOr<std::unique_ptr<ServedPeer>> ServedPeer::Echo() {
  return Start({kServeEcho});
}

absl::StatusOr<std::unique_ptr<ServedPeer>> ServedPeer::Map(uint32_t dim) {
  return Start({kServeMap, absl::StrCat(dim)});
}

absl::StatusOr<std::unique_ptr<ServedPeer>> ServedPeer::Start(
    std::vector<std::string> arguments) {
  auto peer = std::make_unique<ServedPeer>();
  ChildProcess::Options options;
  options.argv.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.output_file = peer->dir_.File("output");
  options.error_file = peer->dir_.File("error");
  SYNCLINE_ASSIGN_OR_RETURN(peer->process_, ChildProcess::Spawn(options));
  const bool listens = Eventually(absl::Seconds(30), [&] {
    std::ifstream in(options.output_file);
    return static_cast<bool>(std::getline(in, peer->address_)) && !in.eof();
  });
  if (listens) return peer;
  std::ifstream in(options.error_file);
  std::string line;
  std::getline(in, line);
  return absl::UnavailableError(
      absl::StrCat(arguments[0], " does not listen: ", line));
}

}  // namespace syncline
