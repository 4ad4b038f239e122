// Goal: an error of a stream names the work that the device was running, for
// one write before each piece of work that queues anything. Method: kernels
// with and without faults, on an emulated device.

#include "kernels/cuda/progress_mark.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/launch.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::shared_ptr<const Stream::Marks> Names(Stream::Marks names) {
  return std::make_shared<const Stream::Marks>(std::move(names));
}

class ProgressMarkTest : public ::testing::Test {
 protected:
  void Write(int64_t count) {
    float* const at = memory_.as<float>();
    cuda::LaunchElements(*stream_, count, [to = cuda::OnDevice(at)](int64_t i) {
      to[i] = static_cast<float>(i);
    });
  }
  std::string Error() { return std::string(stream_->Synchronize().message()); }

  testing::EmulatedDevice device_;
  const std::unique_ptr<Stream> stream_ = *device_.MakeStream();
  const DeviceMemory memory_ = *device_.Allocate(10 * sizeof(float));
};

TEST_F(ProgressMarkTest, TheErrorNamesTheWorkThatRan) {
  stream_->UseMarks(Names({"the first", "the second", "the third"}));
  stream_->Mark(0);
  Write(10);
  stream_->Mark(1);
  Write(11);  // outside
  stream_->Mark(2);
  Write(10);
  EXPECT_THAT(Error(), AllOf(HasSubstr("running: the second"),
                             HasSubstr("which is outside"),
                             Not(HasSubstr("the third"))));
  EXPECT_EQ(device_.marks(), 3);
}

TEST_F(ProgressMarkTest, WorkThatQueuesNothingCostsNothing) {
  Write(10);
  EXPECT_EQ(device_.marks(), 0);
  stream_->UseMarks(Names({"a", "b"}));
  stream_->Mark(0);
  stream_->Mark(1);
  EXPECT_EQ(Error(), "");
  EXPECT_EQ(device_.marks(), 0);
  Write(10);
  Write(10);
  stream_->Mark(1);  // the same again
  Write(10);
  EXPECT_EQ(device_.marks(), 1);
  EXPECT_EQ(device_.launches(), 5);
}

TEST_F(ProgressMarkTest, CopiesAreMarkedToo) {
  stream_->UseMarks(Names({"inputs"}));
  stream_->Mark(0);
  const std::vector<float> values(10);
  stream_->CopyToDevice(memory_.data(), values.data(), memory_.bytes());
  EXPECT_EQ(device_.marks(), 1);
}

TEST_F(ProgressMarkTest, WithoutNamesNothingIsNamed) {
  Write(11);
  EXPECT_THAT(Error(), Not(HasSubstr("running")));
}

// Other names may have come between the graph and its launch.
TEST_F(ProgressMarkTest, AGraphWritesItsOwnMarks) {
  const auto names = Names({"the first", "the second"});
  stream_->UseMarks(names);
  stream_->Mark(0);
  Write(10);
  ASSERT_TRUE(stream_->BeginGraph().ok());
  stream_->Mark(0);
  Write(10);
  stream_->Mark(1);
  Write(11);  // outside
  const auto graph = *stream_->EndGraph();
  EXPECT_EQ(device_.marks(), 1);
  stream_->Mark(0);
  Write(10);
  EXPECT_EQ(device_.marks(), 2) << "what was kept has not marked the stream";
  stream_->UseMarks(Names({"another"}));
  stream_->Mark(0);
  Write(10);
  EXPECT_EQ(Error(), "");
  stream_->UseMarks(names);
  graph->Launch(*stream_);
  EXPECT_EQ(device_.marks(), 5);
  EXPECT_THAT(Error(), HasSubstr("running: the second"));
  Write(10);
  EXPECT_EQ(device_.marks(), 5) << "it still is the second's";
}

// The number in the device's word is one of those names, for as long as they
// are there: work of theirs may still run when others are in use.
TEST_F(ProgressMarkTest, AWordIsOneOfItsNames) {
  uint64_t word = 0;
  cuda::ProgressMark mark(&word);
  const auto first = Names({"a", "b"});
  mark.UseNames(first);
  EXPECT_EQ(mark.Running(), "");
  word = (uint64_t{1} << 32) | 1;
  EXPECT_EQ(mark.Running(), "b");
  mark.UseNames(first);
  EXPECT_EQ(mark.Running(), "b");
  mark.UseNames(Names({"c", "d"}));
  EXPECT_EQ(mark.Running(), "b");
  word = (uint64_t{2} << 32) | 1;
  EXPECT_EQ(mark.Running(), "d");
  word = (uint64_t{2} << 32) | 2;  // none of them
  EXPECT_EQ(mark.Running(), "");
  mark.UseNames(first);  // which have the number that they had
  word = (uint64_t{1} << 32) | 1;
  EXPECT_EQ(mark.Running(), "b");
  word = (uint64_t{2} << 32) | 1;  // of names that are gone
  EXPECT_EQ(mark.Running(), "");
  mark.UseNames(Names({"e"}));
  word = uint64_t{3} << 32;
  EXPECT_EQ(mark.Running(), "e");
}

}  // namespace
}  // namespace syncline
