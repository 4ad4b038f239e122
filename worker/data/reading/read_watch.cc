#include "worker/data/reading/read_watch.h"

#include <utility>

#include "common/base/check.h"

namespace syncline::worker {
namespace {

// The alternative is one more argument of every loader and of what they call.
thread_local const ReadWatch* current = nullptr;

}  // namespace

ReadWatch::ReadWatch(OnRead on_read) : on_read_(std::move(on_read)) {
  SYNCLINE_CHECK(current == nullptr);
  current = this;
}

ReadWatch::~ReadWatch() { current = nullptr; }

absl::Status ReadWatch::BeforeRead(const std::string& path, size_t bytes) {
  if (current == nullptr || current->on_read_ == nullptr) {
    return absl::OkStatus();
  }
  return current->on_read_(path, bytes);
}

}  // namespace syncline::worker
