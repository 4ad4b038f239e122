// Goal: each class of byte that is damaged, each file that is gone, and another
// job's checkpoint are named, and nothing of them is loaded. Method: as
// checkpoint_test.cc; files are changed, cut and removed, and are then read by
// ReadCheckpoint, and by servers that start from them.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_contents.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "common/job/checkpoint_trouble.h"
#include "common/state/shard_state_stream.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/component/checkpoint_fixture.h"

namespace syncline {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CheckpointFailureTest, EachDamageIsNamedAndNothingIsServed) {
  const auto info = Checkpoint(5);
  ASSERT_OK(info.status());
  ASSERT_OK(StartFrom(*info));
  const std::string file = absl::StrCat(info->path(), "/", ShardFileName(0, 1));
  const std::string whole = ContentOf(file);
  const auto expect = [&](const absl::Status& status, absl::StatusCode code,
                          const std::string& path) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_THAT(std::string(status.message()), HasSubstr("ps:0"));
    // The scheduler goes by these words alone.
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("checkpoint ", info->path(), ": ")));
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(code == absl::StatusCode::kNotFound ? kUnseenCheckpoint
                                                      : kDamagedCheckpoint));
  };
  for (const size_t at : {size_t{3}, whole.size() / 2, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] ^= 4;
    ASSERT_OK(WriteFileAtomically(file, damaged));
    expect(StartFrom(*info), absl::StatusCode::kDataLoss, file);
  }
  ASSERT_OK(WriteFileAtomically(file, whole.substr(0, whole.size() - 100)));
  expect(StartFrom(*info), absl::StatusCode::kDataLoss, file);
  fs::remove(file);
  expect(StartFrom(*info), absl::StatusCode::kNotFound, file);
  ASSERT_OK(WriteFileAtomically(file, whole));
  ASSERT_OK(StartFrom(*info));

  const std::string manifest = absl::StrCat(info->path(), "/", kManifestFile);
  std::string bytes = ContentOf(manifest);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_OK(WriteFileAtomically(manifest, bytes));
  expect(StartFrom(*info), absl::StatusCode::kDataLoss, manifest);
  // Retention deletes so: the manifest first.
  const auto expect_deleted = [&] {
    const absl::Status status = StartFrom(*info);
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(absl::StrCat("checkpoint ", info->path(), ": ", JobFolder(),
                               kDeletedCheckpoint, info->clock())));
  };
  fs::remove(manifest);
  expect_deleted();
  fs::remove_all(info->path());
  expect_deleted();
  fs::remove_all(JobFolder());
  expect(StartFrom(*info), absl::StatusCode::kNotFound, info->path());
}

TEST_F(CheckpointFailureTest, AnotherModelOrCheckpointIsNamed) {
  const auto info = Checkpoint(5);
  ASSERT_OK(info.status());
  absl::Status status = StartFrom(
      *info, [](PsFixture::Options* options) { options->tensor_sizes[1] = 8; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the tensor 't1' has the shape [7], the job's [8]"));
  status = StartFrom(*info, [](PsFixture::Options* options) {
    options->spec = [base = options->spec](JobSpec* spec) {
      base(spec);
      spec->mutable_optimizer()->set_kind(OptimizerSpec::SGD);
    };
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("its optimizer is 'adam' with 2 slots"));
  CheckpointInfo other = *info;
  other.set_manifest_crc32c(other.manifest_crc32c() + 1);
  status = StartFrom(other);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("another checkpoint is there"),
                    HasSubstr(kDamagedCheckpoint)));
  // A job of another model is refused without a word of damage.
  status = StartFrom(
      *info, [](PsFixture::Options* options) { options->tensor_sizes[1] = 8; });
  EXPECT_THAT(std::string(status.message()),
              Not(HasSubstr(kDamagedCheckpoint)));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr(kUnseenCheckpoint)));
  const std::string manifest = absl::StrCat(info->path(), "/", kManifestFile);
  std::string bytes = ContentOf(manifest);
  bytes[4] ^= 2;  // the format; the checksum is of it, too
  ASSERT_OK(WriteFileAtomically(manifest, bytes));
  EXPECT_THAT(std::string(StartFrom(*info).message()),
              HasSubstr(kDamagedCheckpoint));
}

// --- Without a job -----------------------------------------------------------

class CheckpointContentsTest : public CheckpointRowsTest {
 protected:
  CheckpointContentsTest() : CheckpointRowsTest(/*ps_count=*/2) {}
};

