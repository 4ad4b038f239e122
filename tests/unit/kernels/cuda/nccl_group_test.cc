// Goal: ranks that reduce by NCCL get the sums, and the parts of them, of all
// ranks; a rank that does not come, dies or fails ends the others' calls with
// its reason by their deadline, and nothing is left of the group. Method: ranks
// as threads with emulated devices and NCCL's double.

#include "kernels/cuda/nccl_group.h"

#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/cuda_emulator/nccl_double.h"

namespace syncline::cuda {
namespace {

using ::testing::AllOf;
using testing::EmulatedDevice;
using ::testing::HasSubstr;
using testing::NcclDouble;

absl::Time Soon() { return MonotonicNow() + absl::Milliseconds(50); }
absl::Time Late() { return MonotonicNow() + absl::Seconds(60); }

// A rank's thread has one.
class GroupRank {
 public:
  GroupRank(const Nccl& nccl, uint32_t rank, uint32_t ranks)
      : nccl_(nccl), rank_(rank), ranks_(ranks), device_(rank + 1) {}

  absl::Status Join(const NcclId& id, absl::Time deadline) {
    auto group = NcclGroup::Join(
        {.library = &nccl_,
         .label = absl::StrCat("job j on rank ", rank_),
         .rank = rank_,
         .ranks = ranks_,
         .missing = [] { return std::string("rank 1 (worker:1)"); }},
        id, stream_.get(), deadline);
    if (group.ok()) group_ = *std::move(group);
    return group.status();
  }
  float* Put(const std::vector<float>& values) {
    memory_.push_back(*device_.Allocate(values.size() * sizeof(float)));
    stream_->CopyToDevice(memory_.back().data(), values.data(),
                          values.size() * sizeof(float));
    return memory_.back().as<float>();
  }
  std::vector<float> Get(const float* from, size_t count) {
    std::vector<float> values(count);
    stream_->CopyToHost(values.data(), from, count * sizeof(float));
    EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
    return values;
  }
  NcclGroup& group() { return *group_; }
  EmulatedDevice& device() { return device_; }
  void Leave() { group_.reset(); }

 private:
  const Nccl& nccl_;
  const uint32_t rank_;
  const uint32_t ranks_;
  EmulatedDevice device_;
  const std::unique_ptr<Stream> stream_ = *device_.MakeStream();
  std::vector<DeviceMemory> memory_;
  std::unique_ptr<NcclGroup> group_;
};

class NcclGroupTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(NcclDouble::communicators(), 0); }

  // Runs `of_rank` for each of the group's ranks, on threads.
  void RunRanks(uint32_t ranks,
                const std::function<void(uint32_t, GroupRank&)>& of_rank) {
    const NcclId id = *nccl_->MakeId();
    std::vector<std::thread> threads;
    std::latch joined(ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        GroupRank of(*nccl_, rank, ranks);
        const absl::Status joining = of.Join(id, Late());
        // A rank that breaks the group breaks none that is still to form.
        joined.arrive_and_wait();
        ASSERT_EQ(joining, absl::OkStatus());
        of_rank(rank, of);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const std::unique_ptr<Nccl> nccl_ = NcclDouble::Make();
};

TEST_F(NcclGroupTest, AGroupOfOneHasItsOwnValues) {
  RunRanks(1, [](uint32_t, GroupRank& of) {
    float* const values = of.Put({1, 2, 3});
    ASSERT_EQ(of.group().AllReduce(values, 3, Late()), absl::OkStatus());
    ASSERT_EQ(of.group().ReduceScatter(values, values, 3, Late()),
              absl::OkStatus());
    ASSERT_EQ(of.group().AllGather(values, values, 3, Late()),
              absl::OkStatus());
    ASSERT_EQ(of.group().Await(Late()), absl::OkStatus());
    EXPECT_THAT(of.Get(values, 3), ::testing::ElementsAre(1, 2, 3));
  });
  EXPECT_EQ(NcclDouble::aborted(), 0);
}

TEST_F(NcclGroupTest, RanksHaveTheSums) {
  constexpr size_t kEach = 5;
  for (uint32_t ranks = 2; ranks <= 4; ++ranks) {
    RunRanks(ranks, [&](uint32_t rank, GroupRank& of) {
      const size_t count = kEach * ranks;
      // Integers add up to the same in any order.
      std::vector<float> own;
      std::vector<float> sums(count);
      for (uint32_t r = 0; r < ranks; ++r) {
        Random random(r + 1);
        for (size_t i = 0; i < count; ++i) {
          const auto value = static_cast<float>(random.Below(100));
          if (r == rank) own.push_back(value);
          sums[i] += value;
        }
      }
      float* const reduced = of.Put(own);
      float* const scattered = of.Put(own);
      for (int repeat = 0; repeat < 3; ++repeat) {
        float* const again = of.Put(own);
        ASSERT_EQ(of.group().AllReduce(again, count, Late()), absl::OkStatus());
      }
      ASSERT_EQ(of.group().AllReduce(reduced, count, Late()), absl::OkStatus());
      float* const part = scattered + rank * kEach;
      ASSERT_EQ(of.group().ReduceScatter(scattered, part, kEach, Late()),
                absl::OkStatus());
      ASSERT_EQ(of.group().AllGather(part, scattered, kEach, Late()),
                absl::OkStatus());
      ASSERT_EQ(of.group().Await(Late()), absl::OkStatus());
      EXPECT_EQ(of.Get(reduced, count), sums);
      EXPECT_EQ(of.Get(scattered, count), sums);
    });
  }
  EXPECT_EQ(NcclDouble::aborted(), 0);
}

TEST_F(NcclGroupTest, ARankThatNeverJoinsIsNamedByTheDeadline) {
  const NcclId id = *nccl_->MakeId();
  GroupRank of(*nccl_, 0, 2);
  const absl::Status status = of.Join(id, Soon());
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("job j on rank 0: NCCL 2.28.9: join the group"),
                    HasSubstr("missing: rank 1 (worker:1)")));
  EXPECT_EQ(NcclDouble::aborted(), 1);
}

