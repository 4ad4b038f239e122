#ifndef SYNCLINE_TESTS_TESTING_PS_NODE_H_
#define SYNCLINE_TESTS_TESTING_PS_NODE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "common/rpc/grpc_channel.h"
#include "grpcpp/server_builder.h"
#include "server/service/ps_server.h"

namespace syncline {

// A ps in this process, on a port of its own.
struct PsNode {
  std::unique_ptr<ps::PsServer> server;
  ListeningServer listening;

  const std::string& address() const { return listening.address; }
};

// Has no job yet. Ends the process if the ps does not start.
inline PsNode StartPsNode(const ps::PsServer::Options& options) {
  PsNode node;
  auto server = ps::PsServer::Create(options);
  SYNCLINE_CHECK(server.ok());
  node.server = *std::move(server);
  grpc::ServerBuilder builder;
  node.server->RegisterService(&builder);
  auto listening = StartServer(&builder, "127.0.0.1:0");
  SYNCLINE_CHECK(listening.ok());
  node.listening = *std::move(listening);
  return node;
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_PS_NODE_H_
