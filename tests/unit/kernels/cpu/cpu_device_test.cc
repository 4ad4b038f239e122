#include "kernels/cpu/cpu_device.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/seed_count.h"

namespace syncline {
namespace {

TEST(CpuDeviceTest, MemoryIsAlignedAndGoesAlongWhenItIsMoved) {
  absl::StatusOr<DeviceMemory> made = ThisMachine().Allocate(1000);
  ASSERT_TRUE(made.ok()) << made.status();
  DeviceMemory memory = *std::move(made);
  EXPECT_EQ(memory.bytes(), 1000u);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  EXPECT_EQ(address % ThisMachine().alignment(), 0u);
  void* const data = memory.data();
  const DeviceMemory other = std::move(memory);
  EXPECT_EQ(other.data(), data);
}

TEST(CpuDeviceTest, NothingIsAskedForAndThatIsThere) {
  EXPECT_TRUE(ThisMachine().Allocate(0).ok());
}

TEST(CpuDeviceTest, MemoryThatIsNotThereIsRefused) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer ends the process";
  const auto memory = ThisMachine().Allocate(size_t{1} << 60);
  EXPECT_TRUE(absl::IsResourceExhausted(memory.status())) << memory.status();
}

TEST(CpuDeviceTest, CopiesAreDoneWhenTheCallReturns) {
  const std::vector<float> from = {1, 2, 3};
  absl::StatusOr<DeviceMemory> memory =
      Upload(ThisMachine(), absl::Span<const float>(from));
  ASSERT_TRUE(memory.ok()) << memory.status();
  absl::StatusOr<std::unique_ptr<Stream>> stream = ThisMachine().MakeStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  std::vector<float> to(3);
  (*stream)->CopyToHost(to.data(), memory->data(), 3 * sizeof(float));
  EXPECT_EQ(to, from);
  (*stream)->Clear(memory->data(), 2 * sizeof(float));
  (*stream)->CopyToHost(to.data(), memory->data(), 3 * sizeof(float));
  EXPECT_EQ(to, (std::vector<float>{0, 0, 3}));
  EXPECT_EQ(&(*stream)->device(), &ThisMachine());
}

TEST(CpuDeviceTest, AnEventIsDoneWhenItIsRecorded) {
  absl::StatusOr<std::unique_ptr<Event>> event = ThisMachine().MakeEvent();
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_TRUE((*event)->IsDone());
  CpuStream stream(&ThisMachine());
  (*event)->Record(stream);
  EXPECT_TRUE((*event)->IsDone());
  EXPECT_TRUE((*event)->Wait().ok());
  CpuStream other(&ThisMachine());
  other.Wait(**event);
}

}  // namespace
}  // namespace syncline
