// Goal: members read the same placement from an assignment, by default or as it
// says, and believe no other.
// Method: assignments with made-up members, and each field bent once.

#include "common/wire/routing_table.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobAssignment MakeAssignment() {
  JobAssignment job;
  for (int ps = 0; ps < 2; ++ps) job.add_ps();
  for (const int64_t size : {3000, 5, 7}) {
    ParameterInfo* const parameter = job.add_parameters();
    parameter->set_name("w");
    parameter->add_dims(size);
  }
  job.add_tables()->set_slots(4);
  return job;
}

// The same, with a routing that says everything.
JobAssignment MakeRouted() {
  JobAssignment job = MakeAssignment();
  Routing* const routing = job.mutable_routing();
  routing->set_version(3);
  for (const uint32_t ps : {0, 1}) routing->add_shard_ps(ps);
  for (const uint32_t shard : {1, 0, 1, 1, 0}) {
    routing->add_block_shards(shard);
  }
  Routing::Table* const table = routing->add_tables();
  for (const uint32_t shard : {1, 0, 0, 1}) table->add_slot_shards(shard);
  return job;
}

std::string Refusal(const JobAssignment& job) {
  const auto table = RoutingTable::Create(job);
  EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(table.status().message());
}

TEST(RoutingTableTest, WhatIsLeftOutHasTheDefaultPlacement) {
  JobAssignment job = MakeAssignment();
  for (const bool is_set : {false, true}) {
    if (is_set) job.mutable_routing()->set_version(2);
    const auto table = RoutingTable::Create(job);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_EQ(table->version(), is_set ? 2u : 1u);
    EXPECT_EQ(table->shard_count(), 2u);
    const BlockMap map = *BlockMap::Create(
        std::vector<TensorSize>{{"w", 3000}, {"w", 5}, {"w", 7}}, 2);
    for (const uint32_t shard : {0, 1}) {
      EXPECT_EQ(table->blocks().shard_blocks(shard), map.shard_blocks(shard));
    }
    EXPECT_THAT(table->tables()[0].shard_slots(0), ElementsAre(0, 1));
    EXPECT_THAT(table->tables()[0].shard_slots(1), ElementsAre(2, 3));
  }
}

TEST(RoutingTableTest, BlocksAndSlotsAreWhereItSays) {
  const auto table = RoutingTable::Create(MakeRouted());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->version(), 3u);
  EXPECT_THAT(table->blocks().shard_blocks(0), ElementsAre(1, 4));
  EXPECT_THAT(table->blocks().shard_blocks(1), ElementsAre(0, 2, 3));
  EXPECT_EQ(table->blocks().shard_elements(0), 1024 + 7);
  EXPECT_THAT(table->tables()[0].shard_slots(0), ElementsAre(1, 2));
  EXPECT_THAT(table->tables()[0].shard_slots(1), ElementsAre(0, 3));
}

// The workers have the tensors, so shards have none.
TEST(RoutingTableTest, InHybridItHasRowsAlone) {
  JobAssignment job = MakeAssignment();
  job.mutable_spec()->set_strategy(HYBRID);
  const auto table = RoutingTable::Create(job);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->shard_count(), 2u);
  EXPECT_TRUE(table->blocks().blocks().empty());
  EXPECT_EQ(table->tables()[0].slots(), 4u);
}

// As AssignmentOf makes it of a manifest: the parts of two ps, and behind them
// those of three workers, which have the blocks.
TEST(RoutingTableTest, ACheckpointOfHybridHasPartsOfWorkers) {
  JobAssignment job = MakeAssignment();
  job.mutable_spec()->set_strategy(HYBRID);
  for (int i = 0; i < 3; ++i) job.add_workers();
  for (int i = 0; i < 3; ++i) job.add_ps();
  job.mutable_routing()->set_version(1);
  for (const uint32_t shard : {2, 3, 4, 2, 3}) {
    job.mutable_routing()->add_block_shards(shard);
  }
  const auto table = RoutingTable::Create(job);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->shard_count(), 5u);
  EXPECT_EQ(table->ps_shard_count(), 2u);
  EXPECT_EQ(table->blocks().blocks()[2].shard, 4u);
  for (uint32_t slot = 0; slot < 4; ++slot) {
    EXPECT_EQ(table->tables()[0].ShardOfSlot(slot), slot / 2);
  }
  for (int i = 0; i < 2; ++i) job.add_workers();
  EXPECT_THAT(Refusal(job), HasSubstr("of 5 shards the workers have 5"));
}

TEST(RoutingTableTest, WhatItCannotBelieveIsNamed) {
  JobAssignment job = MakeRouted();
  job.mutable_routing()->set_version(0);
  EXPECT_THAT(Refusal(job), HasSubstr("routing.version is 0"));

  job = MakeRouted();
  job.mutable_routing()->set_shard_ps(1, 2);
  EXPECT_THAT(Refusal(job),
              HasSubstr("routing.shard_ps[1] is 2, the job has 2 ps"));

  job = MakeRouted();
  job.mutable_routing()->set_block_shards(2, 2);
  EXPECT_THAT(Refusal(job),
              HasSubstr("routing.block_shards: block 2 is placed on shard 2"));
  job.mutable_routing()->add_block_shards(0);
  EXPECT_THAT(Refusal(job), HasSubstr("6 blocks are placed, the model has 5"));

  job = MakeRouted();
  job.mutable_routing()->mutable_tables(0)->set_slot_shards(3, 9);
  EXPECT_THAT(Refusal(job), HasSubstr("routing.tables[0]: virtual slot 3"));
  job.mutable_routing()->mutable_tables(0)->add_slot_shards(0);
  EXPECT_THAT(Refusal(job), HasSubstr("5 virtual slots are placed"));
  job.mutable_routing()->add_tables();
  EXPECT_THAT(Refusal(job), HasSubstr("routing.tables has 2 tables"));

  job = MakeAssignment();
  job.mutable_tables(0)->set_slots(3);
  EXPECT_THAT(Refusal(job), HasSubstr("tables[0]: a table of 3"));
  job.clear_ps();
  EXPECT_THAT(Refusal(job), HasSubstr("no ps"));
}

}  // namespace
}  // namespace syncline
