// Goal: whatever checkpoints fail, are given up, come late or lose their links,
// the rows that are restored from one are those of its cut.
// Method: partitions of random rows beside a reference; checkpoints planned by
// CheckpointChain, their rows chosen by ChangedKeys, and read back by RowChain;
// each checkpoint that exists is restored, and the job goes on from some.

#include "common/checkpoint/checkpoint_chain.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/state/row_chain.h"
#include "gtest/gtest.h"
#include "proto/shard_state.pb.h"
#include "server/tables/changed_keys.h"
#include "tests/testing/seed_count.h"

namespace syncline {
namespace {

constexpr uint32_t kPartitions = 3;
constexpr uint32_t kSlots = 2;  // of each
constexpr uint64_t kKeys = 40;  // of each

using Rows = std::map<int64_t, uint64_t>;  // by key

// A part of a file as it is written.
struct Part {
  uint32_t partition = 0;
  bool changes_only = false;
  Rows rows;
  std::vector<int64_t> gone;
};
using File = std::vector<Part>;

// A folder with a manifest: the files of its chain, and what it should be.
struct Checkpoint {
  std::vector<File> files;  // the oldest first
  std::vector<Rows> reference;
};

struct Partition {
  Rows rows;
  ps::ChangedKeys changes;
};

struct Totals {
  int restored = 0;
  int with_older = 0;
  int longest = 0;
  int overflowed = 0;
};

class ChainSimulation {
 public:
  explicit ChainSimulation(uint64_t seed)
      : random_(seed),
        full_every_(static_cast<uint32_t>(1 + random_.Below(5))),
        limit_(random_.Below(3) == 0 ? 6 : 1000) {
    Begin(std::vector<Rows>(kPartitions));
  }

  void Run(Totals* totals) {
    for (int step = 0; step < 60; ++step) {
      for (uint64_t i = random_.Below(12); i > 0; --i) Change();
      if (random_.Below(2) == 0) MakeCheckpoint(totals);
      if (random_.Below(25) == 0 && !made_.empty()) {
        // The job is lost, and starts from a checkpoint.
        auto from = made_.begin();
        std::advance(from, random_.Below(made_.size()));
        Begin(Restore(from->second));
      }
    }
    for (const auto& [cut, checkpoint] : made_) {
      ASSERT_EQ(Restore(checkpoint), checkpoint.reference) << "cut " << cut;
      ++totals->restored;
      totals->with_older += checkpoint.files.size() > 1 ? 1 : 0;
      totals->longest =
          std::max(totals->longest, static_cast<int>(checkpoint.files.size()));
      ASSERT_LE(checkpoint.files.size(), full_every_);
    }
  }

 private:
  void Begin(std::vector<Rows> rows) {
    partitions_.clear();
    for (Rows& some : rows) partitions_.push_back({std::move(some), {}});
    chain_.emplace(full_every_);
    late_.reset();
  }

  void Change() {
    const uint64_t p = random_.Below(kPartitions);
    Partition& partition = partitions_[p];
    const auto key = static_cast<int64_t>(p * kKeys + random_.Below(kKeys));
    if (random_.Below(3) == 0) {
      if (partition.rows.erase(key) == 0) return;  // it has expired
    } else {
      partition.rows[key] = random_.Next();
    }
    partition.changes.Note(key);
  }

  // Writes the partition at a cut as ShardExporter does.
  Part Write(uint32_t p, const CheckpointChain::Plan& plan, uint64_t cut,
             Totals* totals) {
    Partition& partition = partitions_[p];
    const ps::ChangedKeys::Changes changes =
        partition.changes.Close(plan.base_cut, cut, limit_);
    Part part;
    part.partition = p;
    part.changes_only = !plan.older.empty() && !changes.all;
    if (!plan.older.empty() && changes.all) ++totals->overflowed;
    if (!part.changes_only) part.rows = partition.rows;
    for (const int64_t key : changes.keys) {
      if (!part.changes_only) break;
      const auto row = partition.rows.find(key);
      if (row == partition.rows.end()) {
        part.gone.push_back(key);
      } else {
        part.rows.insert(*row);
      }
    }
    return part;
  }

