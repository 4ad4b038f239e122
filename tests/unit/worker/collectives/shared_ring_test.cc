// Two sides of a ring in one process: bytes in order through every fill, sleeps
// that are not missed, and what the other side must not say.

#include "worker/collectives/shared_ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

constexpr size_t kCapacity = 1024;

struct Region {
  Region() : bytes(SharedRing::RegionBytes(kCapacity) + 64) {}
  uint8_t* data() {
    const auto at = reinterpret_cast<uintptr_t>(bytes.data());
    return reinterpret_cast<uint8_t*>((at + 63) / 64 * 64);
  }
  // A counter, as its owner may set it: 0: produced, 64: consumed.
  void Set(size_t offset, uint64_t value) {
    std::memcpy(data() + offset, &value, sizeof(value));
  }
  std::vector<uint8_t> bytes;
};

struct Pair {
  Region a_region;
  Region b_region;
  SharedRing a{a_region.data(), b_region.data(), kCapacity};
  SharedRing b{b_region.data(), a_region.data(), kCapacity};
};

uint8_t ByteAt(uint64_t i) { return static_cast<uint8_t>(Mix64(i)); }

// Puts as much as a random number of bytes says; returns how many.
size_t Produce(SharedRing* ring, uint64_t from, Random* random) {
  const auto room = ring->Room();
  if (!room.ok() || *room == 0) return 0;
  const size_t units = 1 + random->Below(*room / 64);
  std::vector<uint8_t> bytes(units * 64);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = ByteAt(from + i);
  // In two pieces, as a header and a payload are.
  const size_t cut = random->Below(bytes.size());
  ring->Put(absl::MakeSpan(bytes).subspan(0, cut));
  ring->Put(absl::MakeSpan(bytes).subspan(cut));
  ring->Publish();
  return bytes.size();
}

TEST(SharedRingTest, BytesComeInOrder) {
  Pair pair;
  Random random(1);
  uint64_t produced = 0;
  uint64_t consumed = 0;
  while (consumed < 200'000) {
    if (random.Below(2) == 0) {
      produced += Produce(&pair.a, produced, &random);
      continue;
    }
    const auto bytes = pair.b.Readable();
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const size_t take =
        bytes->size() / 64 == 0 ? 0 : 64 * random.Below(bytes->size() / 64 + 1);
    for (size_t i = 0; i < take; ++i) {
      ASSERT_EQ((*bytes)[i], ByteAt(consumed + i));
    }
    pair.b.Consume(take);
    consumed += take;
  }
  EXPECT_LE(produced - consumed, kCapacity);
}

TEST(SharedRingTest, ASideIsRungOnceForEachSleepAndOnlyForWhatItWaitsFor) {
  Pair pair;
  const std::vector<uint8_t> bytes(64);
  EXPECT_FALSE(pair.a.MustRing()) << "nothing has happened";
  pair.b.Sleep(false);
  EXPECT_FALSE(pair.a.MustRing()) << "nothing has happened";
  pair.a.Put(bytes);
  EXPECT_FALSE(pair.a.MustRing()) << "nothing was published";
  pair.a.Publish();
  EXPECT_TRUE(pair.a.MustRing());
  pair.a.Put(bytes);
  pair.a.Publish();
  EXPECT_FALSE(pair.a.MustRing()) << "it was rung for this sleep";
  pair.b.WakeUp();
  pair.a.Put(bytes);
  pair.a.Publish();
  EXPECT_FALSE(pair.a.MustRing()) << "it is awake";
  // Room that was made matters only to a side that waits for it.
  ASSERT_EQ(pair.b.Readable()->size(), 192u);
  pair.a.Sleep(false);
  pair.b.Consume(64);
  EXPECT_FALSE(pair.b.MustRing());
  pair.a.WakeUp();
  pair.a.Sleep(true);
  pair.b.Consume(64);
  EXPECT_TRUE(pair.b.MustRing());
}

TEST(SharedRingTest, CountersThatCannotBeAreRefused) {
  {
    Pair pair;
    pair.b_region.Set(0, kCapacity + 64);
    EXPECT_EQ(pair.a.Readable().status().code(), absl::StatusCode::kDataLoss);
  }
  {
    Pair pair;
    pair.b_region.Set(0, 128);
    ASSERT_TRUE(pair.a.Readable().ok());
    pair.b_region.Set(0, 64);
    EXPECT_EQ(pair.a.Readable().status().code(), absl::StatusCode::kDataLoss)
        << "it went back";
  }
  {
    Pair pair;
    const std::vector<uint8_t> bytes(kCapacity);
    pair.a.Put(bytes);
    pair.a.Publish();
    EXPECT_EQ(*pair.a.Room(), 0u);
    pair.b_region.Set(64, kCapacity + 64);
    EXPECT_EQ(pair.a.Room().status().code(), absl::StatusCode::kDataLoss)
        << "more was read than was written";
  }
}

// Two threads, each of which sleeps on a flag that the other must set.
TEST(SharedRingTest, NoSleepIsMissed) {
  Pair pair;
  std::atomic<int> rings_a = 0;
  std::atomic<int> rings_b = 0;
  constexpr uint64_t kBytes = 100'000 / 64 * 64;
  const auto sleep = [](SharedRing* ring, std::atomic<int>* rings,
                        bool for_room, auto ready) {
    rings->store(0);
    ring->Sleep(for_room);
    if (!ready()) rings->wait(0);
    ring->WakeUp();
  };
  const auto ring_if_asleep = [](SharedRing* ring, std::atomic<int>* rings) {
    if (!ring->MustRing()) return;
    rings->fetch_add(1);
    rings->notify_all();
  };
  std::thread consumer([&] {
    for (uint64_t consumed = 0; consumed < kBytes;) {
      const auto bytes = pair.b.Readable();
      ASSERT_TRUE(bytes.ok());
      if (bytes->empty()) {
        sleep(&pair.b, &rings_b, false,
              [&] { return !pair.b.Readable()->empty(); });
        continue;
      }
      for (size_t i = 0; i < bytes->size(); ++i) {
        ASSERT_EQ((*bytes)[i], ByteAt(consumed + i));
      }
      consumed += bytes->size();
      pair.b.Consume(bytes->size());
      ring_if_asleep(&pair.b, &rings_a);
    }
  });
  for (uint64_t produced = 0; produced < kBytes;) {
    const auto room = pair.a.Room();
    ASSERT_TRUE(room.ok());
    if (*room == 0) {
      sleep(&pair.a, &rings_a, true, [&] { return *pair.a.Room() > 0; });
      continue;
    }
    const size_t count = std::min<uint64_t>(64, kBytes - produced);
    uint8_t bytes[64];
    for (size_t i = 0; i < count; ++i) bytes[i] = ByteAt(produced + i);
    pair.a.Put({bytes, count});
    pair.a.Publish();
    produced += count;
    ring_if_asleep(&pair.a, &rings_b);
  }
  consumer.join();
}

}  // namespace
}  // namespace syncline::worker
