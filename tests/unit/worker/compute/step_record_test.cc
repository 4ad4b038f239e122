#include "worker/compute/step_record.h"

#include "gtest/gtest.h"
#include "tests/testing/poisoned_device.h"

namespace syncline::worker {
namespace {

// In memory that the host cannot touch.
class StepRecordTest : public ::testing::Test {
 protected:
  StepRecordTest() : stream_(*device_.MakeStream()) {
    EXPECT_TRUE(record_.Allocate(device_, *stream_).ok());
  }
  // As kernels would.
  void Write(double loss, const DataError& error) {
    stream_->CopyToDevice(record_.loss(), &loss, sizeof(loss));
    stream_->CopyToDevice(record_.error(), &error, sizeof(error));
  }
  StepRecord::Content Read() {
    record_.Copy(*stream_);
    const auto content = record_.Read(*stream_);
    EXPECT_TRUE(content.ok()) << content.status();
    return *content;
  }

  testing::PoisonedDevice device_;
  std::unique_ptr<Stream> stream_;
  StepRecord record_;
};

TEST_F(StepRecordTest, IsEmptyAtFirst) {
  EXPECT_EQ(Read().error.node, DataError::kNone);
}

TEST_F(StepRecordTest, TheHostReadsACopy) {
  Write(2.5, {});
  const StepRecord::Content content = Read();
  EXPECT_EQ(content.loss, 2.5);
  EXPECT_EQ(content.error.node, DataError::kNone);
}

TEST_F(StepRecordTest, AnErrorIsReadOnce) {
  Write(0, {.node = 3, .kind = 1, .position = 7, .value = -2});
  const StepRecord::Content content = Read();
  EXPECT_EQ(content.error.node, 3);
  EXPECT_EQ(content.error.position, 7);
  EXPECT_EQ(content.error.value, -2);
  EXPECT_EQ(Read().error.node, DataError::kNone);
}

}  // namespace
}  // namespace syncline::worker
