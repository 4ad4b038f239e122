#include "common/base/random.h"

#include <sys/random.h>
#include <unistd.h>

#include <cmath>
#include <ctime>

namespace syncline {

double Random::Normal() {
  constexpr double kTwoPi = 6.283185307179586;
  const double radius_uniform = 1 - Uniform();  // (0, 1]: its log is finite
  const double angle_uniform = Uniform();
  return std::sqrt(-2 * std::log(radius_uniform)) *
         std::cos(kTwoPi * angle_uniform);
}

uint64_t EntropySeed() {
  uint64_t seed = 0;
  while (seed == 0) {
    if (getrandom(&seed, sizeof(seed), 0) == sizeof(seed)) continue;
    // Old kernels and odd sandboxes have no getrandom; time and process tell
    // processes apart well enough for what this is for.
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = Mix64(Mix64(now.tv_sec) ^ Mix64(now.tv_nsec) ^ getpid());
  }
  return seed;
}

}  // namespace syncline
