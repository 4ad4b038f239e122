#include "common/wire/frame.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

constexpr uint8_t kHeaderTag = 0x0a;   // field 1, length-delimited
constexpr uint8_t kPayloadTag = 0x12;  // field 2, length-delimited
constexpr uint8_t kSharedTag = 0x1a;   // field 3, length-delimited
constexpr size_t kHeaderBytesMax = 64 << 10;
constexpr size_t kVarintBytesMax = 5;  // 32 bits

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed frame: ", what));
}

// Reads the front of a message that is spread over slices.
class Reader {
 public:
  explicit Reader(const std::vector<grpc::Slice>& slices) : slices_(slices) {
    for (const grpc::Slice& slice : slices) left_ += slice.size();
  }

  size_t left() const { return left_; }
  // Where the next byte is; only meaningful while left() > 0.
  size_t slice() const { return slice_; }
  size_t offset() const { return offset_; }

  bool ReadByte(uint8_t* byte) { return Read(1, byte); }

  bool Read(size_t size, void* out) {
    if (size > left_) return false;
    left_ -= size;
    for (size_t done = 0; done < size;) {
      const size_t n = std::min(size - done, slices_[slice_].size() - offset_);
      std::memcpy(static_cast<uint8_t*>(out) + done,
                  slices_[slice_].begin() + offset_, n);
      done += n;
      offset_ += n;
      SkipEmpty();
    }
    return true;
  }

