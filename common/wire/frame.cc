#include "common/wire/frame.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace syncline {
namespace {

constexpr uint8_t kHeaderTag = 0x0a;   // field 1, length-delimited
constexpr uint8_t kPayloadTag = 0x12;  // field 2, length-delimited
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

absl::Status ReadHeader(Reader* reader, google::protobuf::MessageLite* header) {
  uint8_t tag = 0;
  uint64_t size = 0;
  if (!reader->ReadByte(&tag) || tag != kHeaderTag) {
    return Malformed("it does not start with a header");
  }
  if (!reader->ReadVarint(&size)) return Malformed("unreadable header size");
  if (size > kHeaderBytesMax) {
    return Malformed(absl::StrCat("a header of ", size, " bytes, at most ",
                                  kHeaderBytesMax, " are allowed"));
  }
  std::string bytes(size, '\0');
  if (!reader->Read(size, bytes.data())) {
    return Malformed(absl::StrCat("a header of ", size, " bytes, but ",
                                  reader->left(), " are left"));
  }
  if (!header->ParseFromString(bytes)) {
    return Malformed("the header does not parse");
  }
  return absl::OkStatus();
}

absl::Status ReadPayloadSize(Reader* reader, size_t* size_bytes) {
  *size_bytes = 0;
  if (reader->left() == 0) return absl::OkStatus();
  uint8_t tag = 0;
  uint64_t size = 0;
  if (!reader->ReadByte(&tag) || tag != kPayloadTag) {
    return Malformed("something other than a payload follows the header");
  }
  if (!reader->ReadVarint(&size)) return Malformed("unreadable payload size");
  if (size != reader->left()) {
    return Malformed(absl::StrCat("a payload of ", size, " bytes, but ",
                                  reader->left(), " are left"));
  }
  *size_bytes = size;
  return absl::OkStatus();
}

}  // namespace

grpc::ByteBuffer EncodeFrame(const google::protobuf::MessageLite& header,
                             std::vector<grpc::Slice> payload) {
  size_t payload_bytes = 0;
  for (const grpc::Slice& slice : payload) payload_bytes += slice.size();
  std::string front;
  front.push_back(kHeaderTag);
  AppendVarint(header.ByteSizeLong(), &front);
  header.AppendToString(&front);
  if (payload_bytes > 0) {
    front.push_back(kPayloadTag);
    AppendVarint(payload_bytes, &front);
  }
  payload.insert(payload.begin(), grpc::Slice(front));
  return grpc::ByteBuffer(payload.data(), payload.size());
}

void PayloadView::CopyTo(size_t offset, size_t size, void* out) const {
  if (size == 0) return;
  size_t i = std::upper_bound(starts_.begin(), starts_.end(), offset) -
             starts_.begin() - 1;
  uint8_t* to = static_cast<uint8_t*>(out);
  for (size_t within = offset - starts_[i]; size > 0; ++i, within = 0) {
    const size_t skip = within + (i == 0 ? skip_bytes_ : 0);
    const size_t n = std::min(size, slices_[i].size() - skip);
    std::memcpy(to, slices_[i].begin() + skip, n);
    to += n;
    size -= n;
  }
}

absl::Status DecodeFrame(const grpc::ByteBuffer& buffer,
                         google::protobuf::MessageLite* header,
                         PayloadView* payload) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) {
    return Malformed("unreadable buffer");
  }
  Reader reader(slices);
  if (absl::Status read = ReadHeader(&reader, header); !read.ok()) return read;
  size_t size_bytes = 0;
  if (absl::Status read = ReadPayloadSize(&reader, &size_bytes); !read.ok()) {
    return read;
  }

  *payload = PayloadView();
  payload->size_bytes_ = size_bytes;
  if (size_bytes == 0) return absl::OkStatus();
  payload->skip_bytes_ = reader.offset();
  size_t start = 0;
  for (size_t i = reader.slice(); i < slices.size(); ++i) {
    if (slices[i].size() == 0) continue;
    payload->starts_.push_back(start);
    start += slices[i].size() - (i == reader.slice() ? reader.offset() : 0);
    payload->slices_.push_back(std::move(slices[i]));
  }
  return absl::OkStatus();
}

}  // namespace syncline
