#include "tests/testing/cuda_emulator/nccl_double.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/device/device.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline::testing {
namespace {

using cuda::NcclCommunicator;
using cuda::NcclConfig;
using cuda::NcclId;
using cuda::NcclResult;

// One rank's part in a call of all ranks.
struct Call {
  std::string name;
  const float* from = nullptr;
  float* to = nullptr;
  size_t count = 0;
};

struct Group;
struct Communicator {
  Group* group = nullptr;
  int rank = 0;
  // The call that is under way.
  bool is_open = false;
  Call call = {};
  // The result that the rank is told from now on.
  NcclResult failure = cuda::kNcclSuccess;
  std::string error = {};
};
struct Group {
  std::vector<Communicator*> members;  // by rank; null: not yet, or gone
};

struct World {
  Mutex mu;
  int next_id ABSL_GUARDED_BY(mu) = 1;
  std::map<std::string, std::unique_ptr<Group>> groups ABSL_GUARDED_BY(mu);
  std::set<Communicator*> alive ABSL_GUARDED_BY(mu);
  int64_t aborted ABSL_GUARDED_BY(mu) = 0;
  std::string fails_at ABSL_GUARDED_BY(mu);
  int failing_rank ABSL_GUARDED_BY(mu) = -1;
  NcclResult fails_with ABSL_GUARDED_BY(mu) = cuda::kNcclSuccess;
};
World& TheWorld() {
  static World& world = *new World();
  return world;
}

NcclResult Refuse(Communicator* of, std::string why,
                  NcclResult result = cuda::kNcclInvalidUsage) {
  of->failure = result;
  of->error = std::move(why);
  return result;
}

// Ends the open calls of all members with it.
void FailAll(Group* group, NcclResult result, const std::string& why) {
  for (Communicator* const member : group->members) {
    if (member == nullptr || member->failure != cuda::kNcclSuccess) continue;
    Refuse(member, why, result);
  }
}

// The sum of element `i` of the ranks' arrays, each from `first` on.
float SumOf(const Group& group, size_t i, size_t first) {
  const size_t ranks = group.members.size();
  float sum = 0;
  for (size_t k = 0; k < ranks; ++k) {
    const float addend = group.members[(i + k) % ranks]->call.from[first + i];
    sum = k == 0 ? addend : sum + addend;
  }
  return sum;
}

void Compute(Group* group) {
  const Call& call = group->members[0]->call;
  const size_t ranks = group->members.size();
  std::vector<std::vector<float>> results(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    std::vector<float>& result = results[rank];
    if (call.name == "all_gather") {
      for (const Communicator* member : group->members) {
        result.insert(result.end(), member->call.from,
                      member->call.from + call.count);
      }
      continue;
    }
    const size_t first = call.name == "reduce_scatter" ? rank * call.count : 0;
    for (size_t i = 0; i < call.count; ++i) {
      result.push_back(SumOf(*group, i, first));
    }
  }
  for (size_t rank = 0; rank < ranks; ++rank) {
    Communicator* const member = group->members[rank];
    std::copy(results[rank].begin(), results[rank].end(), member->call.to);
    member->is_open = false;
  }
}

// Computes, if all ranks have made the call.
void Meet(Group* group) {
  const auto all = [&](auto of) {
    return std::all_of(group->members.begin(), group->members.end(), of);
  };
  if (!all([](const Communicator* m) { return m != nullptr && m->is_open; })) {
    return;
  }
  const Call& first = group->members[0]->call;
  if (!all([&](const Communicator* m) {
        return m->call.name == first.name && m->call.count == first.count;
      })) {
    return FailAll(group, cuda::kNcclInvalidUsage, "ranks differ in a call");
  }
  if (first.name == "join" || first.name == "finalize") {
    for (Communicator* const member : group->members) member->is_open = false;
    return;
  }
  Compute(group);
}

NcclResult Open(Communicator* of, Call call) {
  of->is_open = true;
  of->call = std::move(call);
  Meet(of->group);
  if (of->failure != cuda::kNcclSuccess) return of->failure;
  return of->is_open ? cuda::kNcclInProgress : cuda::kNcclSuccess;
}

NcclResult Version(int* version) {
  *version = 22809;
  return cuda::kNcclSuccess;
}

const char* ErrorString(NcclResult result) {
  switch (result) {
    case cuda::kNcclRemoteError:
      return "remote process exited or there was a network error";
    case cuda::kNcclInvalidUsage:
      return "invalid usage";
    default:
      return "an error of the double";
  }
}

const char* LastError(NcclCommunicator communicator) {
  return static_cast<Communicator*>(communicator)->error.c_str();
}

NcclResult MakeId(NcclId* id) {
  World& world = TheWorld();
  MutexLock lock(&world.mu);
  const std::string text = absl::StrCat("group ", world.next_id++);
  std::memcpy(id->bytes, text.data(), text.size());
  return cuda::kNcclSuccess;
}

// The result that the test has said; success: none.
NcclResult SaidFailure(World* world, const std::string& function, int rank)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(world->mu) {
  return world->fails_at == function && world->failing_rank == rank
             ? world->fails_with
             : cuda::kNcclSuccess;
}

NcclResult Init(NcclCommunicator* communicator, int ranks, NcclId id, int rank,
                NcclConfig* config) {
  World& world = TheWorld();
  MutexLock lock(&world.mu);
  if (config->magic != 0xcafebeef || config->size != sizeof(NcclConfig) ||
      config->blocking != 0 || rank >= ranks) {
    return cuda::kNcclInvalidArgument;
  }
  if (const NcclResult said = SaidFailure(&world, "init", rank)) return said;
  std::unique_ptr<Group>& group = world.groups[id.bytes];
  if (group == nullptr) {
    group = std::make_unique<Group>();
    group->members.resize(static_cast<size_t>(ranks));
  }
  auto* const of = new Communicator{.group = group.get(), .rank = rank};
  SYNCLINE_CHECK(group->members[rank] == nullptr);
  group->members[rank] = of;
  world.alive.insert(of);
  *communicator = of;
  return Open(of, {.name = "join"});
}

NcclResult Finalize(NcclCommunicator communicator) {
  World& world = TheWorld();
  MutexLock lock(&world.mu);
  auto* const of = static_cast<Communicator*>(communicator);
  if (of->failure != cuda::kNcclSuccess) return of->failure;
  return Open(of, {.name = "finalize"});
}

void Remove(World* world, Communicator* of)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(world->mu) {
  SYNCLINE_CHECK(world->alive.erase(of) == 1);
  of->group->members[of->rank] = nullptr;
  delete of;
}

NcclResult Destroy(NcclCommunicator communicator) {
  World& world = TheWorld();
  MutexLock lock(&world.mu);
  auto* const of = static_cast<Communicator*>(communicator);
  SYNCLINE_CHECK(of->call.name == "finalize" && !of->is_open);
  Remove(&world, of);
  return cuda::kNcclSuccess;
}

NcclResult Abort(NcclCommunicator communicator) {
  World& world = TheWorld();
  MutexLock lock(&world.mu);
  auto* const of = static_cast<Communicator*>(communicator);
  Group* const group = of->group;
  const int rank = of->rank;
  ++world.aborted;
  Remove(&world, of);
  FailAll(group, cuda::kNcclRemoteError,
          absl::StrCat("rank ", rank, " has closed its connection"));
  return cuda::kNcclSuccess;
}

NcclResult AsyncError(NcclCommunicator communicator, NcclResult* error) {
  World& world = TheWorld();
  MutexLock lock(&world.mu);
  const auto* const of = static_cast<Communicator*>(communicator);
  *error = of->failure;
  if (of->failure == cuda::kNcclSuccess && of->is_open) {
    *error = cuda::kNcclInProgress;
  }
  return cuda::kNcclSuccess;
}

NcclResult Reduce(const std::string& name, const void* from, void* to,
                  size_t count, NcclCommunicator communicator, void* stream) {
  World& world = TheWorld();
  MutexLock lock(&world.mu);
  auto* const of = static_cast<Communicator*>(communicator);
  if (const NcclResult said = SaidFailure(&world, name, of->rank)) {
    return Refuse(of, "as the test said", said);
  }
  if (of->failure != cuda::kNcclSuccess) return of->failure;
  if (of->is_open) return Refuse(of, "a call is under way");
  const size_t ranks = of->group->members.size();
  auto& device =
      static_cast<EmulatedDevice&>(static_cast<Stream*>(stream)->device());
  const size_t read = name == "reduce_scatter" ? count * ranks : count;
  const size_t written = name == "all_gather" ? count * ranks : count;
  if (!device.MayRead("NCCL's double", from, read * sizeof(float)) ||
      !device.MayWrite("NCCL's double", to, written * sizeof(float))) {
    return Refuse(of, "an array is not on the device",
                  cuda::kNcclInvalidArgument);
  }
  return Open(of, {.name = name,
                   .from = static_cast<const float*>(from),
                   .to = static_cast<float*>(to),
                   .count = count});
}

NcclResult AllReduce(const void* from, void* to, size_t count, int type,
                     int reduction, NcclCommunicator communicator,
                     void* stream) {
  SYNCLINE_CHECK(type == cuda::kNcclFloat32 && reduction == cuda::kNcclSum);
  return Reduce("all_reduce", from, to, count, communicator, stream);
}
NcclResult ReduceScatter(const void* from, void* to, size_t count, int type,
                         int reduction, NcclCommunicator communicator,
                         void* stream) {
  SYNCLINE_CHECK(type == cuda::kNcclFloat32 && reduction == cuda::kNcclSum);
  return Reduce("reduce_scatter", from, to, count, communicator, stream);
}
NcclResult AllGather(const void* from, void* to, size_t count, int type,
                     NcclCommunicator communicator, void* stream) {
  SYNCLINE_CHECK(type == cuda::kNcclFloat32);
  return Reduce("all_gather", from, to, count, communicator, stream);
}

}  // namespace

