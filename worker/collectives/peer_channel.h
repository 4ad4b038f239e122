#ifndef SYNCLINE_WORKER_COLLECTIVES_PEER_CHANNEL_H_
#define SYNCLINE_WORKER_COLLECTIVES_PEER_CHANNEL_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/collectives/frame.h"
#include "worker/collectives/peer_transport.h"

namespace syncline::worker {

// The messages between this rank and one other: makes frames of them, and
// messages of frames. Pure: it is told what its stream of bytes can take and
// has brought, and what time it is. Thread-compatible.
//
// A message's bytes go out once the other side has said that its Receive is
// posted (kReady), so they always find the memory that they belong to, and the
// stream never stands still behind a message that nobody wants. Messages of at
// most kEagerMax bytes do not wait for that, until kEagerBytes of them are
// under way unannounced; the receiver buffers as many. Each Receive sends one
// kReady; each message is one or more kData, in order.
class PeerChannel {
 public:
  static constexpr size_t kEagerMax = 8 << 10;
  static constexpr size_t kEagerBytes = 512 << 10;
  // Bytes that are sent unasked are bounded by kEagerBytes, and by the two
  // swaps that a rank can be ahead.
  static constexpr size_t kParkedBytesMax = kEagerBytes + 4 * kSwapBytesMax;
  static constexpr size_t kMessagesMax = 1 << 16;  // of each kind

  // `group` outlives it.
  PeerChannel(const PeerGroup* group, uint32_t peer);

  // As PeerTransport's.
  void Send(const PeerTag& tag, absl::Span<const ConstPeerMemory> pieces,
            absl::Time deadline, PeerTransport::Done sent);
  // `sink` may be null; then the bytes go to `memory`, else only its size
  // counts.
  void Receive(const PeerTag& tag, PeerMemory memory, absl::Time deadline,
               PeerTransport::Sink sink, PeerTransport::Done received);

  // A short message each way without callbacks: PeerTransport::SwapAll. At most
  // one at a time. REQUIRES: can_swap(), sizes of at most kSwapBytesMax; `out`
  // stays until it is written, `in` has as many bytes and stays until it has
  // come; both at most until Fail.
  bool can_swap() const {
    return !has_output() && failure_.ok() && gone_.ok() && !failed_;
  }
  void StartSwap(const PeerTag& tag, absl::Span<const uint8_t> out,
                 uint8_t* in);
  bool swap_has_come() const { return swap_in_ == nullptr; }

  // --- Bytes for the stream ---

  // The next bytes to write, at most `pieces_max` pieces, each valid until the
  // next call of anything else. None: nothing is to be written.
  absl::Span<const absl::Span<const uint8_t>> Output(size_t pieces_max);
  // The first `bytes` of Output have been written.
  void OnWritten(size_t bytes);
  bool has_output() const {
    return out_ != nullptr || !ready_out_.empty() || !data_out_.empty();
  }

  // --- Bytes from the stream ---

  // Where the stream's next bytes may be put without a copy; empty: nowhere.
  absl::Span<uint8_t> DirectInput();
  void OnDirectInput(size_t bytes);
  // Takes bytes of the stream. Returns how many it took; the others come again,
  // with more behind them. It takes all, but for fewer than 64 at the end.
  size_t OnInput(absl::Span<const uint8_t> bytes);

  // --- Ends ---

  // The error that must end the group: of what the other side sent, or of what
  // this side asked for. OK: none.
  const absl::Status& failure() const { return failure_; }
  // The other side has said that it is done.
  bool is_gone() const { return !gone_.ok(); }
  // Checks deadlines; may set failure().
  void OnTime(absl::Time now);
  // No deadline passes before this.
  absl::Time next_deadline() const { return next_deadline_; }
  // Ends every message with `status`; nothing is sent or taken any more, except
  // that Output has a last frame for the other side, if no frame is torn.
  void Fail(const absl::Status& status) { End(status, false); }
  // Fail, but where no message is open, what is sent last says that this rank
  // needs nothing more: the other one then fails only if it still has messages
  // with this one.
  void Leave();

  // The callbacks to run now, in order.
  std::vector<std::pair<PeerTransport::Done, absl::Status>> TakeCompleted() {
    return std::exchange(completed_, {});
  }
  bool has_completed() const { return !completed_.empty(); }
  // Messages whose callbacks are still to come.
  size_t open() const {
    return sends_.size() + receives_.size() + (swap_in_ != nullptr ? 1 : 0);
  }

