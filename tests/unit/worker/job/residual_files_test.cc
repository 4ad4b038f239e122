// Goal: a rank goes on with what it, or all ranks, had kept at a checkpoint,
// and with nothing of another checkpoint, kind, model or of a damaged file.
// Method: compressors with random gradients, files in a folder of the test, and
// the compressors that go on from them against those that were not interrupted.

#include "worker/job/residual_files.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;
using Kind = GradientCompression::Kind;

constexpr uint64_t kCut = 77;
constexpr int64_t kClock = 5;
constexpr uint64_t kFileBytesMax = 1 << 24;
// The last one is a running mean.
const std::vector<int64_t> kSizes = {3, 300'000, 16};

BlockMap Map() {
  std::vector<TensorSize> tensors;
  for (const int64_t size : kSizes) tensors.push_back({"t", size});
  return *BlockMap::Create(tensors, 1);
}

std::unique_ptr<GradientCompressor> Compressor(
    Kind kind, uint32_t rank, std::shared_ptr<KeptGradients> start = nullptr) {
  return std::make_unique<GradientCompressor>(
      GradientCompressor::Options{
          .compression = {.kind = kind, .fraction = 0.1},
          .seed = 3,
          .rank = rank,
          .momentum = kind == Kind::kDgc ? 0.5f : 0,
          .running_means = {false, false, true},
          .start = std::move(start)},
      Map());
}

// The bytes that a step sends.
std::string Step(int64_t clock, GradientCompressor* compressor) {
  Random random(SeedFor(9, static_cast<uint64_t>(clock)));
  compressor->BeginStep(clock, 4 + static_cast<uint64_t>(clock));
  for (uint32_t t = 0; t < kSizes.size(); ++t) {
    std::vector<float> gradient(static_cast<size_t>(kSizes[t]));
    for (float& g : gradient) g = static_cast<float>(random.Normal());
    compressor->Compress(t, gradient);
  }
  std::string sent;
  const BlockMap map = Map();
  for (uint32_t id = 0; id < map.blocks().size(); ++id) {
    absl::StrAppend(&sent, compressor->block(id));
  }
  return sent;
}

class ResidualFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    manifest_.set_job_id("j-1");
    manifest_.set_cut_id(kCut);
    SetRanks(2);
  }
  void SetRanks(int ranks) {
    manifest_.clear_workers();
    for (int i = 0; i < ranks; ++i) manifest_.add_workers();
  }

  std::string Path(int64_t clock = kClock, uint64_t cut = kCut) const {
    return absl::StrCat(
        dir_.path(), "/j-1/",
        CheckpointName{.clock = clock, .cut_id = cut}.ToString());
  }
  ResidualWriter::Options Options(uint32_t rank) const {
    return {.job_id = "j-1",
            .folder = absl::StrCat(dir_.path(), "/j-1"),
            .rank = rank,
            .ranks = 2,
            .folder_wait_max = absl::Milliseconds(100)};
  }
  void Save(uint32_t rank, const GradientCompressor& compressor) {
    std::filesystem::create_directories(Path());
    ResidualWriter writer(Options(rank));  // its end waits for the file
    writer.Save(kCut, kClock, compressor);
  }
  absl::StatusOr<std::shared_ptr<KeptGradients>> Read(
      Kind kind, uint32_t rank, uint32_t ranks = 2,
      std::vector<uint64_t> elements = {3, 300'000, 0}) {
    return ReadResiduals(Path(), manifest_, rank, ranks, kind,
                         kind == Kind::kDgc, elements, nullptr);
  }

  const TempDir dir_;
  CheckpointManifest manifest_;
};

TEST_F(ResidualFilesTest, ARankGoesOnAsIfItHadNotEnded) {
  for (const Kind kind : {Kind::kInt8, Kind::kTopK, Kind::kDgc}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto through = Compressor(kind, 1);
    for (int64_t clock = 0; clock < kClock; ++clock) {
      Step(clock, through.get());
    }
    Save(1, *through);
    auto kept = Read(kind, 1);
    ASSERT_OK(kept.status());
    const auto on = Compressor(kind, 1, *std::move(kept));
    for (int64_t clock = kClock; clock < 2 * kClock; ++clock) {
      EXPECT_TRUE(Step(clock, on.get()) == Step(clock, through.get())) << clock;
    }
    std::filesystem::remove_all(Path());
  }
}