TEST_F(CheckpointContentsTest, ValuesAndRowsAreReadWithoutAJob) {
  ASSERT_OK(chief_->BeginCut(5, {3, 3}));
  const auto values = workers_->worker(0).plain().PullCut(5);
  ASSERT_OK(values.status());
  ASSERT_OK(workers_->worker(0).plain().EndCut(5));
  const auto info = chief_->Finish(5, {3, 3});
  ASSERT_OK(info.status());
  const auto manifest = ReadManifest(info->path());
  ASSERT_OK(manifest.status());
  TensorValues read;
  Rows rows;
  ASSERT_OK(ReadCheckpoint(
      info->path(), *manifest, &read,
      [&](uint32_t table, absl::Span<const int64_t> keys,
          absl::Span<const float> some) {
        EXPECT_EQ(table, 0u);
        for (size_t i = 0; i < keys.size(); ++i) {
          const auto row = some.subspan(i * kDim, kDim);
          EXPECT_TRUE(
              rows.emplace(keys[i], Row(row.begin(), row.end())).second);
        }
        return absl::OkStatus();
      }));
  Flat all;
  for (const auto& tensor : read) {
    all.insert(all.end(), tensor.begin(), tensor.end());
  }
  EXPECT_TRUE(all == *values);
  const Contents contents = ContentsOf(FilesOf(*info));
  ASSERT_EQ(rows.size(), contents.rows.size());
  for (const auto& [id, row] : contents.rows) {
    EXPECT_EQ(std::memcmp(rows.at(id.second).data(), row.data() + 16,
                          kDim * sizeof(float)),
              0);
  }
  // Each file is looked at, and each byte of it.
  const std::string file = absl::StrCat(info->path(), "/", ShardFileName(1, 2));
  std::string bytes = ContentOf(file);
  bytes[bytes.size() - 3] ^= 1;
  ASSERT_OK(WriteFileAtomically(file, bytes));
  absl::Status damaged =
      ReadCheckpoint(info->path(), *manifest, nullptr, nullptr);
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr(file));
  fs::remove(file);
  EXPECT_EQ(ReadCheckpoint(info->path(), *manifest, nullptr, nullptr).code(),
            absl::StatusCode::kNotFound);
}

// A record of a shard's file, by where its parts are.
struct RecordPlace {
  std::string kind;
  size_t begin = 0;
  size_t meta = 0;  // begins
  size_t bulk = 0;  // begins
  size_t end = 0;
};

std::vector<RecordPlace> PlacesOf(const std::string& file) {
  static const char* const kKinds[] = {"none",   "header", "block",  "part",
                                       "filter", "rows",   "counts", "footer"};
  const auto number = [&file](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, file.data() + at, sizeof(value));
    return value;
  };
  std::vector<RecordPlace> places;
  for (size_t at = 0; at + kShardStateFrameBytes <= file.size();) {
    RecordPlace& place = places.emplace_back();
    place.kind = kKinds[number(at + 4) % std::size(kKinds)];
    place.begin = at;
    place.meta = at + kShardStateFrameBytes;
    place.bulk = place.meta + number(at + 12);
    place.end = place.bulk + number(at + 16);
    at = place.end;
  }
  return places;
}

