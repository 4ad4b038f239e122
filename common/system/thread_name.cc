#include "common/system/thread_name.h"

#include <pthread.h>

#include <string>

namespace syncline {

void SetThreadName(absl::string_view name) {
  constexpr size_t kNameBytesMax = 15;
  if (name.size() > kNameBytesMax) {
    name.remove_prefix(name.size() - kNameBytesMax);
  }
  pthread_setname_np(pthread_self(), std::string(name).c_str());
}

}  // namespace syncline
