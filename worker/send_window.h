#ifndef SYNCLINE_WORKER_SEND_WINDOW_H_
#define SYNCLINE_WORKER_SEND_WINDOW_H_

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

namespace syncline {

// Bounds the bytes in flight towards one peer; what does not fit waits in
// order. An item larger than the limit travels alone. Thread-compatible.
template <typename Item>
class SendWindow {
 public:
  explicit SendWindow(size_t bytes_max) : bytes_max_(bytes_max) {}

  // True: `item` may be sent now. False: it was queued.
  bool TryEnter(size_t bytes, const Item& item) {
    if (!HasRoom(bytes)) {
      queue_.emplace_back(bytes, item);
      return false;
    }
    bytes_ += bytes;
    return true;
  }

  // Whether TryEnter would say so.
  bool HasRoom(size_t bytes) const { return queue_.empty() && Fits(bytes); }

  // An item that was sent has its outcome. Returns the queued ones that may be
  // sent now.
  std::vector<Item> Leave(size_t bytes) {
    bytes_ -= bytes;
    std::vector<Item> next;
    while (!queue_.empty() && Fits(queue_.front().first)) {
      bytes_ += queue_.front().first;
      next.push_back(std::move(queue_.front().second));
      queue_.pop_front();
    }
    return next;
  }

  // Drops what is queued; returns how many that were.
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
  std::deque<std::pair<size_t, Item>> queue_;
};

}  // namespace syncline

#endif  // SYNCLINE_WORKER_SEND_WINDOW_H_
