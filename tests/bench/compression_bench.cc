// The compression of gradients alone, without any RPC: a step of one tensor
// through GradientCompressor, and the decoding of its blocks in the pieces that
// a ps reads, beside memcpy of the same float32. Rates are of float32 and
// compare within one run only; counters: bytes_per_second, smaller (times).
//
//   compression_bench [--benchmark_filter=...] [--benchmark_repetitions=9]
//                     [--benchmark_enable_random_interleaving=true]

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/wire/block_map.h"
#include "common/wire/compression.h"
#include "worker/exchange/gradient_compressor.h"

namespace syncline::worker {
namespace {

using Kind = GradientCompression::Kind;

constexpr size_t kElements = size_t{4} << 20;  // 16 MiB
constexpr size_t kPiece = 2048;

std::vector<float> Gradient() {
  Random random(3);
  std::vector<float> gradient(kElements);
  for (float& g : gradient) g = static_cast<float>(random.Normal());
  return gradient;
}

BlockMap Map() {
  return *BlockMap::Create({{TensorSize{"t", int64_t{kElements}}}}, 1);
}

GradientCompressor Compressor(Kind kind, const BlockMap& map) {
  return GradientCompressor({.compression = {.kind = kind, .fraction = 0.01},
                             .seed = 1,
                             .momentum = kind == Kind::kDgc ? 0.9f : 0},
                            map);
}

void SetRate(benchmark::State& state) {
  state.SetBytesProcessed(
      static_cast<int64_t>(state.iterations() * kElements * sizeof(float)));
}

void BM_Memcpy(benchmark::State& state) {
  const std::vector<float> gradient = Gradient();
  std::vector<float> out(kElements);
  for (auto _ : state) {
    std::memcpy(out.data(), gradient.data(), kElements * sizeof(float));
    benchmark::ClobberMemory();
  }
  SetRate(state);
}
BENCHMARK(BM_Memcpy);

void BM_Compress(benchmark::State& state, Kind kind) {
  const std::vector<float> gradient = Gradient();
  const BlockMap map = Map();
  GradientCompressor compressor = Compressor(kind, map);
  int64_t clock = 0;
  for (auto _ : state) {
    compressor.BeginStep(clock++, 32);
    compressor.Compress(0, gradient);
    benchmark::ClobberMemory();
  }
  SetRate(state);
  size_t bytes = 0;
  for (uint32_t id = 0; id < map.blocks().size(); ++id) {
    bytes += compressor.block(id).size();
  }
  state.counters["smaller"] = static_cast<double>(kElements * sizeof(float)) /
                              static_cast<double>(bytes);
}
BENCHMARK_CAPTURE(BM_Compress, int8, Kind::kInt8);
BENCHMARK_CAPTURE(BM_Compress, top_k, Kind::kTopK);
BENCHMARK_CAPTURE(BM_Compress, dgc, Kind::kDgc);
BENCHMARK_CAPTURE(BM_Compress, terngrad, Kind::kTernGrad);

void BM_Decode(benchmark::State& state, Kind kind) {
  const BlockMap map = Map();
  GradientCompressor compressor = Compressor(kind, map);
  compressor.BeginStep(0, 32);
  compressor.Compress(0, Gradient());
  std::vector<float> piece(kPiece);
  for (auto _ : state) {
    for (uint32_t id = 0; id < map.blocks().size(); ++id) {
      const auto count = static_cast<size_t>(map.blocks()[id].count);
      const auto block = CompressedBlock::Parse(compressor.block(id), count);
      SYNCLINE_CHECK(block.ok());
      for (size_t at = 0; at < count; at += kPiece) {
        block->CopyTo(at, std::min(kPiece, count - at), piece.data());
        benchmark::ClobberMemory();
      }
    }
  }
  SetRate(state);
}
BENCHMARK_CAPTURE(BM_Decode, int8, Kind::kInt8);
BENCHMARK_CAPTURE(BM_Decode, top_k, Kind::kTopK);
BENCHMARK_CAPTURE(BM_Decode, terngrad, Kind::kTernGrad);

}  // namespace
}  // namespace syncline::worker

BENCHMARK_MAIN();
