// Goal: no TF_CONFIG, whatever its bytes, crashes a daemon, and what is taken
// is sound. Method: parse; addresses of what parses are addresses and unique;
// a full cluster survives the writer and is read back as it was.

#include <cstdint>
#include <set>
#include <string>

#include "common/base/check.h"
#include "common/base/host_port.h"
#include "common/cluster/cluster_config.h"

namespace {

using syncline::ClusterConfig;

void CheckSound(const ClusterConfig& config) {
  std::set<std::string> addresses;
  for (const auto& entry : config.tasks) {
    SYNCLINE_CHECK(syncline::ParseHostPort(entry.address).ok());
    SYNCLINE_CHECK(addresses.insert(entry.address).second);
  }
  SYNCLINE_CHECK(config.scheduler_address.empty() ||
                 addresses.count(config.scheduler_address) == 1);
}

void CheckRoundTrip(const ClusterConfig& config) {
  const auto json = syncline::WriteTfConfig(config.tasks, config.self);
  SYNCLINE_CHECK(json.ok());
  const auto again = syncline::ParseTfConfig(*json);
  SYNCLINE_CHECK(again.ok());
  SYNCLINE_CHECK(again->self == config.self);
  SYNCLINE_CHECK(again->self_address == config.self_address);
  SYNCLINE_CHECK(again->scheduler_address == config.scheduler_address);
  SYNCLINE_CHECK(again->hosts_scheduler == config.hosts_scheduler);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config =
      syncline::ParseTfConfig({reinterpret_cast<const char*>(data), size});
  if (!config.ok()) return 0;
  CheckSound(*config);
  if (!config->partial && !config->tasks.empty()) CheckRoundTrip(*config);
  return 0;
}
