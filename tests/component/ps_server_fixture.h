#ifndef SYNCLINE_TESTS_COMPONENT_PS_SERVER_FIXTURE_H_
#define SYNCLINE_TESTS_COMPONENT_PS_SERVER_FIXTURE_H_

// The parts of ps_server_test share values, and what looks at a ps.

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/random.h"
#include "common/rpc/grpc_channel.h"
#include "tests/testing/ps_fixture.h"

namespace syncline {

inline Flat RandomFlat(const PsFixture& fixture, uint64_t seed) {
  Random random(seed);
  Flat values(fixture.map().element_count());
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

inline Flat Constant(const PsFixture& fixture, float value) {
  return Flat(fixture.map().element_count(), value);
}

inline std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

// Runs one function per worker at the same time.
inline void ForEachWorker(uint32_t workers, std::function<void(uint32_t)> run) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < workers; ++rank) {
    threads.emplace_back(run, rank);
  }
  for (std::thread& thread : threads) thread.join();
}

inline bool HasParked(PsFixture* fixture, uint32_t pulls, uint32_t pushes) {
  ShardStatus status;
  fixture->stub(0).GetShardStatus(MakeContext(absl::Now() + kPsTimeout).get(),
                                  ShardStatusRequest(), &status);
  return status.jobs_size() == 1 && status.jobs(0).parked_pulls() == pulls &&
         status.jobs(0).parked_pushes() == pushes;
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_COMPONENT_PS_SERVER_FIXTURE_H_