  void MakeCheckpoint(Totals* totals) {
    // A commit that comes while the next one is written was not seen.
    const bool is_committed = chain_->written().has_value() &&
                              made_.contains(chain_->written()->file.cut_id);
    CheckpointChain::Plan plan = chain_->Next(is_committed);
    if (late_.has_value()) made_.insert(*late_);
    late_.reset();
    const Checkpoint* base = nullptr;
    if (plan.base_cut != 0) {
      const auto found = made_.find(plan.base_cut);
      if (found != made_.end()) base = &found->second;
    }
    const bool linked = base != nullptr && random_.Below(10) != 0;
    if (!linked) plan.older.clear();
    const uint64_t cut = ++last_cut_;
    Checkpoint made;
    if (!plan.older.empty()) {
      ASSERT_EQ(plan.older.size(), base->files.size());
      made.files = base->files;
    }
    for (const Partition& partition : partitions_) {
      made.reference.push_back(partition.rows);
    }
    // In any order, as lanes come; it may fail in the middle.
    std::vector<uint32_t> order = {0, 1, 2};
    std::swap(order[random_.Below(3)], order[random_.Below(3)]);
    const bool fails = random_.Below(6) == 0;
    const uint64_t written = fails ? random_.Below(kPartitions) : kPartitions;
    File& file = made.files.emplace_back();
    for (uint64_t i = 0; i < written; ++i) {
      file.push_back(Write(order[i], plan, cut, totals));
    }
    if (fails) return;
    chain_->OnWritten(plan.older, {"", {.cut_id = cut, .bytes = 1}});
    switch (random_.Below(6)) {
      case 0:
        return;  // another shard's has failed
      case 1:
        late_.emplace(cut, std::move(made));
        return;
      default:
        made_.emplace(cut, std::move(made));
    }
    // Retention: the base may be gone, never the latest.
    if (random_.Below(4) == 0 && made_.size() > 2) made_.erase(made_.begin());
  }

  static std::vector<Rows> Restore(const Checkpoint& checkpoint) {
    std::vector<Rows> rows(kPartitions);
    RowChain chain;
    chain.Begin({kPartitions * kSlots});
    for (auto file = checkpoint.files.rbegin(); file != checkpoint.files.rend();
         ++file) {
      for (const Part& from : *file) {
        TablePart part;
        TablePart::Run* const run = part.add_slots();
        run->set_first(from.partition * kSlots);
        run->set_count(kSlots);
        part.set_changes_only(from.changes_only);
        std::string problem;
        EXPECT_TRUE(chain.OpenPart(part, &problem)) << problem;
        for (const auto& [key, value] : from.rows) {
          if (!chain.TakeRow(key)) continue;
          EXPECT_TRUE(rows[from.partition].emplace(key, value).second);
        }
        for (const int64_t key : from.gone) chain.TakeGone(key);
      }
      chain.EndNewest();
    }
    EXPECT_FALSE(chain.Missing().has_value());
    return rows;
  }

  Random random_;
  const uint32_t full_every_;
  const size_t limit_;
  std::vector<Partition> partitions_;
  std::optional<CheckpointChain> chain_;
  std::map<uint64_t, Checkpoint> made_;  // by cut
  std::optional<std::pair<uint64_t, Checkpoint>> late_;
  uint64_t last_cut_ = 0;
};

TEST(CheckpointChainSimulation, WhatIsRestoredIsWhatWasThere) {
  constexpr int kSeeds = SeedCount(10000);
  Totals totals;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ASSERT_NO_FATAL_FAILURE(
        ChainSimulation(static_cast<uint64_t>(seed)).Run(&totals));
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  EXPECT_GT(totals.restored, kSeeds);
  EXPECT_GT(totals.with_older, totals.restored / 4);
  EXPECT_EQ(totals.longest, 5);
  EXPECT_GT(totals.overflowed, 0);
}

}  // namespace
}  // namespace syncline
