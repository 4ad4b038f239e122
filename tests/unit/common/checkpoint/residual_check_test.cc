// Goal: a file of residuals is found by its name, and read to its last byte; a
// damaged one, or one of another checkpoint, is refused by name. Method: files
// that are written as a worker writes them, whole and then changed.

#include "common/checkpoint/residual_check.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/state_file.h"
#include "common/state/block_state.h"
#include "common/state/shard_state_writer.h"
#include "common/system/disk_thread.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_state.pb.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

class ResidualCheckTest : public ::testing::Test {
 protected:
  ResidualCheckTest() {
    manifest_.set_job_id("j-1");
    manifest_.set_cut_id(7);
    manifest_.add_workers();
    manifest_.add_workers();
  }

  std::string PathOf(uint32_t rank, uint32_t ranks = 2) const {
    return dir_.File(ResidualFileName(rank, ranks));
  }
  // Two tensors of one array.
  void Write(uint32_t rank, const std::string& job = "j-1",
             uint32_t announced = 2) {
    auto file = StateFileSink::Create(PathOf(rank), /*go_on=*/nullptr, &disk_);
    ASSERT_OK(file.status());
    ShardStateWriter writer(file->get());
    ShardStateHeader header;
    header.set_format(kShardStateFormat);
    header.set_job_id(job);
    header.set_ps_rank(rank);
    header.set_cut_id(7);
    header.set_blocks(announced);
    ASSERT_OK(writer.Write(ShardStateKind::kHeader, header, {}));
    const std::vector<float> values(100, 0.5f);
    for (uint32_t tensor = 0; tensor < 2; ++tensor) {
      ASSERT_OK(WriteBlock(
          tensor, values.size(), /*updates=*/8, /*arrays=*/1,
          [&](int) { return absl::MakeConstSpan(values); }, &writer));
    }
    ShardStateTrailer trailer;
    trailer.set_blocks(2);
    ASSERT_OK(writer.Write(ShardStateKind::kTrailer, trailer, {}));
    ASSERT_OK((*file)->Finish());
  }
  absl::Status Check(uint32_t rank, uint32_t ranks = 2) const {
    return CheckResiduals(dir_.path(), manifest_, {rank, ranks, 0});
  }

  const TempDir dir_;
  DiskThread disk_{"test-disk"};
  CheckpointManifest manifest_;
};

TEST_F(ResidualCheckTest, FilesAreFoundByTheirNames) {
  EXPECT_TRUE(ListResiduals(dir_.path()).empty());
  EXPECT_TRUE(ListResiduals(dir_.File("none")).empty());
  Write(1);
  Write(0);
  for (const char* other :
       {"residuals-1-of-2.state", "residuals-00000-of-00002.state.tmp",
        "shard-00000-of-00002.state", "residuals-a-of-b.state"}) {
    ASSERT_OK(WriteFileAtomically(dir_.File(other), "x"));
  }
  const std::vector<ResidualFile> files = ListResiduals(dir_.path());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].rank, 0u);
  EXPECT_EQ(files[1].rank, 1u);
  EXPECT_EQ(files[1].ranks, 2u);
  EXPECT_GT(files[0].bytes, 800u);
  EXPECT_EQ(ResidualBytes(files), files[0].bytes + files[1].bytes);
}

TEST_F(ResidualCheckTest, AWholeFileIsReadToItsEnd) {
  Write(1);
  EXPECT_OK(Check(1));
}

TEST_F(ResidualCheckTest, EachByteCounts) {
  Write(1);
  const std::string whole = *ReadFile(PathOf(1), 1 << 20);
  for (size_t at = 0; at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    ASSERT_OK(WriteFileAtomically(PathOf(1), damaged));
    EXPECT_FALSE(Check(1).ok()) << at;
  }
  for (const size_t size : {size_t{0}, whole.size() / 2, whole.size() - 1}) {
    ASSERT_OK(WriteFileAtomically(PathOf(1), whole.substr(0, size)));
    EXPECT_TRUE(absl::IsDataLoss(Check(1))) << Check(1);
  }
  ASSERT_OK(WriteFileAtomically(PathOf(1), whole + "x"));
  EXPECT_FALSE(Check(1).ok());
}

TEST_F(ResidualCheckTest, AFileOfAnotherCheckpointIsRefused) {
  Write(1, "j-2");
  EXPECT_THAT(std::string(Check(1).message()),
              HasSubstr("of another checkpoint: job j-2, rank 1, cut 7"));
  Write(1, "j-1", /*announced=*/3);
  EXPECT_THAT(std::string(Check(1).message()),
              HasSubstr("the file has 2 tensors, 3 were written"));
  EXPECT_THAT(std::string(Check(1, 3).message()),
              HasSubstr("the checkpoint is of 2 workers"));
  EXPECT_TRUE(absl::IsNotFound(Check(0)));
}

}  // namespace
}  // namespace syncline
