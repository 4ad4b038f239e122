// PeerExchange where the strategy or the wire type of a job changes: what is
// announced, and how the state comes from the exchange before.

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/state/shard_state_stream.h"
#include "worker/peers/peer_exchange.h"
#include "worker/peers/peer_messages.h"

namespace syncline::worker {
namespace {

// Blocks of each owner whose state is on its way at a time.
constexpr size_t kBlocksUnderWay = 8;

absl::string_view FloatBytes(absl::Span<const float> floats) {
  return {reinterpret_cast<const char*>(floats.data()),
          floats.size() * sizeof(float)};
}

}  // namespace

std::optional<PeerExchange::AnnouncedSwitch> PeerExchange::SwitchBehindStep()
    const {
  if (link_->rank() != 0) {
    const FactsMessage& facts = *facts_in_[0];
    if (facts.switch_cut == 0 || facts.switch_to == 0 || facts.switch_to > 3 ||
        facts.switch_type > static_cast<uint32_t>(ElementType::kFloat16)) {
      return std::nullopt;
    }
    return AnnouncedSwitch{
        facts.switch_cut,
        static_cast<TrainingRegime::Strategy>(facts.switch_to - 1),
        static_cast<ElementType>(facts.switch_type)};
  }
  for (const auto& [id, cut] : cuts_) {
    if (cut.use == CutUse::kRegime && cut.clock == clock_ + 1) {
      return cut.change;
    }
  }
  return std::nullopt;
}

ShardStateHeader PeerExchange::StateHeader() const {
  ShardStateHeader header = HeaderAt(clock_, /*finished=*/false);
  header.set_format(kShardStateFormat);
  uint64_t found = reduction_.found();
  if (link_->rank() == 0) {
    found += found_before_;
    if (reduction_.drops_blocks()) {
      found += reduction_.left_out() * reduction_.map().blocks().size();
    }
  }
  header.set_non_finite(found);
  return header;
}

void PeerExchange::RestorePiece(uint32_t block, uint32_t array,
                                absl::string_view floats, int64_t updates) {
  reduction_.Restore(block, array, /*first=*/0, floats);
  // Any array's are the block's. Threads have different arrays: one alone is to
  // write them.
  if (array + 1 == static_cast<uint32_t>(reduction_.updater().arrays())) {
    reduction_.RestoreUpdates(block, updates);
  }
}

void PeerExchange::RestoreValues() {
  const BlockMap& map = reduction_.map();
  for (uint32_t block = 0; block < map.blocks().size(); ++block) {
    const Block& of = map.blocks()[block];
    reduction_.Restore(
        block, /*array=*/0, /*first=*/0,
        FloatBytes(tensors_.values[of.tensor].subspan(
            static_cast<size_t>(of.offset), static_cast<size_t>(of.count))));
  }
}

absl::Status PeerExchange::RestoreRest(int64_t clock) {
  if (!narrows()) RestoreValues();
  if (!reduction_.replicates()) return absl::OkStatus();
  return GatherState(clock, narrows() ? 0 : 1);
}

void PeerExchange::ShowValues(ElementType before) {
  if (narrows() || before == ElementType::kFloat32) return ShowRounded();
  // The type changes by ALL_REDUCE alone: each rank has all of them.
  for (uint32_t block = 0; block < reduction_.map().blocks().size(); ++block) {
    reduction_.ShowBlock(block, StepReduction::Shown::kWhole);
  }
}

void PeerExchange::BeginWith(const ShardStateHeader& header, int64_t clock) {
  clock_ = clock;
  total_clocks_ = header.total_clocks();
  reduction_.SetTotalClocks(total_clocks_);
  reduction_.RestoreSkipped(header.skipped_clocks(), header.skipped_through());
  found_before_ = header.non_finite();
  SumUpLeftOut();
}

absl::Status PeerExchange::RestoreFrom(const PeerExchange& before,
                                       int64_t clock) {
  const BlockMap& map = reduction_.map();
  const auto arrays = static_cast<uint32_t>(reduction_.updater().arrays());
  const bool has_all = before.reduction_.replicates();
  const uint32_t first_array = has_all || before.divides_values() ? 0 : 1;
  // Whoever updates a block, all ranks have its values: what is whole in the
  // tensors need not come from its owner.
  if (first_array > 0) RestoreValues();
  for (uint32_t block = 0; block < map.blocks().size(); ++block) {
    const bool is_own = map.blocks()[block].shard == link_->rank();
    if (!is_own && !(has_all && reduction_.replicates())) continue;
    const uint32_t local = before.reduction_.local(block);
    for (uint32_t array = first_array; array < arrays; ++array) {
      reduction_.Restore(block, array, /*first=*/0,
                         FloatBytes(before.reduction_.updater().array(
                             local, static_cast<int>(array))));
    }
    reduction_.RestoreUpdates(block,
                              before.reduction_.updater().updates(local));
  }
  if (has_all || !reduction_.replicates()) return absl::OkStatus();
  return GatherState(clock, first_array);
}

absl::Status PeerExchange::GatherState(int64_t clock, uint32_t first_array) {
  const BlockMap& map = reduction_.map();
  const uint32_t own = link_->rank();
  const auto missing = [&] {
    return absl::StrCat("clock ", clock, ", the state of other ranks' blocks");
  };
  // State of callbacks: they may run after an error has ended this call.
  struct Gathering {
    std::atomic<int> left{0};
    // By rank, of its blocks in the order of their ids.
    std::vector<std::vector<int64_t>> updates;
  };
  const auto gathering = std::make_shared<Gathering>();
  std::vector<std::vector<int64_t>>& updates = gathering->updates;
  updates.resize(link_->ranks());
  for (const uint32_t block : map.shard_blocks(own)) {
    updates[own].push_back(
        reduction_.updater().updates(reduction_.local(block)));
  }
  std::atomic<int>& left = gathering->left;
  const auto done = [gathering,
                     link = link_.get()](const absl::Status& status) {
    if (!status.ok()) return;  // the wait ends with the group
    link->Moved();
    --gathering->left;
  };
  const auto await = [&] {
    return link_->Await([&] { return left.load() == 0; }, missing);
  };
  for (const uint32_t rank : OtherRanks()) {
    updates[rank].resize(map.shard_blocks(rank).size());
    left += 2;
    link_->transport().Send(rank, TagAt(clock, kSwitchUpdates, 0),
                            {BytesOfAll(absl::MakeConstSpan(updates[own]))},
                            absl::InfiniteFuture(), done);
    link_->transport().Receive(
        rank, TagAt(clock, kSwitchUpdates, 0),
        WritableBytesOfAll(absl::MakeSpan(updates[rank])),
        absl::InfiniteFuture(), done);
  }
  absl::Status status = await();
  if (!status.ok()) return status;
  for (const uint32_t rank : OtherRanks()) {
    const absl::Span<const uint32_t> blocks = map.shard_blocks(rank);
    for (size_t i = 0; i < blocks.size(); ++i) {
      reduction_.RestoreUpdates(blocks[i], updates[rank][i]);
    }
  }
  const auto arrays = static_cast<uint32_t>(reduction_.updater().arrays());
  size_t most = 0;  // blocks of an owner
  for (uint32_t owner = 0; owner < link_->ranks(); ++owner) {
    most = std::max(most, map.shard_blocks(owner).size());
  }
  // All owners send at the same time.
  for (size_t first = 0; first < most && first_array < arrays;
       first += kBlocksUnderWay) {
    for (uint32_t owner = 0; owner < link_->ranks(); ++owner) {
      const absl::Span<const uint32_t> blocks = map.shard_blocks(owner);
      if (first >= blocks.size()) continue;
      for (const uint32_t block : blocks.subspan(first, kBlocksUnderWay)) {
        for (uint32_t array = first_array; array < arrays; ++array) {
          const PeerTag tag =
              TagAt(clock, kSwitchState, block * arrays + array);
          const absl::Span<float> floats =
              reduction_.MutableArray(block, static_cast<int>(array));
          if (owner != own) {
            ++left;
            link_->transport().Receive(owner, tag, WritableBytesOfAll(floats),
                                       absl::InfiniteFuture(), done);
            continue;
          }
          for (const uint32_t rank : OtherRanks()) {
            ++left;
            link_->transport().Send(
                rank, tag, {BytesOfAll(absl::Span<const float>(floats))},
                absl::InfiniteFuture(), done);
          }
        }
      }
    }
    status = await();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace syncline::worker
