#ifndef SYNCLINE_COMMON_WIRE_COMPRESSION_H_
#define SYNCLINE_COMMON_WIRE_COMPRESSION_H_

// Blocks of dense gradients in fewer bytes (PushHeader.compression): their
// layout, its encoders, and a decoder that believes nothing.
//
// A message has its blocks one behind the other; block_bytes has the bytes of
// each. All numbers are little-endian. A block says by itself how it is
// encoded:
//
//   byte 0     BlockEncoding
//   bytes 1-3  0
//   kWhole     count floats
//   kInt8      u32 group; one float scale for each group of so many elements;
//              one int8 for each element: value = int8 * scale of its group
//   kTernary   u32 group; scales as kInt8; 2 bits for each element, four to a
//              byte, the lowest bits first: 0, 1 for +scale, 2 for -scale
//   kBitmap    u32 n; (count + 7) / 8 bytes, bit i % 8 of byte i / 8 set for
//   the
//              elements that are there; n floats, in order. The others are 0
//   kDeltas    u32 n; u32 index bytes; n floats; the elements that are there,
//   in
//              order, each as the number of elements between it and the one
//              before (LEB128, at most 3 bytes)
//   kSigns     u32 group; scales as kInt8; 1 bit for each element, eight to a
//              byte, the lowest bit first: 0 for +scale, 1 for -scale
//   then       0 to 3 bytes of 0, up to a multiple of 4
//
// So a block that must stay whole, because it is not finite or is a running
// mean, travels among compressed ones. Of kBitmap and kDeltas an encoder takes
// the smaller one. Floats may be anything, NaN too: who applies them checks
// them as any gradient.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline {

enum class BlockEncoding : uint8_t {
  kWhole = 0,
  kInt8 = 1,
  kTernary = 2,
  kBitmap = 3,
  kDeltas = 4,
  kSigns = 5,
};

// Elements of a block, at most: 1 MiB of float32.
inline constexpr size_t kCompressedElementsMax = 1 << 18;
inline constexpr uint32_t kCompressionGroupMin = 32;
inline constexpr uint32_t kCompressionGroupMax = 65'536;
// Bytes of a block of `count` elements, at most: kBitmap with all of them.
constexpr size_t CompressedBytesMax(size_t count) {
  constexpr size_t kHeadAndPadding = 16;
  return kHeadAndPadding + (count + 7) / 8 + count * sizeof(float);
}

// --- Encoders. All append one block of 1..kCompressedElementsMax elements to
// `out`. Deterministic: the bytes are a function of the arguments alone. ---

void EncodeWhole(const float* values, size_t count, std::string* out);

// Takes the values that are encoded off `values`: what is left is the residual.
// An int8 is the value by its group's scale, the largest magnitude / 127,
// rounded to the nearest, ties to even. A group whose largest magnitude is
// below 1e-30 is left whole. Of a group with a value that is not finite all
// become NaN, and `values` stay as they are. REQUIRES: group is within the
// range above.
void EncodeInt8(float* values, size_t count, uint32_t group, std::string* out);
// Bytes of such a block.
size_t Int8Bytes(size_t count, uint32_t group);

// Three levels by chance, so that the mean is right: an element becomes
// sign * scale with probability |value| / scale, else 0; scale is the largest
// magnitude of its group. Element i draws from Mix64(seed + i).
// REQUIRES: values are finite; group is within the range above. Source: Wen et
// al. 2017, "TernGrad", section 3.
void EncodeTernary(const float* values, size_t count, uint32_t group,
                   uint64_t seed, std::string* out);

// Takes the values that are encoded off `values`: what is left is the residual.
// An element becomes its sign times its group's scale, the mean magnitude.
// REQUIRES: as EncodeTernary. Source: Tang et al. 2021, "1-bit Adam",
// section 3.
void EncodeSigns(float* values, size_t count, uint32_t group, std::string* out);

// Which elements of a tensor are largest. Of those that are exactly as large as
// the smallest one that is chosen, the first `ties` are.
struct LargestElements {
  // Of a float without its sign; as an integer it orders as the magnitude does.
  uint32_t bits = 0;
  uint64_t ties = 0;
};
// Finds the `k` > 0 largest magnitudes of some arrays. Elements that are 0 are
// never chosen, and there may be fewer than k others.
class LargestFinder {
 public:
  // Two passes: every array with Count, then Choose, then every array with
  // Collect, then Find. REQUIRES: values are finite.
  LargestFinder() : counts_(kTables * kBuckets) {}
  void Begin();
  void Count(const float* values, size_t count);
  void Choose(uint64_t k);
  void Collect(const float* values, size_t count);
  LargestElements Find();

 private:
  static constexpr int kShift = 21;  // exponent and 2 bits of the fraction
  static constexpr size_t kBuckets = size_t{1} << (31 - kShift);
  static constexpr size_t kTables = 4;

  std::vector<uint32_t> counts_;  // by table, then bucket
  std::vector<uint32_t> candidates_;
  uint32_t bucket_ = 0;
  uint64_t needed_ = 0;  // of the bucket's elements
};

// Encodes the elements that `largest` names, which comes out less the ties that
// were used, and appends their indices to `chosen`.
void EncodeLargest(const float* values, size_t count, LargestElements* largest,
                   std::vector<uint32_t>* chosen, std::string* out);

// --- Decoder ---

// A received block whose bytes make sense: every element can be read. A view;
// its bytes must not change. Thread-compatible.
class CompressedBlock {
 public:
  // `bytes` of a block of `count` elements, 1..kCompressedElementsMax. Reads
  // all of them. Errors: InvalidArgument: anything but the layout above, which
  // the message names.
  static absl::StatusOr<CompressedBlock> Parse(absl::string_view bytes,
                                               size_t count);

  // Writes the elements [first, first + n). REQUIRES: within the block.
  void CopyTo(size_t first, size_t n, float* out) const;
  // Adds all elements to `values`.
  void AddTo(float* values) const;

  BlockEncoding encoding() const { return encoding_; }
  size_t count() const { return count_; }

 private:
  // Sparse elements are found from the start of their piece.
  static constexpr size_t kPieceElements = 2048;
  struct Piece {
    uint32_t entry = 0;  // of the first float at or behind its first element
    uint32_t byte = 0;   // kDeltas: of the index bytes
    uint32_t next = 0;   // kDeltas: the element that a delta of 0 would be
  };

  absl::Status ParseGroups(size_t bits);
  absl::Status ParseBitmap();
  absl::Status ParseDeltas();
  absl::Status CheckSize(size_t used) const;
  void CopyInt8(size_t first, size_t n, float* out) const;
  void CopyTernary(size_t first, size_t n, float* out) const;
  void CopySigns(size_t first, size_t n, float* out) const;
  void CopyBitmap(size_t first, size_t n, float* out) const;
  void CopyDeltas(size_t first, size_t n, float* out) const;
  const char* At(size_t byte) const { return bytes_.data() + byte; }

  absl::string_view bytes_;
  size_t count_ = 0;
  BlockEncoding encoding_ = BlockEncoding::kWhole;
  uint32_t group_ = 0;
  size_t scales_ = 0;  // where they begin, in bytes
  size_t codes_ = 0;   // int8s, 2-bit codes, bits, the bitmap, or the deltas
  size_t floats_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_WIRE_COMPRESSION_H_
