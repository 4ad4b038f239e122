// One rank of a group, as a process of its own: for tests that kill it, and for
// syncline-bench collective.
//
//   collective_rank --dir D --rank R --ranks N [--tcp | --tls] [--seconds S]
//       [--epoch E] [--loop COUNT] [--elements A,B,...] [--algorithm NAME]
//       [--reduce COUNT | --gather COUNT]
//
// Ranks find each other by files in D, and exchange bytes through shared
// memory, over TCP, or over TLS as between hosts. With --elements it checks,
// then times all-reduces of so many float32 and prints "elements seconds" for
// each. With --loop it goes on until a message takes longer than S seconds or a
// rank is gone, and prints that error; --reduce and --gather likewise with the
// halves.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/base/aligned_buffer.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "worker/collectives/collectives.h"
#include "worker/collectives/peer_rendezvous.h"

namespace syncline::worker {
namespace {

// The most all-reduces of one size; `syncline-bench collective --smoke` sets
// fewer.
size_t TimesMax() {
  const char* const text = std::getenv("SYNCLINE_ALLREDUCE_TIMES_MAX");
  return text != nullptr ? std::max(6ul, std::strtoul(text, nullptr, 10))
                         : 4000;
}

struct Flags {
  std::string dir;
  uint32_t rank = 0;
  uint32_t ranks = 2;
  bool tcp = false;
  bool tls = false;
  double seconds = 20;
  uint64_t epoch = 1;
  size_t loop = 0;
  size_t reduce = 0;
  size_t gather = 0;
  std::string elements;
  std::string algorithm;
};

void Pause() {
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  never.WaitUntil(&mu, MonotonicNow() + absl::Milliseconds(5));
}

absl::StatusOr<PeerGroupPlan> FindRanks(const Flags& flags,
                                        const std::string& address,
                                        uint64_t incarnation) {
  const std::string mine = absl::StrCat(flags.dir, "/", flags.rank);
  std::ofstream(mine + ".new") << address << " " << incarnation << "\n";
  if (rename((mine + ".new").c_str(), mine.c_str()) != 0) {
    return absl::InternalError(absl::StrCat("cannot write ", mine));
  }
  PeerGroupPlan plan;
  plan.meeting.group.job = "j-0001";
  plan.meeting.group.epoch = flags.epoch;
  plan.meeting.group.rank = flags.rank;
  plan.meeting.shared_memory = !flags.tcp && !flags.tls;
  plan.meeting.encrypts = flags.tls;
  plan.pass = {1, "sixteen secret b"};
  const absl::Time deadline = MonotonicNow() + absl::Seconds(30);
  for (uint32_t r = 0; r < flags.ranks; ++r) {
    PeerGroup::Peer peer;
    peer.name = absl::StrCat("worker:", r);
    uint64_t theirs = 0;
    while (true) {
      std::ifstream in(absl::StrCat(flags.dir, "/", r));
      if (in >> peer.address >> theirs) break;
      if (MonotonicNow() >= deadline) {
        return absl::DeadlineExceededError(absl::StrCat("rank ", r));
      }
      Pause();
    }
    plan.meeting.group.peers.push_back(peer);
    plan.incarnations.push_back(theirs);
  }
  return plan;
}

absl::Status Check(Collectives* collectives, const Flags& flags, size_t count,
                   int64_t clock) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((i + flags.rank * 7) % 1000);
  }
  SYNCLINE_RETURN_IF_ERROR(collectives->Run(
      {CollectiveKind::kAllReduce, clock, 0, absl::MakeSpan(values),
       MonotonicNow() + absl::Seconds(flags.seconds)}));
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (uint32_t r = 0; r < flags.ranks; ++r) {
      sum += static_cast<float>((i + r * 7) % 1000);
    }
    if (values[i] != sum) {
      return absl::InternalError(
          absl::StrCat("element ", i, " is ", values[i], ", not ", sum));
    }
  }
  return absl::OkStatus();
}

