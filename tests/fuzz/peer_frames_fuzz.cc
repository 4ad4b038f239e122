// The bytes that a rank may receive of another: any bytes, in any pieces, into
// a channel that waits for some messages and has some to send. The channel
// takes or refuses them; it does not grow beyond its bounds.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/check.h"
#include "worker/collectives/frame.h"
#include "worker/collectives/peer_channel.h"
#include "worker/collectives/peer_hello.h"

namespace syncline::worker {
namespace {

void Run(absl::Span<const uint8_t> input) {
  if (input.empty()) return;
  (void)DecodeHello({reinterpret_cast<const char*>(input.data()),
                     std::min(input.size(), kHelloBytes)});
  PeerGroup group;
  group.epoch = 1;
  group.peers.resize(2);
  PeerChannel channel(&group, 1);
  std::vector<uint8_t> in(300'000);
  std::vector<uint8_t> out(300'000);
  int open = 0;
  const auto done = [&open](absl::Status) { --open; };
  const absl::Time deadline = absl::UnixEpoch();
  channel.Receive({1, 64, 0}, {in.data(), in.size()}, deadline, nullptr, done);
  channel.Receive(
      {1, 64, 1}, {nullptr, 100}, deadline,
      [](size_t, absl::Span<const uint8_t>) {}, done);
  const ConstPeerMemory piece = {out.data(), out.size()};
  channel.Send({1, 64, 2}, {&piece, 1}, deadline, done);
  open += 3;
  const size_t step = 1 + input[0];
  input.remove_prefix(1);
  // Headers of the input get their checksums, or nothing would go further.
  std::vector<uint8_t> stream(input.begin(), input.end());
  for (size_t at = 0; at + kFrameHeaderBytes <= stream.size();) {
    FrameHeader header;
    header.type = static_cast<FrameHeader::Type>(1 + stream[at] % 4);
    const bool is_ready = header.type == FrameHeader::Type::kReady;
    header.length = is_ready ? 0 : stream[at + 1] * 256u + stream[at + 2];
    header.epoch = stream[at + 3] == 255 ? 2 : 1;
    header.tag = {1, 64, stream[at + 4] % 8u};
    const bool is_long = is_ready || header.type == FrameHeader::Type::kData;
    header.size = is_long && stream[at + 5] != 0 ? 300'000 : header.length;
    header.offset = stream[at + 6] * uint64_t{64};
    EncodeFrameHeader(header, stream.data() + at);
    at += kFrameHeaderBytes + PaddedFrameBytes(header.length);
  }
  size_t taken = 0;
  for (size_t end = step; taken < stream.size(); end += step) {
    end = std::min(end, stream.size());
    taken += channel.OnInput(
        absl::MakeSpan(stream).subspan(taken, end - std::min(taken, end)));
    SYNCLINE_CHECK(channel.parked_bytes() <= PeerChannel::kParkedBytesMax);
    if (end == stream.size() || !channel.failure().ok()) break;
  }
  for (int i = 0; i < 10; ++i) {
    size_t written = 0;
    for (const auto& bytes : channel.Output(4)) written += bytes.size();
    channel.OnWritten(written);
  }
  channel.Fail(absl::CancelledError("over"));
  for (auto& [callback, status] : channel.TakeCompleted()) callback(status);
  SYNCLINE_CHECK(open == 0);
}

}  // namespace
}  // namespace syncline::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  syncline::worker::Run({data, size});
  return 0;
}
