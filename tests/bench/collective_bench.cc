#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "tests/bench/benchmarks.h"
#include "tests/bench/peer_programs.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

struct Load {
  size_t elements;
  const char* name;
};
constexpr Load kLoads[] = {
    {1 << 10, "4 KiB"}, {1 << 20, "4 MiB"}, {16 << 20, "64 MiB"}};
constexpr Load kSmokeLoads[] = {{1 << 10, "4 KiB"}, {1 << 18, "1 MiB"}};

// Seconds of an all-reduce by its number of elements; empty: not installed.
using Seconds = std::map<size_t, double>;

// Runs the processes, of which the first one prints "elements seconds". Errors:
// Unimplemented: one of them says that it is not installed.
absl::StatusOr<Seconds> Run(const std::vector<std::vector<std::string>>& argvs,
                            const std::string& folder) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string printed,
                            RunPeerPrograms(argvs, folder));
  Seconds seconds;
  std::istringstream lines(printed);
  size_t elements = 0;
  double each = 0;
  while (lines >> elements >> each) seconds[elements] = each;
  return seconds;
}

// `flag` of collective_rank says how bytes move; empty: shared memory.
absl::StatusOr<Seconds> RunOurs(int ranks,
                                const std::vector<std::string>& elements,
                                const std::string& flag) {
  const TempDir folder;
  std::vector<std::vector<std::string>> argvs;
  for (int r = 0; r < ranks; ++r) {
    std::vector<std::string> argv = {SYNCLINE_COLLECTIVE_RANK,
                                     "--dir",
                                     folder.path(),
                                     "--rank",
                                     absl::StrCat(r),
                                     "--ranks",
                                     absl::StrCat(ranks),
                                     "--elements",
                                     absl::StrJoin(elements, ",")};
    if (!flag.empty()) argv.push_back(flag);
    argvs.push_back(std::move(argv));
  }
  return Run(argvs, folder.path());
}

absl::StatusOr<Seconds> RunMpi(int ranks,
                               const std::vector<std::string>& elements) {
  const std::string program = SYNCLINE_MPI_ALLREDUCE;
  if (program.empty()) return absl::UnimplementedError("no OpenMPI");
  const TempDir folder;
  std::vector<std::string> argv = {
      SYNCLINE_MPIRUN, "--oversubscribe",   "--mca", "btl", "self,vader",
      "-np",           absl::StrCat(ranks), program};
  argv.insert(argv.end(), elements.begin(), elements.end());
  return Run({argv}, folder.path());
}

absl::StatusOr<Seconds> RunGloo(int ranks,
                                const std::vector<std::string>& elements) {
  const TempDir folder;
  std::vector<std::vector<std::string>> argvs;
  for (int r = 0; r < ranks; ++r) {
    std::vector<std::string> argv = {
        "/usr/bin/python3",
        absl::StrCat(SYNCLINE_SOURCE_DIR, "/tests/peers/gloo_allreduce.py"),
        folder.path(), absl::StrCat(r), absl::StrCat(ranks)};
    argv.insert(argv.end(), elements.begin(), elements.end());
    argvs.push_back(std::move(argv));
  }
  return Run(argvs, folder.path());
}

struct Side {
  const char* name;
  absl::StatusOr<Seconds> (*run)(int, const std::vector<std::string>&);
};
constexpr Side kSides[] = {
    {"shared memory",
     [](int n, const std::vector<std::string>& e) {
       return RunOurs(n, e, "");
     }},
    {"OpenMPI", RunMpi},
    {"TCP",
     [](int n, const std::vector<std::string>& e) {
       return RunOurs(n, e, "--tcp");
     }},
    {"TLS",
     [](int n, const std::vector<std::string>& e) {
       return RunOurs(n, e, "--tls");
     }},
    {"Gloo", RunGloo},
};

}  // namespace

absl::Status RunCollectiveBench(const BenchOptions& options, Report* report) {
  const absl::Span<const Load> loads =
      options.smoke ? absl::MakeSpan(kSmokeLoads) : absl::MakeSpan(kLoads);
  const int repetitions = options.smoke ? 1 : options.repetitions;
  if (options.smoke) {
    setenv("SYNCLINE_ALLREDUCE_TIMES_MAX", "50", /*overwrite=*/1);
  }
  std::vector<std::string> elements;
  for (const Load& load : loads) {
    elements.push_back(absl::StrCat(load.elements));
  }
  report->Set("cores", std::thread::hardware_concurrency());
  std::vector<std::string> absent;
  for (const int ranks : {2, 4}) {
    const auto name_of = [&](const char* side, const Load& load) {
      return absl::StrCat(load.name, ", ", ranks, " ranks, ", side);
    };
    if (!absl::StrContains(absl::StrCat(ranks, " ranks"), options.only)) {
      continue;
    }
    for (int i = 0; i < repetitions; ++i) {
      for (const Side& side : kSides) {
        if (std::count(absent.begin(), absent.end(), side.name) > 0) continue;
        auto seconds = side.run(ranks, elements);
        if (absl::IsUnimplemented(seconds.status())) {
          absent.emplace_back(side.name);
          continue;
        }
        SYNCLINE_RETURN_IF_ERROR(seconds.status());
        for (const Load& load : loads) {
          if (!seconds->contains(load.elements)) {
            return absl::InternalError(
                absl::StrCat(name_of(side.name, load), ": no measurement"));
          }
          report->Add(name_of(side.name, load), "us",
                      1e6 * seconds->at(load.elements));
        }
      }
    }
    const auto compare = [&](const char* ours, const char* theirs,
                             std::optional<double> goal,
                             std::optional<double> large_goal) {
      if (std::count(absent.begin(), absent.end(), theirs) > 0) return;
      for (const Load& load : loads) {
        report->AddRatio(
            absl::StrCat(name_of(ours, load), " faster than ", theirs),
            name_of(theirs, load), name_of(ours, load),
            load.elements >= (16 << 20) ? large_goal : goal);
      }
    };
    compare("shared memory", "OpenMPI", 1.0, 1.5);
    compare("TCP", "Gloo", 1.5, 1.5);
    compare("TLS", "TCP", std::nullopt, std::nullopt);
  }
  if (!absent.empty()) {
    report->Set("not installed", absl::StrJoin(absent, ", "));
  }
  return absl::OkStatus();
}

}  // namespace syncline
