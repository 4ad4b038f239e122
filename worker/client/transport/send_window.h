#ifndef SYNCLINE_WORKER_CLIENT_TRANSPORT_SEND_WINDOW_H_
#define SYNCLINE_WORKER_CLIENT_TRANSPORT_SEND_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace syncline::worker {

// Bounds the bytes in flight towards one peer. Items that do not fit wait, and
// leave in the order of their ranks, equal ranks in order of arrival. An item
// larger than the limit travels alone. Thread-compatible.
template <typename Item>
class SendWindow {
 public:
  explicit SendWindow(size_t bytes_max) : bytes_max_(bytes_max) {}

  // True: `item` may be sent now. False: it was queued.
  bool TryEnter(size_t bytes, const Item& item, int64_t rank = 0) {
    if (!HasRoom(bytes)) {
      queue_.emplace(rank, std::make_pair(bytes, item));
      return false;
    }
    bytes_ += bytes;
    return true;
  }

  // True if TryEnter would return true.
  bool HasRoom(size_t bytes) const { return queue_.empty() && Fits(bytes); }

  // An item that was sent has its outcome. Returns the queued ones that may be
  // sent now.
  std::vector<Item> Leave(size_t bytes) {
    bytes_ -= bytes;
    std::vector<Item> next;
    while (!queue_.empty() && Fits(queue_.begin()->second.first)) {
      bytes_ += queue_.begin()->second.first;
      next.push_back(std::move(queue_.begin()->second.second));
      queue_.erase(queue_.begin());
    }
    return next;
  }

  // Drops the queued items; returns how many those were.
  size_t Clear() {
    const size_t dropped = queue_.size();
    queue_.clear();
    return dropped;
  }

  size_t bytes() const { return bytes_; }

 private:
  bool Fits(size_t bytes) const {
    return bytes_ == 0 || bytes_ + bytes <= bytes_max_;
  }

  const size_t bytes_max_;
  size_t bytes_ = 0;
  std::multimap<int64_t, std::pair<size_t, Item>> queue_;  // by rank
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_TRANSPORT_SEND_WINDOW_H_