TEST_F(NcclGroupTest, ARankThatDoesNotCallIsNamedByTheDeadline) {
  absl::Notification ended;
  RunRanks(2, [&](uint32_t rank, GroupRank& of) {
    if (rank == 1) {
      ended.WaitForNotification();
      return;
    }
    float* const values = of.Put({1, 2});
    const absl::Status status = of.group().AllReduce(values, 2, Soon());
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("an all-reduce by NCCL"),
                      HasSubstr("missing: rank 1 (worker:1)")));
    // It says so from then on.
    EXPECT_EQ(of.group().AllGather(values, values, 1, Late()), status);
    EXPECT_EQ(of.group().Await(Late()), status);
    EXPECT_EQ(of.group().status(), status);
    ended.Notify();
  });
}

TEST_F(NcclGroupTest, ARankThatDiesEndsTheCallsOfTheOthers) {
  RunRanks(4, [&](uint32_t rank, GroupRank& of) {
    float* const values = of.Put({1, 2});
    if (rank == 2) {
      of.group().Abort(absl::AbortedError("its process ends"));
      EXPECT_EQ(of.group().status(),
                absl::AbortedError("job j on rank 2: its process ends"));
      return;
    }
    const absl::Status status = of.group().AllReduce(values, 2, Late());
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("an all-reduce by NCCL: remote process exited"),
                      HasSubstr("has closed its connection")));
  });
  EXPECT_EQ(NcclDouble::aborted(), 4);
}

TEST_F(NcclGroupTest, AnErrorOfOneRankEndsItsGroup) {
  NcclDouble::FailAt("all_reduce", /*rank=*/1, kNcclInternalError);
  RunRanks(2, [&](uint32_t rank, GroupRank& of) {
    float* const values = of.Put({1, 2});
    const absl::Status status = of.group().AllReduce(values, 2, Late());
    EXPECT_EQ(status.code(), rank == 1 ? absl::StatusCode::kInternal
                                       : absl::StatusCode::kUnavailable)
        << status;
  });
  NcclDouble::FailAt("init", /*rank=*/0, kNcclSystemError);
  GroupRank alone(*nccl_, 0, 1);
  EXPECT_TRUE(absl::IsUnavailable(alone.Join(*nccl_->MakeId(), Late())));
}

// The results of the group's work are not known, so no later call may use them.
TEST_F(NcclGroupTest, AnErrorOfTheDeviceBreaksTheGroup) {
  RunRanks(1, [&](uint32_t, GroupRank& of) {
    float* const values = of.Put({1, 2});
    ASSERT_EQ(of.group().AllReduce(values, 2, Late()), absl::OkStatus());
    of.device().Report("an address that is not the device's");
    const absl::Status status = of.group().Await(Late());
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_EQ(of.group().status(), status);
    EXPECT_EQ(of.group().AllReduce(values, 2, Late()), status);
  });
}

TEST_F(NcclGroupTest, RanksThatDifferInACallAreToldSo) {
  RunRanks(2, [&](uint32_t rank, GroupRank& of) {
    float* const values = of.Put({1, 2});
    const absl::Status status = of.group().AllReduce(values, 1 + rank, Late());
    EXPECT_FALSE(status.ok());
  });
}

TEST_F(NcclGroupTest, AnotherThreadEndsAWait) {
  absl::Notification ended;
  RunRanks(2, [&](uint32_t rank, GroupRank& of) {
    if (rank == 1) {
      ended.WaitForNotification();
      return;
    }
    float* const values = of.Put({1, 2});
    std::thread other(
        [&] { of.group().Abort(absl::CancelledError("the job has ended")); });
    EXPECT_EQ(of.group().AllReduce(values, 2, Late()),
              absl::CancelledError("job j on rank 0: the job has ended"));
    other.join();
    ended.Notify();
  });
}

}  // namespace
}  // namespace syncline::cuda
