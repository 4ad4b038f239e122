#include "worker/client/block_frames.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/wire/compression.h"
#include "worker/client/row_frames.h"

namespace syncline::worker {
namespace {

template <typename Spans>
std::vector<grpc::Slice> BorrowedSlices(
    const BlockMap& map, const Chunk& chunk, const Spans& tensors,
    const std::shared_ptr<const void>& owner) {
  std::vector<grpc::Slice> slices;
  for (const BlockRun& run : ToRuns(map, chunk.blocks)) {
    slices.push_back(
        BorrowedSlice(tensors[run.tensor].data() + run.offset,
                      static_cast<size_t>(run.count) * sizeof(float), owner));
  }
  return slices;
}

}  // namespace

std::vector<grpc::Slice> ValueSlices(const BlockMap& map, const Chunk& chunk,
                                     absl::Span<const absl::Span<float>> values,
                                     const std::shared_ptr<const void>& owner) {
  return BorrowedSlices(map, chunk, values, owner);
}

std::vector<grpc::Slice> GradientSlices(
    const BlockMap& map, const Chunk& chunk, ElementType type,
    absl::Span<const absl::Span<const float>> gradients,
    const std::shared_ptr<const void>& owner) {
  if (type == ElementType::kFloat32) {
    return BorrowedSlices(map, chunk, gradients, owner);
  }
  grpc::Slice narrow(chunk.bytes);
  char* out = reinterpret_cast<char*>(const_cast<uint8_t*>(narrow.begin()));
  for (const BlockRun& run : ToRuns(map, chunk.blocks)) {
    const size_t count = static_cast<size_t>(run.count);
    Narrow(type, gradients[run.tensor].data() + run.offset, out, count);
    out += count * ElementBytes(type);
  }
  return {std::move(narrow)};
}

std::vector<grpc::Slice> CompressedSlices(const Chunk& chunk,
                                          const GradientCompressor& compressor,
                                          PushHeader* header) {
  size_t bytes = 0;
  for (const uint32_t block : chunk.blocks) {
    const size_t of = compressor.block(block).size();
    header->add_block_bytes(static_cast<uint32_t>(of));
    bytes += of;
  }
  grpc::Slice payload(bytes);
  auto* out = const_cast<uint8_t*>(payload.begin());
  for (const uint32_t block : chunk.blocks) {
    const absl::string_view of = compressor.block(block);
    out = std::copy(of.begin(), of.end(), out);
  }
  return {std::move(payload)};
}

absl::Status StoreBlocks(const BlockMap& map, const Chunk& chunk,
                         ElementType type, const PullResponseHeader& header,
                         const PayloadView& payload,
                         absl::Span<const absl::Span<float>> values) {
  if (payload.size_bytes() != chunk.bytes ||
      !std::equal(header.blocks().begin(), header.blocks().end(),
                  chunk.blocks.begin(), chunk.blocks.end())) {
    return absl::InternalError(
        absl::StrCat("answered ", header.blocks_size(), " blocks with ",
                     payload.size_bytes(), " bytes, expected ",
                     chunk.blocks.size(), " with ", chunk.bytes));
  }
  size_t offset = 0;
  for (const BlockRun& run : ToRuns(map, chunk.blocks)) {
    const size_t count = static_cast<size_t>(run.count);
    CopyValues(payload, type, offset, count,
               values[run.tensor].data() + run.offset);
    offset += count * ElementBytes(type);
  }
  return absl::OkStatus();
}

absl::Status AddChanges(const BlockMap& map, const Chunk& chunk,
                        const PullResponseHeader& header,
                        const PayloadView& payload,
                        absl::Span<const absl::Span<float>> values) {
  if (header.compression() != CompressionSpec::INT8 ||
      payload.size_bytes() != chunk.bytes ||
      absl::c_accumulate(header.block_bytes(), uint64_t{0}) != chunk.bytes ||
      !absl::c_equal(header.blocks(), chunk.blocks) ||
      header.block_bytes_size() != header.blocks_size()) {
    return absl::InternalError(
        absl::StrCat("answered the changes of ", header.blocks_size(),
                     " blocks with ", payload.size_bytes(), " bytes, expected ",
                     chunk.blocks.size(), " with ", chunk.bytes));
  }
  std::string bytes;
  size_t at = 0;
  for (int i = 0; i < header.blocks_size(); ++i) {
    const Block& block = map.blocks()[chunk.blocks[static_cast<size_t>(i)]];
    bytes.resize(header.block_bytes(i));
    payload.CopyTo(at, bytes.size(), bytes.data());
    at += bytes.size();
    const auto change =
        CompressedBlock::Parse(bytes, static_cast<size_t>(block.count));
    if (!change.ok()) {
      return absl::InternalError(absl::StrCat("the change of block ",
                                              header.blocks(i), " ",
                                              change.status().message()));
    }
    change->AddTo(values[block.tensor].data() + block.offset);
  }
  return absl::OkStatus();
}

}  // namespace syncline::worker
