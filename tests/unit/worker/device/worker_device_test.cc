// Goal: a worker computes on the GPU that it was told to, or on one that no
// other worker of the machine has, or says why on none. Method: a machine of
// made-up GPUs, some of which other workers have, or cannot be used.

#include "worker/device/worker_device.h"

#include <fcntl.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"

namespace syncline::worker {
namespace {

using ::testing::HasSubstr;

class MadeUpGpu : public CpuDevice {
 public:
  explicit MadeUpGpu(int number) : name_(absl::StrCat("cuda:", number)) {}
  absl::string_view name() const override { return name_; }
  Description description() const override {
    return {.model = "made up", .address = name_, .memory_bytes = 0};
  }

 private:
  const std::string name_;
};

class WorkerDeviceTest : public ::testing::Test {
 protected:
  GpuSource Source() {
    return {
        .count = [this] { return count_; },
        .open = [this](int number) -> absl::StatusOr<std::unique_ptr<Device>> {
          if (number >= count_) {
            return absl::NotFoundError(absl::StrCat(
                "cuda:", number, ": this machine has ", count_, " GPUs"));
          }
          if (too_old_.contains(number)) {
            return absl::FailedPreconditionError(
                absl::StrCat("cuda:", number, " is too old"));
          }
          return std::make_unique<MadeUpGpu>(number);
        },
        .claim = [this](const std::string& address)
            -> absl::StatusOr<FileDescriptor> {
          if (used_.contains(address)) {
            return absl::AlreadyExistsError(address);
          }
          used_.insert(address);
          return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
        }};
  }

  int count_ = 3;
  std::set<int> too_old_;
  std::set<std::string> used_;
};

TEST_F(WorkerDeviceTest, WorkersOfAMachineHaveAGpuEach) {
  for (const char* name : {"cuda:0", "cuda:1", "cuda:2"}) {
    const auto device = OpenWorkerDevice("auto", Source());
    ASSERT_TRUE(device.ok());
    ASSERT_NE(device->gpu, nullptr);
    EXPECT_EQ(device->gpu->name(), name);
    EXPECT_EQ(device->warning, "");
    EXPECT_TRUE(device->claim.valid());
  }
  const auto fourth = OpenWorkerDevice("auto", Source());
  EXPECT_EQ(fourth->gpu->name(), "cuda:0");
  EXPECT_THAT(fourth->warning, HasSubstr("computes on cuda:0 too"));
}

TEST_F(WorkerDeviceTest, OneThatCannotBeUsedIsPassedOver) {
  too_old_ = {0};
  EXPECT_EQ(OpenWorkerDevice("auto", Source())->gpu->name(), "cuda:1");
  too_old_ = {0, 1, 2};
  const auto none = OpenWorkerDevice("auto", Source());
  EXPECT_EQ(none->gpu, nullptr);
  EXPECT_EQ(none->why_no_gpu,
            "cuda:0 is too old; cuda:1 is too old; cuda:2 is too old");
}

TEST_F(WorkerDeviceTest, WithoutAGpuTheReasonIsThatOfTheFirst) {
  count_ = 0;
  const auto device = OpenWorkerDevice("auto", Source());
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(device->gpu, nullptr);
  EXPECT_EQ(device->why_no_gpu, "cuda:0: this machine has 0 GPUs");
}

TEST_F(WorkerDeviceTest, ANumberIsThatGpuOrAnError) {
  EXPECT_EQ(OpenWorkerDevice("cuda:2", Source())->gpu->name(), "cuda:2");
  const auto again = OpenWorkerDevice("cuda:2", Source());
  EXPECT_EQ(again->gpu->name(), "cuda:2");
  EXPECT_THAT(again->warning, HasSubstr("cuda:2 too"));
  const auto missing = OpenWorkerDevice("cuda:7", Source());
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("--device=cuda:7: cuda:7: this machine has 3 GPUs"));
  EXPECT_TRUE(
      absl::IsInvalidArgument(OpenWorkerDevice("cuda:x", Source()).status()));
}

TEST_F(WorkerDeviceTest, TheProcessorsWhereTheFlagSaysSo) {
  const auto device = OpenWorkerDevice("cpu", Source());
  EXPECT_EQ(device->gpu, nullptr);
  EXPECT_THAT(device->why_no_gpu, HasSubstr("--device=cpu"));
  EXPECT_TRUE(used_.empty());
}

}  // namespace
}  // namespace syncline::worker
