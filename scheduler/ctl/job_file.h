#ifndef SYNCLINE_SCHEDULER_CTL_JOB_FILE_H_
#define SYNCLINE_SCHEDULER_CTL_JOB_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/job_plan.h"
#include "common/model/model.h"
#include "common/model/training_graph.h"
#include "proto/job_spec.pb.h"

namespace syncline::ctl {

// Of a model's file: protocol buffers end there, and so does ONNX.
inline constexpr uint64_t kModelBytesMax = (2ull << 30) - 1;

// A job file and the model file it names, both checked.
struct JobFile {
  JobSpec spec;  // as written, defaults left out
  // model.path, taken relative to the job file's folder.
  std::string model_file;
  // start.weights likewise; empty: there is none.
  std::string weights_file = {};
  // How the spec, with its defaults, lies over the model.
  TrainingGraph training;
  // Notes that the user must read before training, one line each: Model::notes,
  // and warnings about fields that are accepted but have no effect.
  std::vector<std::string> notes;
};

// Fields of the file that a command line may override.
struct JobOverrides {
  std::optional<uint32_t> workers = std::nullopt;
  std::optional<uint32_t> ps = std::nullopt;
  std::optional<uint32_t> batch_size = std::nullopt;
  std::optional<uint32_t> micro_batches = std::nullopt;
  std::optional<uint32_t> recompute_segments = std::nullopt;
  // "path=value" each, see OverrideField; later ones win, and over the above.
  std::vector<std::string> settings = {};
  // start.weights, relative to the working directory; empty: as the file says.
  std::string weights = {};
  // start.names, "old.*=new.*" each, before those of the file.
  std::vector<std::string> renames = {};
  bool allow_missing = false;
};

// Plans the memory and the operations of a job, with the code of the worker and
// the ps. `spec` has its defaults, `training` is what it is over `model`.
using JobPlanner = std::function<absl::StatusOr<JobPlan>(
    const JobSpec& spec, std::shared_ptr<const Model> model,
    const TrainingGraph& training)>;

// Reads and checks everything that can be checked without the cluster: syntax,
// fields, the model, and how they fit; with a planner also what the workers'
// operators refuse. Errors: InvalidArgument with all
// problems, one per line, each "file:line: problem" where a line is known, or
// "--set: problem" where `overrides.settings` has the field, or that the file
// is something else, such as a model; NotFound, PermissionDenied: a file that
// cannot be read.
absl::StatusOr<JobFile> LoadJobFile(const std::string& path,
                                    const JobOverrides& overrides = {},
                                    const JobPlanner& planner = nullptr);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_JOB_FILE_H_
