// Goal: the emulator runs kernels as CUDA does, and says what CUDA leaves
// undefined. Method: small kernels that do one thing, right and wrong.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk/block_fold.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline::testing {
namespace {

using cuda::Global;
using cuda::kAllLanes;
using cuda::Launch;
using cuda::OnDevice;
using cuda::Shared;
using cuda::SharedMemory;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaEmulatorTest : public ::testing::Test {
 protected:
  CudaEmulatorTest() : stream_(*device_.MakeStream()) {}

  template <typename T>
  T* Put(const std::vector<T>& values) {
    memory_.push_back(*Upload(device_, absl::Span<const T>(values)));
    return memory_.back().as<T>();
  }
  template <typename T>
  T* Unwritten(size_t count) {
    memory_.push_back(*device_.Allocate(count * sizeof(T)));
    return memory_.back().as<T>();
  }
  template <typename T>
  std::vector<T> Get(const T* from, size_t count) {
    std::vector<T> values(count);
    stream_->CopyToHost(values.data(), from, count * sizeof(T));
    return values;
  }
  void ExpectReport(const ::testing::Matcher<std::string>& what) {
    const absl::Status status = stream_->Synchronize();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), what);
  }

  EmulatedDevice device_;
  std::vector<DeviceMemory> memory_;
  const std::unique_ptr<Stream> stream_;
};

TEST_F(CudaEmulatorTest, EveryThreadOfEveryBlockRunsOnce) {
  const auto runs = OnDevice(Put(std::vector<int>(3 * 64, 0)));
  Launch(*stream_, {.blocks = 3, .threads = 64}, [=] {
    EXPECT_EQ(blockDim.x, 64u);
    EXPECT_EQ(gridDim.x, 3u);
    runs[blockIdx.x * blockDim.x + threadIdx.x] += 1;
  });
  EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
  EXPECT_EQ(Get(runs.at(), 3 * 64), std::vector<int>(3 * 64, 1));
}

TEST_F(CudaEmulatorTest, NoBlocksAreNoLaunch) {
  Launch(*stream_, {.blocks = 0, .threads = 32}, [] { FAIL(); });
  EXPECT_EQ(device_.launches(), 0);
}

