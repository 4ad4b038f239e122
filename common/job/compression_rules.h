#ifndef SYNCLINE_COMMON_JOB_COMPRESSION_RULES_H_
#define SYNCLINE_COMMON_JOB_COMPRESSION_RULES_H_

#include <string>

#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Smallest and largest CompressionSpec.block_elements.
inline constexpr uint32_t kCompressionBlockMin = 32;
inline constexpr uint32_t kCompressionBlockMax = 65'536;

// True if the job's dense gradients are compressed.
inline bool Compresses(const JobSpec& spec) {
  return spec.has_compression() &&
         spec.compression().kind() > CompressionSpec::NONE;
}

// True if workers apply momentum and clip_norm before they compress: the
// owners of parameters then do neither.
inline bool WorkersHaveMomentum(const JobSpec& spec) {
  return Compresses(spec) && spec.compression().kind() == CompressionSpec::DGC;
}

// JobSpec.compression against its ranges, and what does not go together with
// it. For the job specification's validator.
void CheckCompression(const JobSpec& spec, Problems* problems);

// The defaults of the same field.
void FillCompression(JobSpec* spec);

// True if its workers save what compressed gradients have lost with each
// checkpoint: its dense part trains in SYNC, and all see the checkpoints'
// folder.
bool SavesResiduals(const JobSpec& spec);

// A line that the user of a job that compresses must read before it trains.
// Empty: it does not.
std::string CompressionNote(const JobSpec& spec);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_COMPRESSION_RULES_H_