TEST_F(ResidualFilesTest, WhatIsNotOfTheCheckpointIsRefused) {
  EXPECT_EQ(Read(Kind::kTopK, 0).status().code(), absl::StatusCode::kNotFound);
  const auto compressor = Compressor(Kind::kTopK, 0);
  Step(0, compressor.get());
  Save(0, *compressor);
  EXPECT_OK(Read(Kind::kTopK, 0).status());
  EXPECT_THAT(Read(Kind::kInt8, 0).status().message(),
              HasSubstr("of compression TOP_K, not INT8"));
  EXPECT_THAT(Read(Kind::kDgc, 0).status().message(),
              HasSubstr("of compression TOP_K, not DGC with momentum"));
  EXPECT_THAT(Read(Kind::kTopK, 0, 2, {3, 300'001, 0}).status().message(),
              HasSubstr("tensor 1 with 300000 elements, array 0, is not what"));
  EXPECT_THAT(Read(Kind::kTopK, 0, 2, {3}).status().message(),
              HasSubstr("tensor 1 with 300000 elements"));
  EXPECT_THAT(Read(Kind::kTopK, 0, /*ranks=*/3).status().message(),
              HasSubstr("residuals of 2 workers, not of 3"));
  manifest_.set_cut_id(kCut + 1);
  EXPECT_THAT(Read(Kind::kTopK, 0).status().message(),
              HasSubstr("of another checkpoint: job j-1, rank 0, cut 77"));
}

TEST_F(ResidualFilesTest, AFileThatIsDamagedOrCutOffIsRefused) {
  const auto compressor = Compressor(Kind::kTopK, 0);
  Step(0, compressor.get());
  Save(0, *compressor);
  const std::string path = absl::StrCat(Path(), "/", ResidualFileName(0, 2));
  const std::string whole = *ReadFile(path, kFileBytesMax);
  Random random(4);
  for (int i = 0; i < 50; ++i) {
    std::string damaged = whole;
    if (i % 2 == 0) {
      damaged.resize(random.Below(whole.size()));
    } else {
      damaged[random.Below(whole.size())] ^= 1 << random.Below(8);
    }
    ASSERT_OK(WriteFileAtomically(path, damaged));
    EXPECT_FALSE(Read(Kind::kTopK, 0).ok()) << i;
  }
  ASSERT_OK(WriteFileAtomically(path, whole + "x"));
  EXPECT_FALSE(Read(Kind::kTopK, 0).ok());
  ASSERT_OK(WriteFileAtomically(path, whole));
  EXPECT_OK(Read(Kind::kTopK, 0).status());
}

// Its checkpoint has failed: nobody else removes the file.
TEST_F(ResidualFilesTest, AFileWithoutAManifestGoesWithTheNext) {
  const auto compressor = Compressor(Kind::kTopK, 0);
  Step(0, compressor.get());
  const std::string next = Path(kClock + 1, kCut + 1);
  std::filesystem::create_directories(Path());
  std::filesystem::create_directories(next);
  ASSERT_OK(WriteFileAtomically(absl::StrCat(next, "/", kManifestFile), "m"));
  const std::string file = absl::StrCat("/", ResidualFileName(0, 2));
  {
    ResidualWriter writer(Options(0));
    writer.Save(kCut, kClock, *compressor);
    ASSERT_TRUE(Eventually(absl::Seconds(30), [&] {
      writer.Save(kCut + 1, kClock + 1, *compressor);
      return std::filesystem::exists(next + file);
    }));
  }
  EXPECT_FALSE(std::filesystem::exists(Path()));
  EXPECT_TRUE(std::filesystem::exists(next + file));
}

// The folder comes from who writes the checkpoint.
TEST_F(ResidualFilesTest, AFolderThatDoesNotComeIsNotMade) {
  const auto compressor = Compressor(Kind::kTopK, 0);
  Step(0, compressor.get());
  {
    ResidualWriter writer(Options(0));
    writer.Save(kCut, kClock, *compressor);
  }
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat(dir_.path(), "/j-1")));
  EXPECT_EQ(Read(Kind::kTopK, 0).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace syncline::worker
