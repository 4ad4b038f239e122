#include "tests/bench/peer_programs.h"

#include <cstddef>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/system/child_process.h"

namespace syncline {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(3);
// As ctest takes it: what is compared with is not installed.
constexpr int kExitSkipped = 77;

std::string TextOf(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

absl::StatusOr<std::string> RunPeerPrograms(
    const std::vector<std::vector<std::string>>& argvs,
    const std::string& folder) {
  std::vector<std::unique_ptr<ChildProcess>> processes;
  for (size_t i = 0; i < argvs.size(); ++i) {
    ChildProcess::Options options;
    options.argv = argvs[i];
    options.output_file = absl::StrCat(folder, "/out-", i);
    options.error_file = absl::StrCat(folder, "/err-", i);
    options.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                           {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
    SYNCLINE_ASSIGN_OR_RETURN(auto process, ChildProcess::Spawn(options));
    processes.push_back(std::move(process));
  }
  const absl::Time deadline = MonotonicNow() + kPatience;
  for (size_t i = 0; i < processes.size(); ++i) {
    const auto exit = processes[i]->WaitUntil(deadline);
    if (exit.has_value() && exit->code == kExitSkipped) {
      return absl::UnimplementedError("not installed");
    }
    if (!exit.has_value() || exit->code != 0 || exit->signal != 0) {
      return absl::InternalError(
          absl::StrCat(absl::StrJoin(argvs[i], " "), ": ",
                       exit.has_value() ? exit->ToString() : "it does not end",
                       ": ", TextOf(absl::StrCat(folder, "/out-", i)),
                       TextOf(absl::StrCat(folder, "/err-", i))));
    }
  }
  return TextOf(absl::StrCat(folder, "/out-0"));
}

}  // namespace syncline
