// Goal: no bytes from a peer break the reading of a PushPull frame.
// Method: the first byte chooses how the rest is cut into slices; what decodes
// is read to its last byte and must encode to a frame that decodes again.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/wire/frame.h"
#include "proto/parameter_server.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t step = 1 + data[0];
  std::vector<grpc::Slice> slices;
  for (size_t at = 1; at < size; at += step) {
    slices.emplace_back(data + at, std::min(step, size - at));
  }
  const grpc::ByteBuffer buffer(slices.data(), slices.size());

  syncline::PushPullHeader header;
  syncline::PayloadView payload;
  if (!syncline::DecodeFrame(buffer, &header, &payload).ok()) return 0;
  std::string values(payload.size_bytes(), '\0');
  payload.CopyTo(0, values.size(), values.data());

  const grpc::ByteBuffer again =
      syncline::EncodeFrame(header, {grpc::Slice(values)});
  SYNCLINE_CHECK(syncline::DecodeFrame(again, &header, &payload).ok());
  SYNCLINE_CHECK(payload.size_bytes() == values.size());
  return 0;
}
