#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_WEIGHTS_TEXT_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_WEIGHTS_TEXT_H_

#include <string>

#include "common/model/training_graph.h"
#include "google/protobuf/struct.pb.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

// The tensors that a job trains and those that it does not, a line for each
// reason; then the job's warnings, a line each. For people.
std::string WeightsText(const TrainingGraph& training);

// The lines on `out`, the warnings on `err`: where a job starts. Nothing with
// JSON, which SetWeights is for.
void PrintWeights(const TrainingGraph& training, const Console& console);

// The same in `object`: "weights" and, if there are any, "warnings".
void SetWeights(const TrainingGraph& training,
                google::protobuf::Struct* object);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_WEIGHTS_TEXT_H_
