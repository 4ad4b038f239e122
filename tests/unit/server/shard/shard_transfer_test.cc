// Goal: what comes late of a transfer that was given up does not change the
// state that a later transfer brings. Method: a shard of a job that begins
// without ps, and pieces that are handed to it.

#include "server/shard/shard_transfer.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/job_shard.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One block of four elements, on a shard that is away from the start.
class ShardTransferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    JobSpec spec = PlainSgdJob();
    spec.set_strategy(ALL_REDUCE);
    auto config = ReadJobConfig(AssignmentBuilder(spec, "j")
                                    .Parameter("w", {4})
                                    .Workers(2)
                                    .Ps(1)
                                    .Build(),
                                /*shard=*/0);
    ASSERT_OK(config.status());
    auto tables = EmbeddingTables::Create(*config, lanes_.count(),
                                          EmbeddingTables::ColdStores(0), {});
    ASSERT_OK(tables.status());
    shard_ = std::make_shared<JobShard>(
        *config, JobShard::Resources{&lanes_, budget_.get(), buffers_.get()},
        nullptr, *std::move(tables));
    transfer_ = std::make_unique<ShardTransfer>(shard_);
  }
  void TearDown() override {
    if (shard_ != nullptr) shard_->Close(absl::CancelledError("over"));
    lanes_.Drain();
  }

  // All of the block has this value.
  absl::Status Write(uint64_t transfer, float value) {
    const std::vector<float> values(4, value);
    WritePiecesRequest request;
    request.mutable_caller()->set_rank(0);
    request.mutable_caller()->set_incarnation(kTestWorkerIncarnation);
    request.set_transfer(transfer);
    request.add_pieces()->set_block(shard_->layout().ids()[0]);
    request.set_values(std::string(reinterpret_cast<const char*>(values.data()),
                                   values.size() * sizeof(float)));
    request.set_crc32c(Crc32c(request.values()));
    return transfer_->WritePieces(request);
  }
  absl::Span<const float> values() {
    lanes_.Drain();
    return shard_->executor()->dense().array(/*block=*/0, /*array=*/0);
  }

 private:
  const std::shared_ptr<InFlightBudget> budget_ =
      std::make_shared<InFlightBudget>(1 << 20);
  const std::shared_ptr<BufferPool> buffers_ =
      std::make_shared<BufferPool>(1 << 20);
  Lanes lanes_{2};
  std::shared_ptr<JobShard> shard_;
  std::unique_ptr<ShardTransfer> transfer_;
};

TEST_F(ShardTransferTest, PiecesOfAnEarlierTransferComeTooLate) {
  ASSERT_OK(Write(/*transfer=*/10, 1));
  EXPECT_THAT(values(), ElementsAre(1, 1, 1, 1));
  ASSERT_OK(Write(/*transfer=*/20, 2));
  const absl::Status late = Write(/*transfer=*/10, 3);
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(late.message()),
              HasSubstr("the state of transfer 10 comes too late"));
  EXPECT_THAT(values(), ElementsAre(2, 2, 2, 2));
  ASSERT_OK(Write(/*transfer=*/20, 4));
  EXPECT_THAT(values(), ElementsAre(4, 4, 4, 4));
}

}  // namespace
}  // namespace syncline::ps