absl::Status Time(Collectives* collectives, const Flags& flags, size_t count,
                  int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(Check(collectives, flags, count, clock++));
  AlignedFloats values(count);
  std::fill(values.span().begin(), values.span().end(), 1e-30f);
  const int times = static_cast<int>(
      std::clamp<size_t>((size_t{64} << 20) / (count + 1), 6, TimesMax()));
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    const absl::Time start = MonotonicNow();
    SYNCLINE_RETURN_IF_ERROR(
        collectives->Run({CollectiveKind::kAllReduce, clock++, 0, values.span(),
                          start + absl::Seconds(flags.seconds)}));
    seconds.push_back(absl::ToDoubleSeconds(MonotonicNow() - start));
  }
  std::sort(seconds.begin(), seconds.end());
  if (flags.rank == 0) {
    std::printf("%zu %.9f\n", count, seconds[seconds.size() / 2]);
    std::fflush(stdout);
    std::cerr << count << " least " << seconds.front() << "\n";
  }
  return absl::OkStatus();
}

absl::Status Loop(Collectives* collectives, const Flags& flags) {
  const size_t count = std::max({flags.loop, flags.reduce, flags.gather});
  const CollectiveKind kind = flags.reduce > 0 ? CollectiveKind::kReduceScatter
                              : flags.gather > 0 ? CollectiveKind::kAllGather
                                                 : CollectiveKind::kAllReduce;
  AlignedFloats values(count);
  for (int64_t clock = 100;; ++clock) {
    SYNCLINE_RETURN_IF_ERROR(
        collectives->Run({kind, clock, 0, values.span(),
                          MonotonicNow() + absl::Seconds(flags.seconds)}));
    if (clock == 110) {
      std::printf("running\n");
      std::fflush(stdout);
    }
  }
}

absl::Status Run(const Flags& flags) {
  PeersService service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  SYNCLINE_ASSIGN_OR_RETURN(const ListeningServer server,
                            StartServer(&builder, "127.0.0.1:0"));
  const uint64_t incarnation = EntropySeed();
  SYNCLINE_ASSIGN_OR_RETURN(const PeerGroupPlan plan,
                            FindRanks(flags, server.address, incarnation));
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::unique_ptr<PeerTransport> transport,
      FormGroup(plan, &service, MonotonicNow() + absl::Seconds(30),
                [] { return absl::OkStatus(); }));
  Collectives::Options options;
  SYNCLINE_ASSIGN_OR_RETURN(
      options.model,
      MeasureModel(transport.get(), MonotonicNow() + absl::Seconds(20)));
  if (flags.rank == 0) std::cerr << options.model.ToText() << "\n";
  for (const auto algorithm :
       {CollectiveAlgorithm::kExchange, CollectiveAlgorithm::kDirect,
        CollectiveAlgorithm::kRing, CollectiveAlgorithm::kTree}) {
    if (flags.algorithm == NameOf(algorithm)) options.algorithm = algorithm;
  }
  Collectives collectives(transport.get(), options);
  int64_t clock = 0;
  for (const absl::string_view text :
       absl::StrSplit(flags.elements, ',', absl::SkipEmpty())) {
    size_t count = 0;
    if (!absl::SimpleAtoi(text, &count)) {
      return absl::InvalidArgumentError("--elements");
    }
    SYNCLINE_RETURN_IF_ERROR(Time(&collectives, flags, count, clock));
    clock += 10'000;
  }
  if (flags.elements.empty()) return Loop(&collectives, flags);
  return absl::OkStatus();
}

}  // namespace
}  // namespace syncline::worker

int main(int argc, char** argv) {
  syncline::worker::Flags flags;
  CLI::App app("one rank of a group");
  app.add_option("--dir", flags.dir)->required();
  app.add_option("--rank", flags.rank)->required();
  app.add_option("--ranks", flags.ranks)->required();
  app.add_flag("--tcp", flags.tcp);
  app.add_flag("--tls", flags.tls);
  app.add_option("--seconds", flags.seconds);
  app.add_option("--epoch", flags.epoch);
  app.add_option("--loop", flags.loop);
  app.add_option("--reduce", flags.reduce);
  app.add_option("--gather", flags.gather);
  app.add_option("--elements", flags.elements);
  app.add_option("--algorithm", flags.algorithm);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = syncline::worker::Run(flags);
  if (!status.ok()) {
    std::cout << "error: " << status << std::endl;
    return 3;
  }
  return 0;
}
