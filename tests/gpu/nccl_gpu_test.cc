// Goal: NCCL takes our calls on a GPU. Method: a group of one rank, since a GPU
// cannot be two ranks of a group: sums are the rank's own values. Groups of
// more ranks are nccl_group_test's, with a double.

#include <vector>

#include "common/base/clock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/nccl_group.h"
#include "tests/gpu/gpu.h"

namespace syncline {
namespace {

TEST(NcclGpuTest, AGroupOfOneRank) {
  const auto nccl = cuda::Nccl::Load();
  if (!nccl.ok()) GTEST_SKIP() << nccl.status();
  OnGpu gpu;
  ASSERT_NE(gpu.device(), nullptr);
  const auto stream = gpu.device()->MakeStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  const auto id = (*nccl)->MakeId();
  ASSERT_TRUE(id.ok()) << id.status();
  const auto in_time = [] { return MonotonicNow() + absl::Seconds(60); };
  auto group = cuda::NcclGroup::Join({.library = nccl->get(), .label = "gpu"},
                                     *id, stream->get(), in_time());
  ASSERT_TRUE(group.ok()) << group.status();
  constexpr size_t kCount = 100'003;
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i) * 0.1f;
  auto memory = gpu.device()->Allocate(kCount * sizeof(float));
  ASSERT_TRUE(memory.ok()) << memory.status();
  float* const on_gpu = memory->as<float>();
  (*stream)->CopyToDevice(on_gpu, values.data(), kCount * sizeof(float));
  EXPECT_EQ((*group)->AllReduce(on_gpu, kCount, in_time()), absl::OkStatus());
  EXPECT_EQ((*group)->ReduceScatter(on_gpu, on_gpu, kCount, in_time()),
            absl::OkStatus());
  EXPECT_EQ((*group)->AllGather(on_gpu, on_gpu, kCount, in_time()),
            absl::OkStatus());
  EXPECT_EQ((*group)->Await(in_time()), absl::OkStatus());
  std::vector<float> got(kCount);
  (*stream)->CopyToHost(got.data(), on_gpu, kCount * sizeof(float));
  ASSERT_EQ((*stream)->Synchronize(), absl::OkStatus());
  EXPECT_EQ(got, values);
  (*group)->Abort(absl::CancelledError("the test ends it"));
  EXPECT_TRUE(absl::IsCancelled((*group)->AllReduce(on_gpu, 1, in_time())));
}

}  // namespace
}  // namespace syncline