std::unique_ptr<cuda::Nccl> NcclDouble::Make() {
  {
    World& world = TheWorld();
    MutexLock lock(&world.mu);
    world.groups.clear();
    world.aborted = 0;
    world.fails_at.clear();
  }
  auto nccl = cuda::Nccl::Create(Functions(), "the double");
  SYNCLINE_CHECK(nccl.ok());
  return *std::move(nccl);
}

cuda::NcclFunctions NcclDouble::Functions() {
  return {.version = Version,
          .error_string = ErrorString,
          .last_error = LastError,
          .make_id = MakeId,
          .init = Init,
          .finalize = Finalize,
          .destroy = Destroy,
          .abort = Abort,
          .async_error = AsyncError,
          .all_reduce = AllReduce,
          .reduce_scatter = ReduceScatter,
          .all_gather = AllGather};
}

void NcclDouble::FailAt(const std::string& function, int rank,
                        NcclResult result) {
  World& world = TheWorld();
  MutexLock lock(&world.mu);
  world.fails_at = function;
  world.failing_rank = rank;
  world.fails_with = result;
}

int64_t NcclDouble::communicators() {
  World& world = TheWorld();
  MutexLock lock(&world.mu);
  return static_cast<int64_t>(world.alive.size());
}

int64_t NcclDouble::aborted() {
  World& world = TheWorld();
  MutexLock lock(&world.mu);
  return world.aborted;
}

}  // namespace syncline::testing
