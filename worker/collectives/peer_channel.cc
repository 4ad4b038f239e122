#include "worker/collectives/peer_channel.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"

namespace syncline::worker {
namespace {

constexpr std::array<uint8_t, kFrameHeaderBytes> kPadding = {};

}  // namespace

PeerChannel::PeerChannel(const PeerGroup* group, uint32_t peer)
    : group_(group), peer_name_(group->NameOf(peer)) {}

absl::Status PeerChannel::Check(
    absl::Span<const ConstPeerMemory> pieces) const {
  for (const ConstPeerMemory& piece : pieces) {
    if (piece.device != ConstPeerMemory::kHost) {
      return absl::UnimplementedError(
          absl::StrCat("memory of device ", piece.device,
                       " cannot be sent or received, only the host's"));
    }
  }
  return absl::OkStatus();
}

void PeerChannel::Reject(const absl::Status& status, PeerTransport::Done done) {
  SetFailure(status);
  completed_.emplace_back(std::move(done), status);
}

std::string PeerChannel::SizesText(const PeerTag& tag, uint64_t sent,
                                   uint64_t expected) const {
  return absl::StrCat("of message (", ToText(tag), ") ", sent,
                      " bytes are sent, but ", expected, " are expected");
}

void PeerChannel::Send(const PeerTag& tag,
                       absl::Span<const ConstPeerMemory> pieces,
                       absl::Time deadline, PeerTransport::Done sent) {
  if (failed_) return Reject(failure_, std::move(sent));
  if (!gone_.ok()) return Reject(gone_, std::move(sent));
  if (auto status = Check(pieces); !status.ok()) {
    return Reject(status, std::move(sent));
  }
  if (sends_.size() >= kMessagesMax) {
    return Reject(absl::ResourceExhaustedError(absl::StrCat(
                      kMessagesMax, " messages wait for ", peer_name_)),
                  std::move(sent));
  }
  if (sends_.contains(tag) || eager_.contains(tag)) {
    return Reject(absl::InvalidArgumentError(
                      absl::StrCat("message (", ToText(tag), ") to ",
                                   peer_name_, " is under way already")),
                  std::move(sent));
  }
  auto message = std::make_unique<Outgoing>();
  message->tag = tag;
  message->deadline = deadline;
  message->sent = std::move(sent);
  for (const ConstPeerMemory& piece : pieces) {
    if (piece.size == 0) continue;
    message->pieces.push_back(piece);
    message->size += piece.size;
  }
  if (const auto ready = readies_.find(tag); ready != readies_.end()) {
    if (ready->second != message->size) {
      return Reject(
          absl::InvalidArgumentError(absl::StrCat(
              peer_name_, ": ", SizesText(tag, message->size, ready->second))),
          std::move(message->sent));
    }
    readies_.erase(ready);
    message->queued = true;
    data_out_.push_back(message.get());
  } else if (message->size <= kEagerMax &&
             eager_bytes_ + message->size <= kEagerBytes &&
             eager_.size() < kMessagesMax) {
    eager_[tag] = message->size;
    eager_bytes_ += message->size;
    message->queued = true;
    data_out_.push_back(message.get());
  }
  NoteDeadline(deadline);
  sends_[tag] = std::move(message);
}

void PeerChannel::Receive(const PeerTag& tag, PeerMemory memory,
                          absl::Time deadline, PeerTransport::Sink sink,
                          PeerTransport::Done received) {
  if (failed_) return Reject(failure_, std::move(received));
  const ConstPeerMemory piece = {memory.data, memory.size, memory.device,
                                 memory.stream};
  if (auto status = Check({&piece, 1}); !status.ok()) {
    return Reject(status, std::move(received));
  }
  if (receives_.size() >= kMessagesMax) {
    return Reject(absl::ResourceExhaustedError(
                      absl::StrCat(kMessagesMax, " messages of ", peer_name_,
                                   " are waited "
                                   "for")),
                  std::move(received));
  }
  if (receives_.contains(tag)) {
    return Reject(absl::InvalidArgumentError(
                      absl::StrCat("message (", ToText(tag), ") of ",
                                   peer_name_, " is under way already")),
                  std::move(received));
  }
  FrameHeader ready;
  ready.type = FrameHeader::Type::kReady;
  ready.epoch = group_->epoch;
  ready.tag = tag;
  ready.size = memory.size;
  ready_out_.push_back(ready);
  if (const auto parked = parked_.find(tag); parked != parked_.end()) {
    const std::vector<uint8_t> bytes = std::move(parked->second);
    parked_.erase(parked);
    parked_bytes_ -= bytes.size();
    if (bytes.size() != memory.size) {
      return Reject(
          absl::InvalidArgumentError(absl::StrCat(
              peer_name_, ": ", SizesText(tag, bytes.size(), memory.size))),
          std::move(received));
    }
    if (sink != nullptr) {
      if (!bytes.empty()) sink(0, bytes);
    } else if (!bytes.empty()) {
      std::memcpy(memory.data, bytes.data(), bytes.size());
    }
    ++messages_received_;
    completed_.emplace_back(std::move(received), absl::OkStatus());
    return;
  }
  if (!gone_.ok()) return Reject(gone_, std::move(received));
  auto message = std::make_unique<Incoming>();
  message->memory = memory;
  message->deadline = deadline;
  message->sink = std::move(sink);
  message->received = std::move(received);
  NoteDeadline(deadline);
  receives_[tag] = std::move(message);
}

void PeerChannel::StartSwap(const PeerTag& tag, absl::Span<const uint8_t> out,
                            uint8_t* in) {
  FrameHeader header;
  header.type = FrameHeader::Type::kSwap;
  header.epoch = group_->epoch;
  header.tag = tag;
  header.size = out.size();
  header.length = static_cast<uint32_t>(out.size());
  BeginFrame();
  EncodeFrameHeader(header, out_->header.data());
  if (!out.empty()) out_->pieces.push_back(out);
  const size_t padding = PaddedFrameBytes(out.size()) - out.size();
  if (padding > 0) out_->pieces.emplace_back(kPadding.data(), padding);
  ++messages_sent_;
  bytes_sent_ += out.size();
  swap_tag_ = tag;
  swap_bytes_ = out.size();
  swap_in_ = in;
  if (parked_.empty()) return;
  const auto parked = parked_.find(tag);
  if (parked == parked_.end()) return;
  // in_parking_ may have half of another message.
  const std::vector<uint8_t> bytes = std::move(parked->second);
  parked_.erase(parked);
  parked_bytes_ -= bytes.size();
  EndSwapWith(bytes);
}

void PeerChannel::EndSwapWith(absl::Span<const uint8_t> bytes) {
  if (bytes.size() != swap_bytes_) {
    SetFailure(absl::InvalidArgumentError(absl::StrCat(
        peer_name_, ": ", SizesText(swap_tag_, bytes.size(), swap_bytes_))));
    return;
  }
  if (!bytes.empty()) std::memcpy(swap_in_, bytes.data(), bytes.size());
  swap_in_ = nullptr;
  ++messages_received_;
}

absl::Span<const absl::Span<const uint8_t>> PeerChannel::Output(
    size_t pieces_max) {
  // After a failure nothing more is sent, but for the last frame of End.
  if (!failure_.ok() && !failed_) return {};
  if (out_ == nullptr) StartFrame();
  if (out_ == nullptr) return {};
  output_.clear();
  for (size_t i = out_->piece;
       i < out_->pieces.size() && output_.size() < pieces_max; ++i) {
    output_.push_back(
        out_->pieces[i].subspan(i == out_->piece ? out_->written : 0));
  }
  return output_;
}

void PeerChannel::OnWritten(size_t bytes) {
  while (bytes > 0 && out_ != nullptr) {
    const size_t left = out_->pieces[out_->piece].size() - out_->written;
    const size_t now = std::min(left, bytes);
    out_->written += now;
    bytes -= now;
    if (now < left) return;
    out_->written = 0;
    if (++out_->piece < out_->pieces.size()) continue;
    if (Outgoing* message = out_->last; message != nullptr) {
      ++messages_sent_;
      bytes_sent_ += message->size;
      completed_.emplace_back(std::move(message->sent), absl::OkStatus());
      sends_.erase(PeerTag(message->tag));
    }
    spare_ = std::move(out_);
  }
}

void PeerChannel::BeginFrame() {
  out_ = spare_ != nullptr ? std::move(spare_) : std::make_unique<OutFrame>();
  out_->pieces.clear();
  out_->piece = 0;
  out_->written = 0;
  out_->last = nullptr;
  out_->pieces.push_back(out_->header);
}

void PeerChannel::StartFrame() {
  if (ready_out_.empty() && data_out_.empty()) return;
  BeginFrame();
  // Short, and the other side cannot go on without it.
  if (!ready_out_.empty()) {
    EncodeFrameHeader(ready_out_.front(), out_->header.data());
    ready_out_.pop_front();
    return;
  }
  StartData(data_out_.front());
  if (out_->last != nullptr) data_out_.pop_front();
}

void PeerChannel::StartData(Outgoing* message) {
  FrameHeader header;
  header.type = FrameHeader::Type::kData;
  header.epoch = group_->epoch;
  header.tag = message->tag;
  header.size = message->size;
  header.offset = message->framed;
  header.length = static_cast<uint32_t>(
      std::min<uint64_t>(kFramePayloadMax, message->size - message->framed));
  EncodeFrameHeader(header, out_->header.data());
  for (size_t left = header.length; left > 0;) {
    const ConstPeerMemory& piece = message->pieces[message->piece];
    const size_t now = std::min(left, piece.size - message->in_piece);
    out_->pieces.emplace_back(piece.data + message->in_piece, now);
    left -= now;
    message->in_piece += now;
    if (message->in_piece == piece.size) {
      ++message->piece;
      message->in_piece = 0;
    }
  }
  message->framed += header.length;
  const size_t padding = PaddedFrameBytes(header.length) - header.length;
  if (padding > 0) out_->pieces.emplace_back(kPadding.data(), padding);
  if (message->framed == message->size) out_->last = message;
}

absl::Span<uint8_t> PeerChannel::DirectInput() {
  if (failed_ || in_left_ == 0 || in_message_ == nullptr ||
      in_message_->sink != nullptr) {
    return {};
  }
  return {in_message_->memory.data + in_message_->taken, in_left_};
}

void PeerChannel::OnDirectInput(size_t bytes) {
  in_message_->taken += bytes;
  in_left_ -= bytes;
  bytes_received_ += bytes;
  if (in_left_ == 0 && in_padding_ == 0) EndPayload();
}

size_t PeerChannel::OnInput(absl::Span<const uint8_t> bytes) {
  const size_t all = bytes.size();
  if (failed_) return all;
  while (failure_.ok()) {
    if (in_left_ > 0) {
      size_t now = std::min(in_left_, bytes.size());
      const bool to_sink =
          in_message_ != nullptr && in_message_->sink != nullptr;
      if (to_sink && now < in_left_) now -= now % kFrameHeaderBytes;
      if (now == 0) break;
      if (to_sink) {
        in_message_->sink(in_message_->taken, bytes.subspan(0, now));
      } else if (in_message_ != nullptr) {
        std::memcpy(in_message_->memory.data + in_message_->taken, bytes.data(),
                    now);
      } else if (in_swap_) {
        std::memcpy(swap_in_ + (in_.length - in_left_), bytes.data(), now);
      } else {
        in_parking_.insert(in_parking_.end(), bytes.begin(),
                           bytes.begin() + now);
      }
      if (in_message_ != nullptr) in_message_->taken += now;
      bytes_received_ += now;
      in_left_ -= now;
      bytes.remove_prefix(now);
      if (in_left_ == 0 && in_padding_ == 0) EndPayload();
    } else if (in_padding_ > 0) {
      const size_t now = std::min(in_padding_, bytes.size());
      if (now == 0) break;
      in_padding_ -= now;
      bytes.remove_prefix(now);
      if (in_padding_ == 0) EndPayload();
    } else {
      if (bytes.size() < kFrameHeaderBytes) break;
      OnHeader(bytes.subspan(0, kFrameHeaderBytes));
      bytes.remove_prefix(kFrameHeaderBytes);
    }
  }
  return all - bytes.size();
}

void PeerChannel::OnHeader(absl::Span<const uint8_t> bytes) {
  ++frames_received_;
  auto header = DecodeFrameHeader(bytes);
  if (!header.ok()) {
    SetFailure(absl::DataLossError(
        absl::StrCat(peer_name_, " sent ", header.status().message())));
    return;
  }
  if (header->epoch != group_->epoch) {
    SetFailure(absl::AbortedError(
        absl::StrCat(peer_name_, " is in group epoch ", header->epoch,
                     ", this is ", group_->epoch)));
    return;
  }
  switch (header->type) {
    case FrameHeader::Type::kData:
    case FrameHeader::Type::kSwap:
      OnData(*header);
      break;
    case FrameHeader::Type::kReady:
      OnReady(*header);
      break;
    case FrameHeader::Type::kBye:
      in_ = *header;
      in_message_ = nullptr;
      in_parking_.clear();
      in_left_ = header->length;
      in_padding_ = PaddedFrameBytes(header->length) - header->length;
      if (header->length == 0) EndPayload();
      break;
  }
}

void PeerChannel::OnData(const FrameHeader& header) {
  in_ = header;
  in_message_ = nullptr;
  in_parking_.clear();
  in_left_ = header.length;
  in_padding_ = PaddedFrameBytes(header.length) - header.length;
  if (header.type == FrameHeader::Type::kSwap && swap_in_ != nullptr &&
      header.tag == swap_tag_) {
    if (header.size != swap_bytes_) {
      SetFailure(absl::InvalidArgumentError(absl::StrCat(
          peer_name_, ": ", SizesText(swap_tag_, header.size, swap_bytes_))));
      return;
    }
    in_swap_ = true;
    if (header.length == 0) EndPayload();
    return;
  }
  const auto receive = header.type == FrameHeader::Type::kData
                           ? receives_.find(header.tag)
                           : receives_.end();
  if (receive != receives_.end()) {
    Incoming* message = receive->second.get();
    if (header.size != message->memory.size) {
      SetFailure(absl::InvalidArgumentError(absl::StrCat(
          peer_name_, ": ",
          SizesText(header.tag, header.size, message->memory.size))));
      return;
    }
    if (header.offset != message->taken) {
      SetFailure(absl::DataLossError(
          absl::StrCat(peer_name_, " sent byte ", header.offset, " where byte ",
                       message->taken, " of message (", ToText(header.tag),
                       ") was to come")));
      return;
    }
    in_message_ = message;
  } else if (header.size > kEagerMax || header.length != header.size ||
             parked_bytes_ + header.size > kParkedBytesMax ||
             parked_.size() >= 2 * kMessagesMax ||
             parked_.contains(header.tag)) {
    SetFailure(absl::DataLossError(
        absl::StrCat(peer_name_, " sent message (", ToText(header.tag), ") of ",
                     header.size, " bytes, which was not asked for")));
    return;
  }
  if (header.length == 0) EndPayload();
}

void PeerChannel::OnReady(const FrameHeader& header) {
  const PeerTag& tag = header.tag;
  uint64_t size = header.size;
  if (const auto eager = eager_.find(tag); eager != eager_.end()) {
    size = eager->second;
    eager_bytes_ -= eager->second;
    eager_.erase(eager);
  } else if (const auto send = sends_.find(tag); send != sends_.end()) {
    Outgoing* message = send->second.get();
    if (message->queued) {
      SetFailure(absl::DataLossError(absl::StrCat(
          peer_name_, " asked twice for message (", ToText(tag), ")")));
      return;
    }
    size = message->size;
    message->queued = true;
    if (size == header.size) data_out_.push_back(message);
  } else if (readies_.size() >= kMessagesMax || readies_.contains(tag)) {
    SetFailure(absl::DataLossError(
        absl::StrCat(peer_name_, " asks for too many messages, or twice for (",
                     ToText(tag), ")")));
    return;
  } else {
    readies_[tag] = header.size;
  }
  if (size != header.size) {
    SetFailure(absl::InvalidArgumentError(
        absl::StrCat(peer_name_, ": ", SizesText(tag, size, header.size))));
  }
}

void PeerChannel::EndPayload() {
  if (in_.type == FrameHeader::Type::kBye) {
    const std::string text = absl::StrCat(
        peer_name_, " has left: ",
        Printable(std::string(in_parking_.begin(), in_parking_.end())));
    if (in_.tag.kind == 0) {
      gone_ = absl::UnavailableError(text);
      if (open() > 0) SetFailure(gone_);
      return;
    }
    auto code = in_.tag.kind <= 16 ? static_cast<absl::StatusCode>(in_.tag.kind)
                                   : absl::StatusCode::kUnavailable;
    // Why the other rank has closed is its own to say; here it is only gone.
    if (code == absl::StatusCode::kCancelled) {
      code = absl::StatusCode::kUnavailable;
    }
    SetFailure(absl::Status(code, text));
    return;
  }
  if (in_swap_) {
    in_swap_ = false;
    swap_in_ = nullptr;
    ++messages_received_;
    return;
  }
  if (in_.type == FrameHeader::Type::kSwap && swap_in_ != nullptr &&
      in_.tag == swap_tag_) {
    EndSwapWith(in_parking_);
    return;
  }
  if (in_message_ == nullptr) {
    // Its Receive may have come meanwhile.
    const auto receive = in_.type == FrameHeader::Type::kData
                             ? receives_.find(in_.tag)
                             : receives_.end();
    if (receive == receives_.end()) {
      parked_bytes_ += in_parking_.size();
      parked_[in_.tag] = std::exchange(in_parking_, {});
      return;
    }
    in_message_ = receive->second.get();
    if (in_message_->memory.size != in_parking_.size()) {
      SetFailure(absl::InvalidArgumentError(absl::StrCat(
          peer_name_, ": ",
          SizesText(in_.tag, in_parking_.size(), in_message_->memory.size))));
      return;
    }
    if (in_message_->sink != nullptr) {
      if (!in_parking_.empty()) in_message_->sink(0, in_parking_);
    } else if (!in_parking_.empty()) {
      std::memcpy(in_message_->memory.data, in_parking_.data(),
                  in_parking_.size());
    }
    in_message_->taken = in_parking_.size();
  }
  if (in_message_->taken == in_message_->memory.size) {
    ++messages_received_;
    completed_.emplace_back(std::move(in_message_->received), absl::OkStatus());
    receives_.erase(in_.tag);
  }
  in_message_ = nullptr;
}

void PeerChannel::OnTime(absl::Time now) {
  if (now < next_deadline_ || failed_) return;
  next_deadline_ = absl::InfiniteFuture();
  for (const auto& [tag, message] : receives_) {
    NoteDeadline(message->deadline);
    if (now < message->deadline) continue;
    SetFailure(absl::DeadlineExceededError(absl::StrCat(
        peer_name_, " has not sent message (", ToText(tag), ") in time: ",
        message->taken, " of ", message->memory.size, " bytes have come")));
  }
  for (const auto& [tag, message] : sends_) {
    NoteDeadline(message->deadline);
    if (now < message->deadline) continue;
    SetFailure(absl::DeadlineExceededError(
        absl::StrCat(peer_name_, " has not taken message (", ToText(tag),
                     ") of ", message->size, " bytes in time: it has ",
                     message->framed > 0 ? "not taken all that it asked for"
                                         : "not asked for it")));
  }
}

void PeerChannel::Leave() {
  End(absl::CancelledError("it is done"), open() == 0 && failure_.ok());
}

void PeerChannel::End(const absl::Status& status, bool is_done) {
  if (failed_) return;
  failed_ = true;
  SetFailure(status);
  next_deadline_ = absl::InfiniteFuture();
  // The frame under way is the caller's memory, unless it is a kReady.
  const bool torn = out_ != nullptr && (out_->written > 0 || out_->piece > 0);
  for (auto& [tag, message] : receives_) {
    completed_.emplace_back(std::move(message->received), failure_);
  }
  for (auto& [tag, message] : sends_) {
    completed_.emplace_back(std::move(message->sent), failure_);
  }
  receives_.clear();
  sends_.clear();
  data_out_.clear();
  ready_out_.clear();
  parked_.clear();
  readies_.clear();
  eager_.clear();
  eager_bytes_ = 0;
  parked_bytes_ = 0;
  in_message_ = nullptr;
  in_swap_ = false;
  swap_in_ = nullptr;
  in_left_ = 0;
  out_ = nullptr;
  if (torn) return;
  FrameHeader bye;
  bye.type = FrameHeader::Type::kBye;
  bye.epoch = group_->epoch;
  bye.tag.kind = is_done ? 0 : static_cast<uint32_t>(failure_.code());
  out_ = std::make_unique<OutFrame>();
  out_->text = std::string(failure_.message().substr(0, kByeTextMax));
  bye.length = static_cast<uint32_t>(out_->text.size());
  EncodeFrameHeader(bye, out_->header.data());
  out_->pieces.push_back(out_->header);
  if (!out_->text.empty()) {
    out_->pieces.emplace_back(
        reinterpret_cast<const uint8_t*>(out_->text.data()), out_->text.size());
    const size_t padding = PaddedFrameBytes(bye.length) - bye.length;
    if (padding > 0) out_->pieces.emplace_back(kPadding.data(), padding);
  }
}

}  // namespace syncline::worker
