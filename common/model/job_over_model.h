#ifndef SYNCLINE_COMMON_MODEL_JOB_OVER_MODEL_H_
#define SYNCLINE_COMMON_MODEL_JOB_OVER_MODEL_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/model.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// A job, its model and the list of problems between them: the base of classes
// that check one against the other. The constructor's arguments outlive it.
class JobOverModel {
 public:
  JobOverModel(const JobSpec& spec, const Model& model, ValueId loss_output,
               std::vector<std::string>* problems)
      : spec_(spec),
        model_(model),
        graph_(model.graph()),
        loss_output_(loss_output),
        problems_(problems) {}

 protected:
  template <typename... Parts>
  void Problem(const Parts&... parts) {
    problems_->push_back(absl::StrCat(parts...));
  }
  const Value& value(ValueId id) const { return graph_.values[id]; }

  const JobSpec& spec_;
  const Model& model_;
  const Graph& graph_;
  const ValueId loss_output_;
  std::vector<std::string>* const problems_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_JOB_OVER_MODEL_H_