// Values, slots and rows; the frame of each record, its meta, its numbers.
TEST_F(CheckpointRowsTest, EachClassOfByteIsNamedAndNeverLoaded) {
  constexpr size_t kOfAKind = 12;  // all arrays of all blocks
  const auto info = Checkpoint(5);
  ASSERT_OK(info.status());
  const auto manifest = ReadManifest(info->path());
  ASSERT_OK(manifest.status());
  const std::string file = absl::StrCat(info->path(), "/", ShardFileName(0, 1));
  const std::string whole = ContentOf(file);
  ASSERT_OK(ReadCheckpoint(info->path(), *manifest, nullptr, nullptr));
  const auto expect_damage = [&](const std::string& bytes, bool starts) {
    ASSERT_OK(WriteFileAtomically(file, bytes));
    const absl::Status read =
        ReadCheckpoint(info->path(), *manifest, nullptr, nullptr);
    EXPECT_EQ(read.code(), absl::StatusCode::kDataLoss) << read;
    EXPECT_THAT(std::string(read.message()), HasSubstr(file));
    if (!starts) return;
    const absl::Status started = StartFrom(*info);
    EXPECT_EQ(started.code(), absl::StatusCode::kDataLoss) << started;
    EXPECT_THAT(std::string(started.message()),
                AllOf(HasSubstr(file), HasSubstr("ps:0"),
                      HasSubstr(kDamagedCheckpoint)));
  };
  std::map<std::string, size_t> seen;
  for (const RecordPlace& place : PlacesOf(whole)) {
    const size_t number = seen[place.kind]++;
    if (number >= kOfAKind) continue;
    const bool starts = number == 0;
    std::vector<size_t> at;
    for (size_t field = 0; field < kShardStateFrameBytes; field += 4) {
      at.push_back(place.begin + field);
    }
    if (place.bulk > place.meta) {
      at.insert(at.end(), {place.meta, place.bulk - 1});
    }
    if (place.end > place.bulk) {
      at.insert(at.end(),
                {place.bulk, (place.bulk + place.end) / 2, place.end - 1});
    }
    for (const size_t byte : at) {
      SCOPED_TRACE(absl::StrCat(place.kind, " ", number, ", byte ",
                                byte - place.begin, " of its record"));
      std::string damaged = whole;
      damaged[byte] ^= 4;
      ASSERT_NO_FATAL_FAILURE(expect_damage(damaged, starts));
    }
    for (const size_t end : {place.begin, place.begin + 9, place.end - 1}) {
      SCOPED_TRACE(absl::StrCat("cut in ", place.kind, " ", number));
      ASSERT_NO_FATAL_FAILURE(expect_damage(whole.substr(0, end), starts));
      // The size that the manifest says, with zeros: a disk that lost its tail.
      std::string zeros = whole.substr(0, end);
      zeros.resize(whole.size());
      ASSERT_NO_FATAL_FAILURE(expect_damage(zeros, false));
    }
    SCOPED_TRACE(absl::StrCat("without ", place.kind, " ", number));
    ASSERT_NO_FATAL_FAILURE(expect_damage(
        whole.substr(0, place.begin) + whole.substr(place.end), false));
  }
  for (const char* kind : {"header", "block", "part", "rows", "footer"}) {
    EXPECT_GT(seen[kind], 0u) << kind;
  }
  EXPECT_GE(seen["block"], 12u) << "values and two slots of four tensors";
  ASSERT_OK(WriteFileAtomically(file, whole));
  ASSERT_OK(ReadCheckpoint(info->path(), *manifest, nullptr, nullptr));
}

// Each ps reads of the one file what its shard needs. Of a byte that is damaged
// one of them says so, whichever needs it, and the job does not start.
TEST_F(CheckpointRowsTest, OfSeveralPsTheOneThatNeedsAByteNamesItsDamage) {
  constexpr size_t kOfAKind = 12;  // all arrays of all blocks
  const auto info = Checkpoint(5);
  ASSERT_OK(info.status());
  const auto start = [&] {
    return StartFrom(
        *info, [](PsFixture::Options* options) { options->ps_count = 2; });
  };
  ASSERT_OK(start());
  const std::string file = absl::StrCat(info->path(), "/", ShardFileName(0, 1));
  const std::string whole = ContentOf(file);
  std::map<std::string, size_t> seen;
  std::map<std::string, size_t> by_ps;
  for (const RecordPlace& place : PlacesOf(whole)) {
    if (seen[place.kind]++ >= kOfAKind) continue;
    std::vector<size_t> at = {place.begin + 4, place.begin + 12,
                              place.begin + 20};
    if (place.bulk > place.meta) at.push_back(place.meta + 1);
    if (place.end > place.bulk) at.push_back((place.bulk + place.end) / 2);
    for (const size_t byte : at) {
      SCOPED_TRACE(absl::StrCat(place.kind, " ", seen[place.kind] - 1,
                                ", byte ", byte - place.begin,
                                " of its record"));
      std::string damaged = whole;
      damaged[byte] ^= 1;
      ASSERT_OK(WriteFileAtomically(file, damaged));
      const absl::Status started = start();
      ASSERT_EQ(started.code(), absl::StatusCode::kDataLoss) << started;
      EXPECT_THAT(std::string(started.message()),
                  AllOf(HasSubstr(file), HasSubstr(kDamagedCheckpoint)));
      for (const char* ps : {"ps:0", "ps:1"}) {
        by_ps[ps] += absl::StrContains(started.message(), ps) ? 1 : 0;
      }
    }
  }
  EXPECT_GE(seen["block"], 12u) << "values and two slots of four tensors";
  EXPECT_GT(by_ps["ps:0"], 0u);
  EXPECT_GT(by_ps["ps:1"], 0u) << "each has read the whole file";
  ASSERT_OK(WriteFileAtomically(file, whole));
  ASSERT_OK(start());
}

}  // namespace
}  // namespace syncline
