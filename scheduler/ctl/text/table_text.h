#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_TABLE_TEXT_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_TABLE_TEXT_H_

#include <string>

#include "proto/scheduler.pb.h"

namespace syncline::ctl {

// `synctl tables`: for people, table by table, summed over the ps, with what
// each ps holds.
std::string TablesText(const JobTableStatus& status);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_TABLE_TEXT_H_
