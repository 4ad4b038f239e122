#include "common/wire/compression.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

static_assert(std::endian::native == std::endian::little,
              "blocks are little-endian and used as they are");

constexpr size_t kHeaderBytes = 4;
// Below it a scale and its inverse are not both normal numbers.
constexpr float kLeastScaled = 1e-30f;
constexpr float kLargestScaled = 1e38f;
// A float's bits as an integer, once this is added, have it rounded in their
// lowest part: to the nearest, ties to even. For magnitudes up to 2^22.
constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23
constexpr size_t kDeltaBytesMax = 3;

uint32_t Magnitude(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffffu;
}

// As integers, which compilers vectorise without any licence to reorder floats.
float LargestMagnitude(const float* values, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, Magnitude(values[i]));
  }
  return std::bit_cast<float>(largest);
}

// Appends `count` bytes, which the caller writes.
char* Grow(std::string* out, size_t count) {
  const size_t at = out->size();
  out->resize(at + count);
  return out->data() + at;
}

template <typename T>
void Put(char* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

template <typename T>
T Get(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// With its head and padding.
size_t BlockBytes(size_t payload) {
  return (kHeaderBytes + payload + 3) / 4 * 4;
}

char* Begin(BlockEncoding encoding, size_t payload, std::string* out) {
  char* const at = Grow(out, BlockBytes(payload));  // zeros
  Put(at, static_cast<uint8_t>(encoding));
  return at + kHeaderBytes;
}

size_t Groups(size_t count, uint32_t group) {
  return (count + group - 1) / group;
}

// A block of `group`, a scale for each group, and codes.
struct GroupedBlock {
  void SetScale(size_t of_group, float scale) {
    Put(scales + of_group * sizeof(float), scale);
  }
  char* scales;
  uint8_t* codes;  // zeros
};
GroupedBlock BeginGrouped(BlockEncoding encoding, size_t count, uint32_t group,
                          size_t code_bytes, std::string* out) {
  const size_t scale_bytes = Groups(count, group) * sizeof(float);
  char* const at =
      Begin(encoding, sizeof(group) + scale_bytes + code_bytes, out);
  Put(at, group);
  char* const scales = at + sizeof(group);
  return {scales, reinterpret_cast<uint8_t*>(scales + scale_bytes)};
}

size_t DeltaBytes(uint32_t delta) {
  return delta < (1u << 7) ? 1 : delta < (1u << 14) ? 2 : 3;
}

char* PutDelta(char* at, uint32_t delta) {
  for (; delta >= 128; delta >>= 7) *at++ = static_cast<char>(delta | 128);
  *at++ = static_cast<char>(delta);
  return at;
}

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

}  // namespace

// --- Encoders ----------------------------------------------------------------

void EncodeWhole(const float* values, size_t count, std::string* out) {
  std::memcpy(Begin(BlockEncoding::kWhole, count * sizeof(float), out), values,
              count * sizeof(float));
}

void EncodeInt8(float* values, size_t count, uint32_t group, std::string* out) {
  GroupedBlock block =
      BeginGrouped(BlockEncoding::kInt8, count, group, count, out);
  auto* const codes = reinterpret_cast<int8_t*>(block.codes);
  for (size_t first = 0; first < count; first += group) {
    const size_t n = std::min<size_t>(group, count - first);
    float* const of = values + first;
    const float largest = LargestMagnitude(of, n);
    if (!std::isfinite(largest)) {
      block.SetScale(first / group, std::numeric_limits<float>::quiet_NaN());
      continue;  // 0 times NaN
    }
    const bool is_scaled = largest >= kLeastScaled;
    // Rounded down where 127 of it would be infinite.
    const float shrink = largest > kLargestScaled ? 1 - 0x1p-22f : 1;
    const float scale = is_scaled ? largest / 127 * shrink : 0;
    const float inverse = is_scaled ? 127 / largest : 0;
    block.SetScale(first / group, scale);
    for (size_t i = 0; i < n; ++i) {
      const float rounded = (of[i] * inverse + kRounder) - kRounder;
      codes[first + i] = static_cast<int8_t>(static_cast<int32_t>(rounded));
      of[i] -= rounded * scale;
    }
  }
}

size_t Int8Bytes(size_t count, uint32_t group) {
  return BlockBytes(sizeof(group) + Groups(count, group) * sizeof(float) +
                    count);
}

void EncodeTernary(const float* values, size_t count, uint32_t group,
                   uint64_t seed, std::string* out) {
  GroupedBlock block =
      BeginGrouped(BlockEncoding::kTernary, count, group, (count + 3) / 4, out);
  uint8_t* const codes = block.codes;
  for (size_t first = 0; first < count; first += group) {
    const size_t n = std::min<size_t>(group, count - first);
    const float scale = LargestMagnitude(values + first, n);
    block.SetScale(first / group, scale);
    for (size_t i = first; i < first + n; ++i) {
      // Uniform in [0, 1): the largest value always becomes its scale, 0 never.
      const float drawn = static_cast<float>(Mix64(seed + i) >> 40) * 0x1p-24f;
      const bool is_set =
          drawn * scale < std::bit_cast<float>(Magnitude(values[i]));
      const uint8_t code = values[i] < 0 ? 2 : 1;
      codes[i / 4] |= static_cast<uint8_t>((is_set ? code : 0) << (i % 4 * 2));
    }
  }
}

void EncodeSigns(float* values, size_t count, uint32_t group,
                 std::string* out) {
  GroupedBlock block =
      BeginGrouped(BlockEncoding::kSigns, count, group, (count + 7) / 8, out);
  uint8_t* const bits = block.codes;
  for (size_t first = 0; first < count; first += group) {
    const size_t n = std::min<size_t>(group, count - first);
    double sum = 0;
    for (size_t i = first; i < first + n; ++i) {
      sum += std::bit_cast<float>(Magnitude(values[i]));
    }
    const auto scale = static_cast<float>(sum / static_cast<double>(n));
    block.SetScale(first / group, scale);
    for (size_t i = first; i < first + n; ++i) {
      const bool is_negative = values[i] < 0;
      bits[i / 8] |= static_cast<uint8_t>((is_negative ? 1 : 0) << (i % 8));
      values[i] -= is_negative ? -scale : scale;
    }
  }
}

void LargestFinder::Begin() {
  std::fill(counts_.begin(), counts_.end(), 0);
  candidates_.clear();
}

void LargestFinder::Count(const float* values, size_t count) {
  // In turn, so that one does not wait for the one before.
  size_t i = 0;
  for (; i + kTables <= count; i += kTables) {
    for (size_t t = 0; t < kTables; ++t) {
      ++counts_[t * kBuckets + (Magnitude(values[i + t]) >> kShift)];
    }
  }
  for (; i < count; ++i) ++counts_[Magnitude(values[i]) >> kShift];
}

void LargestFinder::Choose(uint64_t k) {
  needed_ = k;
  uint64_t of = 0;
  for (size_t i = kBuckets; i-- > 0;) {
    bucket_ = static_cast<uint32_t>(i);
    of = 0;
    for (size_t t = 0; t < kTables; ++t) of += counts_[t * kBuckets + i];
    if (of >= needed_) break;
    // Behind the last bucket there are fewer than k: all of them.
    needed_ = i > 0 ? needed_ - of : std::numeric_limits<uint64_t>::max();
  }
  // A vector that grows takes up to twice as much.
  if (of > candidates_.capacity()) {
    std::vector<uint32_t>().swap(candidates_);
    candidates_.reserve(of);
  }
}

void LargestFinder::Collect(const float* values, size_t count) {
  constexpr size_t kRun = 16;
  size_t i = 0;
  const auto look = [&](size_t end) {
    for (; i < end; ++i) {
      const uint32_t bits = Magnitude(values[i]);
      if (bits >> kShift == bucket_ && bits > 0) candidates_.push_back(bits);
    }
  };
  while (i + kRun <= count) {
    bool any = false;
    for (size_t j = 0; j < kRun; ++j) {
      any |= Magnitude(values[i + j]) >> kShift == bucket_;
    }
    if (any) {
      look(i + kRun);
    } else {
      i += kRun;
    }
  }
  look(count);
}

LargestElements LargestFinder::Find() {
  if (candidates_.empty()) {
    // All that is larger; nothing is exactly as large.
    return {.bits = bucket_ << kShift, .ties = 0};
  }
  if (needed_ >= candidates_.size()) {
    const uint32_t least =
        *std::min_element(candidates_.begin(), candidates_.end());
    return {.bits = least - 1, .ties = 0};
  }
  const auto last = candidates_.begin() + static_cast<ptrdiff_t>(needed_) - 1;
  std::nth_element(candidates_.begin(), last, candidates_.end(),
                   std::greater<>());
  const uint32_t bits = *last;
  const auto larger = static_cast<uint64_t>(
      std::count_if(candidates_.begin(), last,
                    [bits](uint32_t other) { return other > bits; }));
  return {.bits = bits, .ties = needed_ - larger};
}

void EncodeLargest(const float* values, size_t count, LargestElements* largest,
                   std::vector<uint32_t>* chosen, std::string* out) {
  constexpr size_t kRun = 16;
  const size_t before = chosen->size();
  const uint32_t bits = std::max(largest->bits, 1u);  // never an element of 0
  size_t i = 0;
  const auto look = [&](size_t end) {
    for (; i < end; ++i) {
      const uint32_t of = Magnitude(values[i]);
      if (of < bits || of == 0) continue;
      if (of == largest->bits) {
        if (largest->ties == 0) continue;
        --largest->ties;
      }
      chosen->push_back(static_cast<uint32_t>(i));
    }
  };
  while (i + kRun <= count) {
    uint32_t most = 0;
    for (size_t j = 0; j < kRun; ++j) {
      most = std::max(most, Magnitude(values[i + j]));
    }
    if (most >= bits) {
      look(i + kRun);
    } else {
      i += kRun;
    }
  }
  look(count);

  const size_t n = chosen->size() - before;
  const uint32_t* const indices = chosen->data() + before;
  size_t delta_bytes = 0;
  for (size_t e = 0; e < n; ++e) {
    delta_bytes +=
        DeltaBytes(e == 0 ? indices[0] : indices[e] - indices[e - 1] - 1);
  }
  const size_t bitmap_bytes = (count + 7) / 8;
  const size_t float_bytes = n * sizeof(float);
  if (delta_bytes + sizeof(uint32_t) <= bitmap_bytes) {
    char* at = Begin(BlockEncoding::kDeltas,
                     2 * sizeof(uint32_t) + float_bytes + delta_bytes, out);
    Put(at, static_cast<uint32_t>(n));
    Put(at + sizeof(uint32_t), static_cast<uint32_t>(delta_bytes));
    char* floats = at + 2 * sizeof(uint32_t);
    char* deltas = floats + float_bytes;
    for (size_t e = 0; e < n; ++e) {
      Put(floats + e * sizeof(float), values[indices[e]]);
      deltas = PutDelta(deltas,
                        e == 0 ? indices[0] : indices[e] - indices[e - 1] - 1);
    }
    return;
  }
  char* at = Begin(BlockEncoding::kBitmap,
                   sizeof(uint32_t) + bitmap_bytes + float_bytes, out);
  Put(at, static_cast<uint32_t>(n));
  auto* const bitmap = reinterpret_cast<uint8_t*>(at + sizeof(uint32_t));
  char* const floats = at + sizeof(uint32_t) + bitmap_bytes;
  for (size_t e = 0; e < n; ++e) {
    bitmap[indices[e] / 8] |= static_cast<uint8_t>(1u << indices[e] % 8);
    Put(floats + e * sizeof(float), values[indices[e]]);
  }
}

// --- Decoder -----------------------------------------------------------------

absl::StatusOr<CompressedBlock> CompressedBlock::Parse(absl::string_view bytes,
                                                       size_t count) {
  if (count == 0 || count > kCompressedElementsMax) {
    return Wrong(absl::StrCat("a block of ", count, " elements"));
  }
  if (bytes.size() < kHeaderBytes || bytes.size() % 4 != 0) {
    return Wrong(absl::StrCat("has ", bytes.size(),
                              " bytes, not a multiple of 4 from 4 on"));
  }
  if (bytes[1] != 0 || bytes[2] != 0 || bytes[3] != 0) {
    return Wrong("bytes 1 to 3 are not 0");
  }
  CompressedBlock block;
  block.bytes_ = bytes;
  block.count_ = count;
  const auto encoding = static_cast<uint8_t>(bytes[0]);
  block.encoding_ = static_cast<BlockEncoding>(encoding);
  switch (block.encoding_) {
    case BlockEncoding::kWhole:
      block.floats_ = kHeaderBytes;
      SYNCLINE_RETURN_IF_ERROR(
          block.CheckSize(kHeaderBytes + count * sizeof(float)));
      return block;
    case BlockEncoding::kInt8:
      SYNCLINE_RETURN_IF_ERROR(block.ParseGroups(8));
      return block;
    case BlockEncoding::kTernary:
      SYNCLINE_RETURN_IF_ERROR(block.ParseGroups(2));
      return block;
    case BlockEncoding::kSigns:
      SYNCLINE_RETURN_IF_ERROR(block.ParseGroups(1));
      return block;
    case BlockEncoding::kBitmap:
      SYNCLINE_RETURN_IF_ERROR(block.ParseBitmap());
      return block;
    case BlockEncoding::kDeltas:
      SYNCLINE_RETURN_IF_ERROR(block.ParseDeltas());
      return block;
  }
  return Wrong(absl::StrCat("encoding ", int{encoding}, " is not known"));
}

absl::Status CompressedBlock::CheckSize(size_t used) const {
  const size_t expected = (used + 3) / 4 * 4;
  if (bytes_.size() == expected) return absl::OkStatus();
  return Wrong(absl::StrCat("has ", bytes_.size(), " bytes, its ", count_,
                            " elements have ", expected));
}

absl::Status CompressedBlock::ParseGroups(size_t bits) {
  if (bytes_.size() < kHeaderBytes + sizeof(uint32_t)) {
    return Wrong("ends before its group");
  }
  group_ = Get<uint32_t>(At(kHeaderBytes));
  if (group_ < kCompressionGroupMin || group_ > kCompressionGroupMax) {
    return Wrong(absl::StrCat("groups of ", group_, " elements, must be ",
                              kCompressionGroupMin, "..",
                              kCompressionGroupMax));
  }
  scales_ = kHeaderBytes + sizeof(uint32_t);
  codes_ = scales_ + Groups(count_, group_) * sizeof(float);
  SYNCLINE_RETURN_IF_ERROR(CheckSize(codes_ + (count_ * bits + 7) / 8));
  if (bits != 2) return absl::OkStatus();
  for (size_t i = codes_; i < bytes_.size(); ++i) {
    const auto four = static_cast<uint8_t>(bytes_[i]);
    if ((four & (four >> 1) & 0x55) != 0) return Wrong("a code is 3");
  }
  return absl::OkStatus();
}

absl::Status CompressedBlock::ParseBitmap() {
  if (bytes_.size() < kHeaderBytes + sizeof(uint32_t)) {
    return Wrong("ends before its number of elements");
  }
  const size_t n = Get<uint32_t>(At(kHeaderBytes));
  if (n > count_) {
    return Wrong(absl::StrCat("has ", n, " of ", count_, " elements"));
  }
  codes_ = kHeaderBytes + sizeof(uint32_t);
  const size_t bitmap_bytes = (count_ + 7) / 8;
  floats_ = codes_ + bitmap_bytes;
  SYNCLINE_RETURN_IF_ERROR(CheckSize(floats_ + n * sizeof(float)));
  size_t set = 0;
  for (size_t i = 0; i < bitmap_bytes; ++i) {
    if (i * 8 % kPieceElements == 0) {
      pieces_.push_back({.entry = static_cast<uint32_t>(set)});
    }
    set += static_cast<size_t>(
        std::popcount(static_cast<uint8_t>(bytes_[codes_ + i])));
  }
  const auto last = static_cast<uint8_t>(bytes_[floats_ - 1]);
  if (count_ % 8 != 0 && last >> (count_ % 8) != 0) {
    return Wrong("the bitmap goes on behind the last element");
  }
  if (set == n) return absl::OkStatus();
  return Wrong(
      absl::StrCat("the bitmap has ", set, " elements, there are ", n));
}

absl::Status CompressedBlock::ParseDeltas() {
  if (bytes_.size() < kHeaderBytes + 2 * sizeof(uint32_t)) {
    return Wrong("ends before its number of elements");
  }
  const size_t n = Get<uint32_t>(At(kHeaderBytes));
  const size_t delta_bytes = Get<uint32_t>(At(kHeaderBytes + sizeof(uint32_t)));
  if (n > count_ || delta_bytes > n * kDeltaBytesMax) {
    return Wrong(absl::StrCat("has ", n, " of ", count_, " elements, by ",
                              delta_bytes, " bytes"));
  }
  floats_ = kHeaderBytes + 2 * sizeof(uint32_t);
  codes_ = floats_ + n * sizeof(float);
  SYNCLINE_RETURN_IF_ERROR(CheckSize(codes_ + delta_bytes));
  size_t byte = 0;
  size_t next = 0;
  for (size_t entry = 0; entry < n; ++entry) {
    const size_t begin = byte;
    uint32_t delta = 0;
    for (int shift = 0;; shift += 7) {
      if (byte == delta_bytes || byte - begin == kDeltaBytesMax) {
        return Wrong("an index does not end");
      }
      const auto part = static_cast<uint8_t>(bytes_[codes_ + byte++]);
      delta |= uint32_t{part & 127u} << shift;
      if (part < 128) break;
    }
    const size_t index = next + delta;
    if (index >= count_) {
      return Wrong(absl::StrCat("names element ", index, " of ", count_));
    }
    while (pieces_.size() * kPieceElements <= index) {
      pieces_.push_back({static_cast<uint32_t>(entry),
                         static_cast<uint32_t>(begin),
                         static_cast<uint32_t>(next)});
    }
    next = index + 1;
  }
  if (byte != delta_bytes) return Wrong("has more index bytes than elements");
  while (pieces_.size() * kPieceElements < count_) {
    pieces_.push_back({static_cast<uint32_t>(n), static_cast<uint32_t>(byte),
                       static_cast<uint32_t>(next)});
  }
  return absl::OkStatus();
}

void CompressedBlock::CopyTo(size_t first, size_t n, float* out) const {
  switch (encoding_) {
    case BlockEncoding::kWhole:
      std::memcpy(out, At(floats_ + first * sizeof(float)), n * sizeof(float));
      return;
    case BlockEncoding::kInt8:
      return CopyInt8(first, n, out);
    case BlockEncoding::kTernary:
      return CopyTernary(first, n, out);
    case BlockEncoding::kSigns:
      return CopySigns(first, n, out);
    case BlockEncoding::kBitmap:
      return CopyBitmap(first, n, out);
    case BlockEncoding::kDeltas:
      return CopyDeltas(first, n, out);
  }
}

void CompressedBlock::AddTo(float* values) const {
  float piece[kPieceElements];
  for (size_t first = 0; first < count_; first += kPieceElements) {
    const size_t n = std::min(kPieceElements, count_ - first);
    CopyTo(first, n, piece);
    for (size_t i = 0; i < n; ++i) values[first + i] += piece[i];
  }
}

void CompressedBlock::CopyInt8(size_t first, size_t n, float* out) const {
  const auto* codes = reinterpret_cast<const int8_t*>(At(codes_));
  for (size_t i = first; i < first + n;) {
    const size_t group = i / group_;
    const size_t end = std::min<size_t>(first + n, (group + 1) * group_);
    const auto scale = Get<float>(At(scales_ + group * sizeof(float)));
    float* const to = out + (i - first);
    const int8_t* const from = codes + i;
    const size_t count = end - i;
    for (size_t j = 0; j < count; ++j) {
      to[j] = static_cast<float>(from[j]) * scale;
    }
    i = end;
  }
}

void CompressedBlock::CopyTernary(size_t first, size_t n, float* out) const {
  for (size_t i = first; i < first + n; ++i) {
    const auto scale = Get<float>(At(scales_ + i / group_ * sizeof(float)));
    const int code =
        static_cast<uint8_t>(bytes_[codes_ + i / 4]) >> (i % 4 * 2);
    // 0, 1 or -1; a scale that is not a number counts where it is used.
    const float level[] = {0, scale, -scale, 0};
    out[i - first] = level[code & 3];
  }
}

void CompressedBlock::CopySigns(size_t first, size_t n, float* out) const {
  for (size_t i = first; i < first + n; ++i) {
    const auto scale = Get<float>(At(scales_ + i / group_ * sizeof(float)));
    const auto eight = static_cast<uint8_t>(bytes_[codes_ + i / 8]);
    out[i - first] = (eight >> (i % 8) & 1) != 0 ? -scale : scale;
  }
}

void CompressedBlock::CopyBitmap(size_t first, size_t n, float* out) const {
  std::fill_n(out, n, 0.0f);
  const size_t piece = first / kPieceElements;
  size_t entry = pieces_[piece].entry;
  const size_t end = first + n;
  for (size_t byte = piece * kPieceElements / 8; byte * 8 < end; ++byte) {
    auto bits = static_cast<uint8_t>(bytes_[codes_ + byte]);
    for (; bits != 0; bits &= static_cast<uint8_t>(bits - 1), ++entry) {
      const size_t i = byte * 8 + static_cast<size_t>(std::countr_zero(bits));
      if (i < first || i >= end) continue;
      out[i - first] = Get<float>(At(floats_ + entry * sizeof(float)));
    }
  }
}

void CompressedBlock::CopyDeltas(size_t first, size_t n, float* out) const {
  std::fill_n(out, n, 0.0f);
  const Piece& piece = pieces_[first / kPieceElements];
  const size_t entries = (codes_ - floats_) / sizeof(float);
  size_t byte = codes_ + piece.byte;
  size_t next = piece.next;
  for (size_t entry = piece.entry; entry < entries; ++entry) {
    uint32_t delta = 0;
    for (int shift = 0;; shift += 7) {
      const auto part = static_cast<uint8_t>(bytes_[byte++]);
      delta |= uint32_t{part & 127u} << shift;
      if (part < 128) break;
    }
    const size_t i = next + delta;
    if (i >= first + n) return;
    if (i >= first) {
      out[i - first] = Get<float>(At(floats_ + entry * sizeof(float)));
    }
    next = i + 1;
  }
}

}  // namespace syncline