  bool ReadVarint(uint64_t* value) {
    *value = 0;
    for (size_t i = 0; i < kVarintBytesMax; ++i) {
      uint8_t byte = 0;
      if (!ReadByte(&byte)) return false;
      *value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

 private:
  void SkipEmpty() {
    while (slice_ < slices_.size() && offset_ == slices_[slice_].size()) {
      ++slice_;
      offset_ = 0;
    }
  }

  const std::vector<grpc::Slice>& slices_;
  size_t slice_ = 0;
  size_t offset_ = 0;
  size_t left_ = 0;
};

// Takes all that is left, as slices; the first loses what was read of it.
std::vector<grpc::Slice> TakeRest(const Reader& reader,
                                  std::vector<grpc::Slice> slices) {
  std::vector<grpc::Slice> rest;
  if (reader.left() == 0) return rest;
  for (size_t i = reader.slice(); i < slices.size(); ++i) {
    if (slices[i].size() == 0) continue;
    if (i == reader.slice() && reader.offset() > 0) {
      rest.push_back(slices[i].sub(reader.offset(), slices[i].size()));
    } else {
      rest.push_back(std::move(slices[i]));
    }
  }
  return rest;
}

absl::Status ReadField(Reader* reader, absl::string_view name, size_t bytes_max,
                       std::string* bytes) {
  uint64_t size = 0;
  if (!reader->ReadVarint(&size)) {
    return Malformed(absl::StrCat("unreadable ", name, " size"));
  }
  if (size > bytes_max) {
    return Malformed(absl::StrCat("a ", name, " of ", size, " bytes, at most ",
                                  bytes_max, " are allowed"));
  }
  bytes->resize(size);
  if (!reader->Read(size, bytes->data())) {
    return Malformed(absl::StrCat("a ", name, " of ", size, " bytes, but ",
                                  reader->left(), " are left"));
  }
  return absl::OkStatus();
}

// Reads the size of the payload, which is all that is left.
absl::Status ReadPayloadSize(Reader* reader) {
  uint64_t size = 0;
  if (!reader->ReadVarint(&size)) return Malformed("unreadable payload size");
  if (size != reader->left()) {
    return Malformed(absl::StrCat("a payload of ", size, " bytes, but ",
                                  reader->left(), " are left"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FrameParts> SplitFrame(const grpc::ByteBuffer& frame) {
  std::vector<grpc::Slice> slices;
  if (!frame.Valid() || !frame.Dump(&slices).ok()) {
    return Malformed("unreadable buffer");
  }
  Reader reader(slices);
  FrameParts parts;
  uint8_t tag = 0;
  if (!reader.ReadByte(&tag) || tag != kHeaderTag) {
    return Malformed("it does not start with a header");
  }
  SYNCLINE_RETURN_IF_ERROR(
      ReadField(&reader, "header", kHeaderBytesMax, &parts.header));
  if (reader.left() == 0) return parts;
  if (!reader.ReadByte(&tag)) return Malformed("unreadable");
  if (tag == kSharedTag) {
    std::string shared;
    SYNCLINE_RETURN_IF_ERROR(
        ReadField(&reader, "shared part", kHeaderBytesMax, &shared));
    if (!parts.shared.ParseFromString(shared)) {
      return Malformed("the shared part does not parse");
    }
    if (reader.left() == 0) return parts;
    reader.ReadByte(&tag);
  }
  if (tag != kPayloadTag) {
    return Malformed("something other than a payload follows the header");
  }
  SYNCLINE_RETURN_IF_ERROR(ReadPayloadSize(&reader));
  if (reader.left() > 0 && parts.shared.payload_size() > 0) {
    return Malformed("a payload in shared memory and another one");
  }
  parts.payload = TakeRest(reader, std::move(slices));
  return parts;
}

grpc::ByteBuffer JoinFrame(FrameParts parts) {
  size_t payload_bytes = 0;
  for (const grpc::Slice& slice : parts.payload) payload_bytes += slice.size();
  std::string front;
  front.push_back(kHeaderTag);
  AppendVarint(parts.header.size(), &front);
  front += parts.header;
  if (const size_t shared_bytes = parts.shared.ByteSizeLong();
      shared_bytes > 0) {
    front.push_back(kSharedTag);
    AppendVarint(shared_bytes, &front);
    parts.shared.AppendToString(&front);
  }
  if (payload_bytes > 0) {
    front.push_back(kPayloadTag);
    AppendVarint(payload_bytes, &front);
  }
  parts.payload.insert(parts.payload.begin(), grpc::Slice(front));
  return grpc::ByteBuffer(parts.payload.data(), parts.payload.size());
}

grpc::ByteBuffer EncodeFrame(const google::protobuf::MessageLite& header,
                             std::vector<grpc::Slice> payload) {
  return JoinFrame({.header = header.SerializeAsString(),
                    .shared = {},
                    .payload = std::move(payload)});
}

PayloadView::PayloadView(std::vector<grpc::Slice> slices)
    : slices_(std::move(slices)) {
  starts_.reserve(slices_.size());
  for (const grpc::Slice& slice : slices_) {
    starts_.push_back(size_bytes_);
    size_bytes_ += slice.size();
  }
}

void PayloadView::CopyTo(size_t offset, size_t size, void* out) const {
  if (size == 0) return;
  size_t i = std::upper_bound(starts_.begin(), starts_.end(), offset) -
             starts_.begin() - 1;
  uint8_t* to = static_cast<uint8_t*>(out);
  for (size_t skip = offset - starts_[i]; size > 0; ++i, skip = 0) {
    const size_t n = std::min(size, slices_[i].size() - skip);
    std::memcpy(to, slices_[i].begin() + skip, n);
    to += n;
    size -= n;
  }
}

absl::Status DecodeFrame(const grpc::ByteBuffer& buffer,
                         google::protobuf::MessageLite* header,
                         PayloadView* payload, SharedMemory* shared) {
  SYNCLINE_ASSIGN_OR_RETURN(FrameParts parts, SplitFrame(buffer));
  if (!header->ParseFromString(parts.header)) {
    return Malformed("the header does not parse");
  }
  if (shared != nullptr) {
    *shared = std::move(parts.shared);
  } else if (parts.shared.ByteSizeLong() > 0) {
    return Malformed("shared memory where there is none");
  }
  *payload = PayloadView(std::move(parts.payload));
  return absl::OkStatus();
}

}  // namespace syncline
