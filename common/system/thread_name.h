#ifndef SYNCLINE_COMMON_SYSTEM_THREAD_NAME_H_
#define SYNCLINE_COMMON_SYSTEM_THREAD_NAME_H_

#include "absl/strings/string_view.h"

namespace syncline {

// Names the calling thread for debuggers and `top -H`. Linux keeps 15 bytes;
// the end is what tells threads apart, so the front is cut.
void SetThreadName(absl::string_view name);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_THREAD_NAME_H_