  uint64_t frames_received() const { return frames_received_; }
  uint64_t messages_sent() const { return messages_sent_; }
  uint64_t messages_received() const { return messages_received_; }
  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_received() const { return bytes_received_; }
  // Of messages that came before their Receive.
  size_t parked_bytes() const { return parked_bytes_; }

 private:
  struct Outgoing {
    PeerTag tag;
    std::vector<ConstPeerMemory> pieces;
    uint64_t size = 0;
    bool queued = false;  // in data_out_, now or before: once
    uint64_t framed = 0;  // bytes that frames were made of
    size_t piece = 0;     // where framed bytes end: a piece,
    size_t in_piece = 0;  // and the bytes of it
    absl::Time deadline;
    PeerTransport::Done sent;
  };
  struct Incoming {
    PeerMemory memory;
    uint64_t taken = 0;
    absl::Time deadline;
    PeerTransport::Sink sink;
    PeerTransport::Done received;
  };
  // A frame that is being written.
  struct OutFrame {
    std::array<uint8_t, kFrameHeaderBytes> header;
    std::vector<absl::Span<const uint8_t>> pieces;  // header, payload, padding
    size_t piece = 0;
    size_t written = 0;        // of pieces[piece]
    Outgoing* last = nullptr;  // the message that ends with this frame
    std::string text;          // of a kBye
  };
  void End(const absl::Status& status, bool is_done);
  absl::Status Check(absl::Span<const ConstPeerMemory> pieces) const;
  void Reject(const absl::Status& status, PeerTransport::Done done);
  void SetFailure(const absl::Status& status) {
    if (failure_.ok()) failure_ = status;
  }
  void NoteDeadline(absl::Time deadline) {
    next_deadline_ = std::min(next_deadline_, deadline);
  }
  // The next frame becomes out_, if there is one.
  void StartFrame();
  void BeginFrame();
  void EndSwapWith(absl::Span<const uint8_t> bytes);
  void StartData(Outgoing* message);
  void OnHeader(absl::Span<const uint8_t> bytes);
  void OnData(const FrameHeader& header);
  void OnReady(const FrameHeader& header);
  // The payload of the frame is there.
  void EndPayload();
  std::string SizesText(const PeerTag& tag, uint64_t sent,
                        uint64_t expected) const;

  const PeerGroup* const group_;
  const std::string peer_name_;

  absl::Status failure_;
  absl::Status gone_;  // why no message with the other side can begin; OK: none
  bool failed_ = false;
  absl::Time next_deadline_ = absl::InfiniteFuture();
  std::vector<std::pair<PeerTransport::Done, absl::Status>> completed_;

  // Out.
  absl::flat_hash_map<PeerTag, std::unique_ptr<Outgoing>> sends_;
  absl::flat_hash_map<PeerTag, uint64_t> readies_;  // sizes; no Send yet
  absl::flat_hash_map<PeerTag, uint64_t> eager_;    // sent before their kReady
  size_t eager_bytes_ = 0;
  std::deque<FrameHeader> ready_out_;
  std::deque<Outgoing*> data_out_;
  std::unique_ptr<OutFrame> out_;
  std::unique_ptr<OutFrame> spare_;  // out_'s memory, for the next one
  std::vector<absl::Span<const uint8_t>> output_;

  // In.
  absl::flat_hash_map<PeerTag, std::unique_ptr<Incoming>> receives_;
  absl::flat_hash_map<PeerTag, std::vector<uint8_t>> parked_;
  size_t parked_bytes_ = 0;
  FrameHeader in_;              // of the frame that comes
  size_t in_left_ = 0;          // bytes of its payload that have not come
  size_t in_padding_ = 0;       // and of its padding
  uint8_t* swap_in_ = nullptr;  // null: no swap is waited for
  PeerTag swap_tag_;
  size_t swap_bytes_ = 0;
  bool in_swap_ = false;             // the frame that comes is that of the swap
  Incoming* in_message_ = nullptr;   // null: to be parked, or a kBye
  std::vector<uint8_t> in_parking_;  // what has come of it

  uint64_t frames_received_ = 0;
  uint64_t messages_sent_ = 0;
  uint64_t messages_received_ = 0;
  uint64_t bytes_sent_ = 0;
  uint64_t bytes_received_ = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_PEER_CHANNEL_H_
