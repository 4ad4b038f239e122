#ifndef SYNCLINE_COMMON_JOB_PROFILE_LIMITS_H_
#define SYNCLINE_COMMON_JOB_PROFILE_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace syncline {

// Limits of Jobs.Profile (proto/scheduler.proto): steps of one profile, from 1;
// profiles that one worker has still to record; profiles that one job has and
// will have.
inline constexpr uint32_t kProfileStepsMax = 1000;
inline constexpr size_t kProfilesPerWorkerMax = 8;
inline constexpr int kProfilesPerJobMax = 100;

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_PROFILE_LIMITS_H_
