// synctl: the command line of a Syncline cluster.

#include <cstdlib>
#include <filesystem>
#include <string>

#include "scheduler/ctl/synctl.h"

namespace {

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

int main(int argc, char** argv) {
  syncline::SynctlEnvironment environment;
  if (const char* tf_config = std::getenv("TF_CONFIG")) {
    environment.tf_config = tf_config;
  }
  environment.scheduler = FromEnvironment("SYNCLINE_SCHEDULER");
  environment.data_root = FromEnvironment("SYNCLINE_DATA");
  std::error_code error;
  environment.binary_dir =
      std::filesystem::read_symlink("/proc/self/exe", error)
          .parent_path()
          .string();
  return syncline::RunSynctl(argc, argv, environment);
}