TEST_F(CudaEmulatorTest, TheOrderDependsOnTheSeed) {
  std::set<std::vector<unsigned>> orders;
  for (const uint64_t seed : {1, 2, 3, 3}) {
    EmulatedDevice device(seed);
    const auto stream = *device.MakeStream();
    std::vector<unsigned> order;
    Launch(*stream, {.blocks = 2, .threads = 32},
           [&order = order] { order.push_back(threadIdx.x); });
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST_F(CudaEmulatorTest, BarriersOrderSharedMemory) {
  const auto y = OnDevice(Unwritten<int>(2 * 64));
  Launch(*stream_, {.blocks = 2, .threads = 64, .shared_bytes = 256}, [=] {
    SharedMemory memory;
    const Shared<int> values = memory.Take<int>(64);
    const unsigned i = threadIdx.x;
    values[i] = static_cast<int>(i);
    __syncthreads();
    y[blockIdx.x * 64 + i] = values[63 - i];
  });
  EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
  EXPECT_EQ(Get(y.at(), 128)[64 + 5], 58);
}

TEST_F(CudaEmulatorTest, ReadsWithoutABarrierAreReported) {
  Launch(*stream_, {.blocks = 1, .threads = 64, .shared_bytes = 256}, [] {
    SharedMemory memory;
    const Shared<int> values = memory.Take<int>(64);
    values[threadIdx.x] = 1;
    [[maybe_unused]] const int other = values[63 - threadIdx.x];
  });
  // Whoever comes first reads what nobody has written, or writes later.
  ExpectReport(HasSubstr("of shared memory of 256 bytes, which"));
}

TEST_F(CudaEmulatorTest, WritesAfterReadsWithoutABarrierAreReported) {
  Launch(*stream_, {.blocks = 1, .threads = 32, .shared_bytes = 128}, [] {
    SharedMemory memory;
    const Shared<int> values = memory.Take<int>(32);
    values[threadIdx.x] = 1;
    __syncthreads();
    const int other = values[(threadIdx.x + 1) % 32];
    values[threadIdx.x] = other;
  });
  ExpectReport(HasSubstr("without a barrier between"));
}

TEST_F(CudaEmulatorTest, BlocksThatWriteOnePlaceAreReported) {
  const auto y = OnDevice(Unwritten<int>(1));
  Launch(*stream_, {.blocks = 2, .threads = 32}, [=] {
    if (threadIdx.x == 0) y[0] = 1;
  });
  ExpectReport(AllOf(HasSubstr("thread 0 writes 4 bytes at 0 of memory of the "
                               "device of 4 bytes, which block "),
                     HasSubstr("has written without a barrier between")));
}

TEST_F(CudaEmulatorTest, BlocksThatReadWhatAnotherWritesAreReported) {
  const auto y = OnDevice(Put(std::vector<int>{0, 0}));
  Launch(*stream_, {.blocks = 2, .threads = 32}, [=] {
    if (threadIdx.x != 0) return;
    const int other = y[1 - blockIdx.x];
    y[blockIdx.x] = other + 1;
  });
  ExpectReport(HasSubstr("without a barrier between"));
}

TEST_F(CudaEmulatorTest, LaunchesAreOrdered) {
  const auto y = OnDevice(Unwritten<int>(32));
  for (int i = 0; i < 2; ++i) {
    Launch(*stream_, {.blocks = 1, .threads = 32},
           [=] { y[i == 0 ? threadIdx.x : 31 - threadIdx.x] = i; });
  }
  EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
}

TEST_F(CudaEmulatorTest, AccessesOutsideAreReportedAndNotMade) {
  const auto y = OnDevice(Unwritten<float>(2));
  Launch(*stream_, {.blocks = 1, .threads = 32}, [=] {
    if (threadIdx.x != 3) return;
    y[2] = 1;
    EXPECT_EQ(static_cast<float>(y[-1]), 0);
  });
  ExpectReport(AllOf(
      HasSubstr("block 0 thread 3 writes 4 bytes at 8 of memory of the device "
                "of 8 bytes, which is outside"),
      HasSubstr("reads 4 bytes at -4")));
}

TEST_F(CudaEmulatorTest, MemoryOfTheHostIsReported) {
  const float host = 1;
  const auto x = OnDevice(&host);
  Launch(*stream_, {.blocks = 1, .threads = 32},
         [=] { [[maybe_unused]] const float value = x[0]; });
  ExpectReport(HasSubstr("reads what is no memory of the device"));
}

TEST_F(CudaEmulatorTest, ReadsOfWhatNobodyHasWrittenAreReported) {
  const auto x = OnDevice(Unwritten<float>(32));
  Launch(*stream_, {.blocks = 1, .threads = 32},
         [=] { [[maybe_unused]] const float value = x[threadIdx.x]; });
  ExpectReport(HasSubstr("which nobody has written"));
}

TEST_F(CudaEmulatorTest, MisalignedAccessesAreReported) {
  char* const bytes = Put(std::vector<char>(64, 0));
  const auto x = OnDevice(reinterpret_cast<int64_t*>(bytes + 4));
  Launch(*stream_, {.blocks = 1, .threads = 32},
         [=] { [[maybe_unused]] const int64_t value = x[0]; });
  ExpectReport(
      HasSubstr("reads 8 bytes at 4 of memory of the device of 64 "
                "bytes, which is no multiple of 8"));
}

TEST_F(CudaEmulatorTest, SharedMemoryOverItsSizeIsReported) {
  Launch(*stream_, {.blocks = 1, .threads = 32, .shared_bytes = 64}, [] {
    SharedMemory memory;
    memory.Take<char>(1);
    memory.Take<double>(8);
  });
  ExpectReport(
      HasSubstr("takes 72 bytes of shared memory, but its launch has "
                "64"));
}

TEST_F(CudaEmulatorTest, LanesSeeEachOthersValues) {
  const auto y = OnDevice(Unwritten<int>(64 * 4));
  Launch(*stream_, {.blocks = 1, .threads = 64}, [=] {
    const int i = static_cast<int>(threadIdx.x);
    y[i * 4] = __shfl_xor_sync(kAllLanes, i, 1);
    y[i * 4 + 1] = __shfl_down_sync(kAllLanes, i, 3);
    y[i * 4 + 2] = __shfl_sync(kAllLanes, i, 7);
    // Half a warp.
    if (i % 32 < 16) {
      y[i * 4 + 3] = static_cast<int>(__ballot_sync(0xffff, i % 2 == 0));
    } else {
      y[i * 4 + 3] = -1;
    }
  });
  ASSERT_EQ(stream_->Synchronize(), absl::OkStatus());
  const std::vector<int> got = Get(y.at(), 64 * 4);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(got[i * 4], i ^ 1);
    EXPECT_EQ(got[i * 4 + 1], i % 32 + 3 < 32 ? i + 3 : i);
    EXPECT_EQ(got[i * 4 + 2], i / 32 * 32 + 7);
    EXPECT_EQ(got[i * 4 + 3], i % 32 < 16 ? 0x5555 : -1);
  }
}

TEST_F(CudaEmulatorTest, FoldsAreThoseOfAllThreads) {
  const auto y = OnDevice(Unwritten<double>(256));
  Launch(*stream_, {.blocks = 1, .threads = 256, .shared_bytes = 256}, [=] {
    SharedMemory memory;
    const Shared<double> partial = memory.Take<double>(cuda::kWarpsMax);
    const double sum = cuda::BlockSum(1.0 * threadIdx.x, partial);
    y[threadIdx.x] = sum + cuda::BlockSum(1.0, partial);
  });
  EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
  EXPECT_EQ(Get(y.at(), 256), std::vector<double>(256, 255 * 128 + 256));
}

TEST_F(CudaEmulatorTest, ALaneThatHasEndedIsReported) {
  Launch(*stream_, {.blocks = 1, .threads = 32}, [] {
    if (threadIdx.x == 5) return;
    __shfl_xor_sync(kAllLanes, 1, 1);
  });
  ExpectReport(AllOf(HasSubstr("waits for the lanes 0xffffffff at "),
                     HasSubstr("thread 5 has ended")));
}

TEST_F(CudaEmulatorTest, ALaneThatIsNotAmongThoseItNamesIsReported) {
  Launch(*stream_, {.blocks = 1, .threads = 32},
         [] { __shfl_xor_sync(0xffff, 1, 1); });
  ExpectReport(
      HasSubstr("calls with the lanes 0x0000ffff, of which it is "
                "none"));
}

TEST_F(CudaEmulatorTest, AValueOfALaneThatDoesNotCallIsReported) {
  Launch(*stream_, {.blocks = 1, .threads = 32}, [] {
    if (threadIdx.x < 16) __shfl_xor_sync(0xffff, 1, 16);
  });
  ExpectReport(HasSubstr("which is not among the lanes 0x0000ffff"));
}

TEST_F(CudaEmulatorTest, ABarrierThatNotAllReachIsReported) {
  Launch(*stream_, {.blocks = 1, .threads = 64}, [] {
    if (threadIdx.x < 32) __syncthreads();
  });
  ExpectReport(
      AllOf(HasSubstr("waits for its block at "), HasSubstr("has ended")));
}

TEST_F(CudaEmulatorTest, TwoBarriersAreNotOne) {
  Launch(*stream_, {.blocks = 1, .threads = 64}, [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  });
  ExpectReport(
      AllOf(HasSubstr("waits for its block at "), HasSubstr("waits at ")));
}

TEST_F(CudaEmulatorTest, LaunchesThatCudaRefusesAreReported) {
  Launch(*stream_, {.blocks = 1, .threads = 2048}, [] { FAIL(); });
  ExpectReport(HasSubstr("CUDA launches no 1 blocks of 2048 threads"));
}

TEST_F(CudaEmulatorTest, CopiesOutsideAreReported) {
  int* const x = Put(std::vector<int>{1, 2});
  std::vector<int> values(3);
  stream_->CopyToHost(values.data(), x, 12);
  ExpectReport(
      HasSubstr("copy to the host: 12 bytes are not within memory of "
                "the device"));
}

TEST_F(CudaEmulatorTest, ThreadsChangeAnElementOneByOne) {
  int32_t* const sum = Put(std::vector<int32_t>{0, 0});
  const auto element = OnDevice(sum);
  const auto lock = OnDevice(sum + 1);
  Launch(*stream_, {.blocks = 4, .threads = 32}, [=] {
    cuda::AsOnlyThread(
        element, lock, [](int32_t value) { return value < 100; },
        [](int32_t& value) { ++value; });
  });
  EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
  EXPECT_EQ(Get(sum, 2), (std::vector<int32_t>{100, 0}));
  EXPECT_EQ(device_.locks(), 100);
}

// y[0] += *by + plus, where `plus` is an argument of the launch.
void Add(Stream& stream, float* y, const float* by, float plus) {
  cuda::LaunchElements(stream, 1,
                       [y = OnDevice(y), by = OnDevice(by), plus](int64_t) {
                         y[0] += static_cast<float>(by[0]) + plus;
                       });
}

TEST_F(CudaEmulatorTest, AGraphRunsAgainWithTheArgumentsThatItWasKeptWith) {
  float* const y = Put<float>({0});
  float* const by = Put<float>({1});
  float plus = 10;
  ASSERT_TRUE(stream_->BeginGraph().ok());
  Add(*stream_, y, by, plus);
  auto graph = stream_->EndGraph();
  ASSERT_TRUE(graph.ok()) << graph.status();
  plus = 20;
  EXPECT_EQ(Get(y, 1)[0], 0) << "what is kept is not done";
  (*graph)->Launch(*stream_);
  EXPECT_EQ(Get(y, 1)[0], 11);
  const float two = 2;
  stream_->CopyToDevice(by, &two, sizeof(two));
  (*graph)->Launch(*stream_);
  EXPECT_EQ(Get(y, 1)[0], 11 + 12) << "memory is read when it runs";
  EXPECT_EQ(device_.graph_launches(), 2);
  EXPECT_EQ(device_.graphs(), 1);
  graph->reset();
  EXPECT_EQ(device_.graphs(), 0);
  EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
}

TEST_F(CudaEmulatorTest, ARefusedGraphLeavesTheStreamAsItWas) {
  float* const y = Put<float>({0});
  device_.RefuseGraphs(absl::FailedPreconditionError("no"));
  ASSERT_TRUE(stream_->BeginGraph().ok());
  Add(*stream_, y, y, 1);
  EXPECT_EQ(stream_->EndGraph().status(), absl::FailedPreconditionError("no"));
  Add(*stream_, y, y, 1);
  EXPECT_EQ(Get(y, 1)[0], 1);
}

TEST_F(CudaEmulatorTest, EventsAndWaitsWithinAGraphAreReported) {
  const auto event = *device_.MakeEvent();
  ASSERT_TRUE(stream_->BeginGraph().ok());
  event->Record(*stream_);
  ASSERT_TRUE(stream_->EndGraph().ok());
  ExpectReport(HasSubstr("an event within a graph"));
}

TEST_F(CudaEmulatorTest, LateWorkIsDoneWhenItIsWaitedFor) {
  float* const y = Put<float>({0});
  device_.WorkLate();
  const auto stream = *device_.MakeStream();
  const auto other = *device_.MakeStream();
  const auto event = *device_.MakeEvent();
  EXPECT_TRUE(event->IsDone());
  std::vector<float> values(100, 1);
  float last = 0;
  for (float& value : values) {
    stream->CopyToDevice(y, &value, sizeof(value));
  }
  event->Record(*stream);
  EXPECT_FALSE(event->IsDone());
  values.back() = 5;  // too early: its copy has not been made
  other->Wait(*event);
  other->CopyToHost(&last, y, sizeof(last));
  EXPECT_EQ(other->Synchronize(), absl::OkStatus());
  EXPECT_TRUE(event->IsDone());
  EXPECT_EQ(last, 5);
}

// Without an event one of the orders is wrong.
TEST_F(CudaEmulatorTest, LateStreamsShowAnEventThatIsMissing) {
  std::set<float> seen;
  for (uint64_t seed = 1; seed < 20; ++seed) {
    EmulatedDevice device(seed);
    device.WorkLate();
    const float before = 0;
    const float one = 1;
    float value = -1;
    const DeviceMemory y = *Upload(device, absl::Span<const float>(&before, 1));
    const auto stream = *device.MakeStream();
    const auto other = *device.MakeStream();
    stream->CopyToDevice(y.data(), &one, sizeof(one));
    other->CopyToHost(&value, y.data(), sizeof(value));
    EXPECT_EQ(other->Synchronize(), absl::OkStatus());
    seen.insert(value);
  }
  EXPECT_EQ(seen, (std::set<float>{0, 1}));
}

}  // namespace
}  // namespace syncline::testing
