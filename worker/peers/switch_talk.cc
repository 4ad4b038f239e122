#include "worker/peers/switch_talk.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/printable.h"
#include "worker/peers/peer_messages.h"

namespace syncline::worker {
namespace {

// Of kSwitchReady.
struct ReadyMessage {
  static constexpr size_t kTextBytesMax = 1007;
  uint64_t found = 0;
  int32_t code = 0;  // not 0: it cannot
  uint32_t reserved = 0;
  char text[kTextBytesMax + 1] = {};  // ends with a zero
};
// The items of kSwitchReady.
constexpr uint32_t kOfChange = 0;
constexpr uint32_t kOfPart = 1;

ReadyMessage MessageOf(const SwitchTalk::Ready& ready) {
  ReadyMessage message;
  message.found = ready.found;
  message.code = static_cast<int32_t>(ready.status.code());
  const absl::string_view text = ready.status.message();
  std::copy_n(text.data(), std::min(text.size(), ReadyMessage::kTextBytesMax),
              message.text);
  return message;
}

absl::Status StatusOf(const ReadyMessage& message, absl::string_view rank,
                      int64_t clock) {
  if (message.code == 0) return absl::OkStatus();
  const absl::string_view text(
      message.text, strnlen(message.text, ReadyMessage::kTextBytesMax));
  return absl::Status(message.code > 0 && message.code <= 16
                          ? static_cast<absl::StatusCode>(message.code)
                          : absl::StatusCode::kUnknown,
                      absl::StrCat(rank, ", clock ", clock, ": ",
                                   Printable(std::string(text))));
}

// Of kSwitchVerdict.
struct VerdictMessage {
  uint64_t commits = 0;
  uint64_t reserved[7] = {};
};

// A message with its memory, until it has come or gone.
template <typename Message>
struct OnItsWay {
  Message message;
  std::atomic<bool> done{false};
};

template <typename Message>
std::shared_ptr<OnItsWay<Message>> Send(PeerLink* link, uint32_t to,
                                        const PeerTag& tag,
                                        const Message& message) {
  auto way = std::make_shared<OnItsWay<Message>>();
  way->message = message;
  link->transport().Send(
      to, tag, {BytesOfAll(absl::MakeConstSpan(&way->message, 1))},
      absl::InfiniteFuture(), [way, link](const absl::Status& status) {
        if (!status.ok()) return;
        link->Moved();
        way->done = true;
      });
  return way;
}

template <typename Message>
std::shared_ptr<OnItsWay<Message>> Receive(PeerLink* link, uint32_t from,
                                           const PeerTag& tag) {
  auto way = std::make_shared<OnItsWay<Message>>();
  link->transport().Receive(
      from, tag, WritableBytesOfAll(absl::MakeSpan(&way->message, 1)),
      absl::InfiniteFuture(), [way, link](const absl::Status& status) {
        if (!status.ok()) return;
        link->Moved();
        way->done = true;
      });
  return way;
}

}  // namespace

absl::Status SwitchTalk::AwaitParts(const absl::Status& own) {
  const PeerTag tag = {.clock = clock_, .kind = kSwitchReady, .item = kOfPart};
  const ReadyMessage message = MessageOf({own, 0});
  std::vector<std::shared_ptr<OnItsWay<ReadyMessage>>> out;
  std::vector<std::shared_ptr<OnItsWay<ReadyMessage>>> in(link_->ranks());
  for (uint32_t rank = 0; rank < link_->ranks(); ++rank) {
    if (rank == link_->rank()) continue;
    in[rank] = Receive<ReadyMessage>(link_.get(), rank, tag);
    out.push_back(Send(link_.get(), rank, tag, message));
  }
  const auto is_done = [](const auto& way) {
    return way == nullptr || way->done.load();
  };
  const absl::Status all = link_->Await(
      [&] {
        return std::all_of(in.begin(), in.end(), is_done) &&
               std::all_of(out.begin(), out.end(), is_done);
      },
      [&] {
        std::string text =
            absl::StrCat("clock ", clock_, ", the state that is read by");
        for (uint32_t rank = 0; rank < in.size(); ++rank) {
          if (is_done(in[rank])) continue;
          absl::StrAppend(&text, " ", link_->group().NameOf(rank),
                          link_->ActivityText(rank));
        }
        return text;
      });
  if (!own.ok()) return own;
  if (!all.ok()) return all;
  for (uint32_t rank = 0; rank < in.size(); ++rank) {
    if (in[rank] == nullptr) continue;
    absl::Status theirs =
        StatusOf(in[rank]->message, link_->group().NameOf(rank), clock_);
    if (!theirs.ok()) return theirs;
  }
  return absl::OkStatus();
}

absl::Status SwitchTalk::SendReady(const Ready& own) {
  const auto way =
      Send(link_.get(), 0,
           {.clock = clock_, .kind = kSwitchReady, .item = kOfChange},
           MessageOf(own));
  return link_->Await([&] { return way->done.load(); },
                      [&] {
                        return absl::StrCat(
                            "clock ", clock_, ", ", link_->group().NameOf(0),
                            ", who is told of a change of the strategy");
                      });
}

absl::StatusOr<std::vector<SwitchTalk::Ready>> SwitchTalk::AwaitReady() {
  std::vector<std::shared_ptr<OnItsWay<ReadyMessage>>> ways(link_->ranks());
  for (uint32_t rank = 1; rank < link_->ranks(); ++rank) {
    ways[rank] = Receive<ReadyMessage>(
        link_.get(), rank,
        {.clock = clock_, .kind = kSwitchReady, .item = kOfChange});
  }
  const auto is_missing = [&](uint32_t rank) {
    return ways[rank] != nullptr && !ways[rank]->done.load();
  };
  const absl::Status all = link_->Await(
      [&] {
        for (uint32_t rank = 1; rank < link_->ranks(); ++rank) {
          if (is_missing(rank)) return false;
        }
        return true;
      },
      [&] {
        std::string text = absl::StrCat(
            "clock ", clock_, ", the part in a change of the strategy of");
        for (uint32_t rank = 1; rank < link_->ranks(); ++rank) {
          if (is_missing(rank)) {
            absl::StrAppend(&text, " ", link_->group().NameOf(rank));
          }
        }
        return text;
      });
  if (!all.ok()) return all;
  std::vector<Ready> ready(link_->ranks());
  for (uint32_t rank = 1; rank < link_->ranks(); ++rank) {
    const ReadyMessage& message = ways[rank]->message;
    ready[rank].found = message.found;
    ready[rank].status = StatusOf(message, link_->group().NameOf(rank), clock_);
  }
  return ready;
}

absl::Status SwitchTalk::SendVerdict(bool commits) {
  std::vector<std::shared_ptr<OnItsWay<VerdictMessage>>> ways;
  VerdictMessage message;
  message.commits = commits ? 1 : 0;
  for (uint32_t rank = 1; rank < link_->ranks(); ++rank) {
    ways.push_back(Send(link_.get(), rank,
                        {.clock = clock_, .kind = kSwitchVerdict, .item = 0},
                        message));
  }
  return link_->Await(
      [&] {
        return std::all_of(ways.begin(), ways.end(),
                           [](const auto& way) { return way->done.load(); });
      },
      [&] {
        return absl::StrCat("clock ", clock_,
                            ", ranks that are told whether the strategy "
                            "changes");
      });
}

absl::StatusOr<bool> SwitchTalk::AwaitVerdict() {
  const auto way = Receive<VerdictMessage>(
      link_.get(), 0, {.clock = clock_, .kind = kSwitchVerdict, .item = 0});
  const absl::Status status = link_->Await(
      [&] { return way->done.load(); },
      [&] {
        return absl::StrCat("clock ", clock_, ", ", link_->group().NameOf(0),
                            ", who decides whether the strategy changes",
                            link_->ActivityText(0));
      });
  if (!status.ok()) return status;
  return way->message.commits != 0;
}

}  // namespace syncline::worker
