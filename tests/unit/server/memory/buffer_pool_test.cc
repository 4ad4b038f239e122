// Goal: buffers are reused, aligned, large enough, and what idles is bounded.
// Method: examples.

#include "server/memory/buffer_pool.h"

#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

TEST(BufferPoolTest, ReusesBuffersOfTheSameClass) {
  const auto pool = std::make_shared<BufferPool>(1 << 20);
  const float* first = pool->Get(100000).floats();
  EXPECT_EQ(pool->idle_bytes(), 131072u);
  EXPECT_EQ(pool->Get(90000).floats(), first);
  EXPECT_NE(pool->Get(10000).floats(), nullptr);
  EXPECT_EQ(pool->idle_bytes(), 131072u + 16384);
}

TEST(BufferPoolTest, BuffersAreAlignedAndLargeEnough) {
  const auto pool = std::make_shared<BufferPool>(0);
  for (const size_t bytes : {1, 4096, 4097, 1 << 20, (4 << 20) - 65536}) {
    BufferPool::Buffer buffer = pool->Get(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.floats()) % 64, 0u);
    std::memset(buffer.floats(), 1, bytes);  // the address sanitizer watches
  }
}

TEST(BufferPoolTest, IdleBytesAreBounded) {
  const auto pool = std::make_shared<BufferPool>(10000);
  {
    const BufferPool::Buffer a = pool->Get(8192);
    const BufferPool::Buffer b = pool->Get(8192);
  }
  EXPECT_EQ(pool->idle_bytes(), 8192u);
}

TEST(BufferPoolTest, BuffersMayOutliveTheirPoolsOwner) {
  auto pool = std::make_shared<BufferPool>(1 << 20);
  BufferPool::Buffer buffer = pool->Get(5000);
  pool.reset();
  std::memset(buffer.floats(), 1, 5000);
}

}  // namespace
}  // namespace syncline::ps
