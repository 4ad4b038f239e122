#ifndef SYNCLINE_COMMON_UPDATE_OPTIMIZER_STATE_H_
#define SYNCLINE_COMMON_UPDATE_OPTIMIZER_STATE_H_

#include <string>

#include "kernels/optimizer/optimizer.h"

namespace syncline {

// "adam", "rmsprop centered": optimizers of the same name and number of slots
// have the same state.
std::string OptimizerStateName(const OptimizerParams& params);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_OPTIMIZER_STATE_H_
