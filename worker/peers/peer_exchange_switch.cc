// PeerExchange where the strategy of a job changes: what is announced, and how
// the state comes from the exchange before.

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/state/shard_state_stream.h"
#include "worker/peers/peer_exchange.h"
#include "worker/peers/peer_messages.h"

namespace syncline::worker {
namespace {

// Blocks whose state is on its way at a time.
constexpr size_t kBlocksUnderWay = 16;

absl::string_view FloatBytes(absl::Span<const float> floats) {
  return {reinterpret_cast<const char*>(floats.data()),
          floats.size() * sizeof(float)};
}

}  // namespace

std::optional<PeerExchange::AnnouncedSwitch> PeerExchange::SwitchBehindStep()
    const {
  if (link_->rank() != 0) {
    const FactsMessage& facts = *facts_in_[0];
    if (facts.switch_cut == 0 || facts.switch_to == 0 || facts.switch_to > 3) {
      return std::nullopt;
    }
    return AnnouncedSwitch{
        facts.switch_cut,
        static_cast<TrainingRegime::Strategy>(facts.switch_to - 1)};
  }
  for (const auto& [id, cut] : cuts_) {
    if (cut.use == CutUse::kRegime && cut.clock == clock_ + 1) {
      return AnnouncedSwitch{id, cut.strategy};
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
                                absl::string_view floats, int64_t updates,
                                bool into_tensors) {
  if (array == 0 && into_tensors && !narrows()) {
    const Block& of = reduction_.map().blocks()[block];
    std::memcpy(tensors_.values[of.tensor].data() + of.offset, floats.data(),
                floats.size());
  }
  reduction_.Restore(block, array, /*first=*/0, floats);
  // Rounded at once: where the change comes to nothing, the tensors have what
  // they had.
  if (array == 0 && into_tensors && narrows()) {
    reduction_.ShowBlock(block, StepReduction::Shown::kAsSent);
  }
  reduction_.RestoreUpdates(block, updates);
}

void PeerExchange::BeginWith(const ShardStateHeader& header, int64_t clock) {
  clock_ = clock;
  total_clocks_ = header.total_clocks();
  reduction_.SetTotalClocks(total_clocks_);
  reduction_.RestoreSkipped(header.skipped_clocks(), header.skipped_through());
  found_before_ = header.non_finite();
  reduction_.Show(StepReduction::Shown::kAsSent);
  SumUpLeftOut();
}

absl::Status PeerExchange::RestoreFrom(const PeerExchange& before,
                                       int64_t clock) {
  const BlockMap& map = reduction_.map();
  const auto arrays = static_cast<uint32_t>(reduction_.updater().arrays());
  const bool has_all = before.reduction_.replicates();
  for (uint32_t block = 0; block < map.blocks().size(); ++block) {
    const Block& of = map.blocks()[block];
    // Whoever updates a block, all ranks have its values.
    RestorePiece(
        block, 0,
        FloatBytes(tensors_.values[of.tensor].subspan(
            static_cast<size_t>(of.offset), static_cast<size_t>(of.count))),
        0, /*into_tensors=*/false);
    if (!has_all && of.shard != link_->rank()) continue;
    const uint32_t local = before.reduction_.local(block);
    for (uint32_t array = 0; array < arrays; ++array) {
      RestorePiece(block, array,
                   FloatBytes(before.reduction_.updater().array(
                       local, static_cast<int>(array))),
                   before.reduction_.updater().updates(local),
                   /*into_tensors=*/false);
    }
  }
  if (has_all || !reduction_.replicates()) return absl::OkStatus();
  return GatherSlots(clock);
}

absl::Status PeerExchange::GatherSlots(int64_t clock) {
  const BlockMap& map = reduction_.map();
  const uint32_t own = link_->rank();
  const auto missing = [&] {
    return absl::StrCat("clock ", clock,
                        ", the optimizer's state of other ranks' blocks");
  };
  // Updates of a rank's blocks, in the order of their ids.
  std::vector<std::vector<int64_t>> updates(link_->ranks());
  for (const uint32_t block : map.shard_blocks(own)) {
    updates[own].push_back(
        reduction_.updater().updates(reduction_.local(block)));
  }
  std::atomic<int> left{0};
  const auto done = [&](const absl::Status& status) {
    if (status.ok()) link_->Moved();
    --left;
  };
  // Callbacks use what is here; a group that has ended counts down, too.
  const auto await = [&]() -> absl::Status {
    absl::Status status =
        link_->Await([&] { return left.load() == 0; }, missing);
    if (!status.ok()) link_->Close();
    return status;
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
  for (size_t first = 0; first < map.blocks().size() && arrays > 1;
       first += kBlocksUnderWay) {
    const size_t end = std::min(map.blocks().size(), first + kBlocksUnderWay);
    for (size_t block = first; block < end; ++block) {
      const uint32_t owner = map.blocks()[block].shard;
      for (uint32_t array = 1; array < arrays; ++array) {
        const PeerTag tag = TagAt(
            clock, kSwitchState, static_cast<uint32_t>(block) * arrays + array);
        const absl::Span<float> floats = reduction_.MutableArray(
            static_cast<uint32_t>(block), static_cast<int>(array));
        if (owner != own) {
          ++left;
          link_->transport().Receive(owner, tag, WritableBytesOfAll(floats),
                                     absl::InfiniteFuture(), done);
          continue;
        }
        for (const uint32_t rank : OtherRanks()) {
          ++left;
          link_->transport().Send(rank, tag,
                                  {BytesOfAll(absl::Span<const float>(floats))},
                                  absl::InfiniteFuture(), done);
        }
      }
    }
    status = await();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace syncline::worker
