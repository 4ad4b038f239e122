#ifndef SYNCLINE_WORKER_CLIENT_TRANSPORT_CALL_WINDOWS_H_
#define SYNCLINE_WORKER_CLIENT_TRANSPORT_CALL_WINDOWS_H_

#include <cstddef>
#include <vector>

#include "worker/client/transport/active_call.h"
#include "worker/client/transport/fanout_call.h"
#include "worker/client/transport/send_window.h"

namespace syncline::worker {

// Bounds the bytes of the calls under way with one ps: a window for each
// direction (push, pull) and route (network, shared memory). Pure.
// Thread-compatible.
//
//   push, network         until the shard has taken the request (OnTaken)
//   everything else       until the call has ended (OnEnded)
class CallWindows {
 public:
  explicit CallWindows(const FanoutCall::Options& options);

  // The route that a call takes which starts now. `has_shared_memory`: the ps
  // shares memory with this process.
  CallRoute ChooseRoute(const FanoutCall::Call& call,
                        bool has_shared_memory) const;

  // Lets the call into the window of its route. True: it may be sent now.
  // False: it was queued.
  bool TryEnter(const ActiveCallPtr& active);
  // The same for a repetition of a call that has left its window.
  bool TryEnterAgain(const ActiveCallPtr& active);

  // The shard has taken the call's request. Returns the queued calls that may
  // be sent now.
  std::vector<ActiveCallPtr> OnTaken(ActiveCall* active);
  // Likewise: the call has its outcome.
  std::vector<ActiveCallPtr> OnEnded(ActiveCall* active);

  // Drops the queued calls; returns how many those were.
  size_t Clear();

 private:
  using Window = SendWindow<ActiveCallPtr>;
  Window& WindowOf(const ActiveCall& active);

  const bool answers_need_later_pushes_;
  Window push_;
  Window pull_;
  Window shared_push_;
  Window shared_pull_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_TRANSPORT_CALL_WINDOWS_H_
