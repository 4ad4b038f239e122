#include "worker/peers/unit_gathers.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/peers/peer_messages.h"
#include "worker/peers/wire_floats.h"

namespace syncline::worker {

UnitGathers::UnitGathers(Options options, const StepReduction* reduction,
                         PeerLink* link)
    : options_(std::move(options)), reduction_(*reduction), link_(*link) {
  SYNCLINE_CHECK(options_.units.size() <= kUnitsMax);
  if (narrows()) {
    rounded_offsets_.resize(map().blocks().size());
    size_t own = 0;
    for (const uint32_t id : map().shard_blocks(link_.rank())) {
      rounded_offsets_[id] = own;
      own += static_cast<size_t>(map().blocks()[id].count);
    }
    rounded_ = AlignedFloats((own + 1) / 2);
  }
  for (size_t u = 0; u < options_.units.size(); ++u) {
    units_.push_back(std::make_unique<Unit>());
    CutParts(u);
  }
  for (const Bucket& bucket : reduction_.buckets()) {
    std::vector<size_t>& of = units_of_bucket_.emplace_back();
    for (size_t u = 0; u < options_.units.size(); ++u) {
      const bool shares = absl::c_any_of(bucket.blocks, [&](uint32_t id) {
        return absl::c_linear_search(
            options_.units[u], static_cast<int>(map().blocks()[id].tensor));
      });
      if (shares) of.push_back(u);
    }
  }
}

void UnitGathers::CutParts(size_t unit) {
  std::vector<std::unique_ptr<Part>>& parts = units_[unit]->parts;
  for (uint32_t rank = 0; rank < link_.ranks(); ++rank) {
    parts.push_back(std::make_unique<Part>());
    parts.back()->layout.owner = rank;
  }
  for (uint32_t id = 0; id < map().blocks().size(); ++id) {
    const Block& block = map().blocks()[id];
    if (!absl::c_linear_search(options_.units[unit],
                               static_cast<int>(block.tensor))) {
      continue;
    }
    Bucket& layout = parts[block.shard]->layout;
    layout.blocks.push_back(id);
    layout.offsets.push_back(layout.elements);
    layout.elements += static_cast<size_t>(block.count);
  }
}

float* UnitGathers::PlaceOf(size_t unit, uint32_t tensor) const {
  const std::vector<int>& tensors = options_.units[unit];
  const auto found = absl::c_find(tensors, static_cast<int>(tensor));
  return units_[unit]->to[static_cast<size_t>(found - tensors.begin())];
}

void UnitGathers::Open(int64_t clock, const Form& form) {
  SYNCLINE_CHECK(all_here());
  clock_ = clock;
  form_ = form;
  if (narrows()) RoundOwn();
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = *units_[u];
    unit.is_asked = false;
    if (unit.parts[link_.rank()]->layout.elements == 0) continue;
    for (uint32_t i = 1; i < link_.ranks(); ++i) {
      const uint32_t to = (link_.rank() + i) % link_.ranks();
      const ElementType type = TypeTo(to);
      std::function<void()> sent = [] {};
      if (type == ElementType::kFloat32) {
        ++unit.leaving;
        sent = [&unit] { --unit.leaving; };
      }
      options_.send(to, TagOf(u), OwnPart(u, type), std::move(sent));
    }
  }
}

void UnitGathers::RoundOwn() {
  for (const uint32_t id : map().shard_blocks(link_.rank())) {
    const absl::Span<const float> values =
        reduction_.updater().values(reduction_.local(id));
    Narrow(options_.wire_type, values.data(), RoundedOf(id), values.size());
  }
}

std::vector<ConstPeerMemory> UnitGathers::OwnPart(size_t unit,
                                                  ElementType type) {
  std::vector<ConstPeerMemory> part;
  for (const uint32_t id : units_[unit]->parts[link_.rank()]->layout.blocks) {
    const absl::Span<const float> values =
        reduction_.updater().values(reduction_.local(id));
    AddMerged(
        type == ElementType::kFloat32
            ? BytesOfAll(values)
            : BytesOfAll(absl::MakeConstSpan(RoundedOf(id), values.size())),
        &part);
  }
  return part;
}

void UnitGathers::Begin(int unit, absl::Span<float* const> to) {
  const auto u = static_cast<size_t>(unit);
  units_[u]->to.assign(to.begin(), to.end());
  CopyOwn(u);
  Receive(u, /*keeps=*/true);
}

void UnitGathers::CopyOwn(size_t unit) {
  for (const uint32_t id : units_[unit]->parts[link_.rank()]->layout.blocks) {
    const Block& block = map().blocks()[id];
    const absl::Span<const float> values =
        reduction_.updater().values(reduction_.local(id));
    CopyAsSent(form_.trains_whole ? ElementType::kFloat32 : options_.wire_type,
               values.data(), PlaceOf(unit, block.tensor) + block.offset,
               values.size());
  }
}

void UnitGathers::Widen(size_t unit) {
  const ElementType came = TypeTo(link_.rank());
  const bool rounds = came == ElementType::kFloat32 && !form_.trains_whole;
  if (!narrows() || (came == ElementType::kFloat32 && !rounds)) return;
  for (uint32_t rank = 0; rank < link_.ranks(); ++rank) {
    if (rank == link_.rank()) continue;
    for (const uint32_t id : units_[unit]->parts[rank]->layout.blocks) {
      const Block& block = map().blocks()[id];
      float* const values = PlaceOf(unit, block.tensor) + block.offset;
      const auto count = static_cast<size_t>(block.count);
      if (rounds) {
        CopyAsSent(options_.wire_type, values, values, count);
      } else {
        WidenInPlace(options_.wire_type, values, count);
      }
    }
  }
}

void UnitGathers::Receive(size_t unit, bool keeps) {
  Unit& of = *units_[unit];
  of.is_asked = true;
  const ElementType type = TypeTo(link_.rank());
  for (uint32_t rank = 0; rank < link_.ranks(); ++rank) {
    Part& part = *of.parts[rank];
    if (rank == link_.rank() || part.layout.elements == 0) continue;
    part.is_here = false;
    ++of.coming;
    ++coming_;
    const size_t bytes = part.layout.elements * ElementBytes(type);
    link_.transport().ReceivePieces(
        rank, TagOf(unit), bytes, absl::InfiniteFuture(),
        [this, unit, keeps, type, &part](size_t offset,
                                         absl::Span<const uint8_t> received) {
          if (!keeps) return;
          StoreValuesAt(
              map(), part.layout, type,
              [&](uint32_t tensor) { return PlaceOf(unit, tensor); }, offset,
              received);
        },
        [this, &of, &part, type](const absl::Status& status) {
          if (!status.ok()) return;  // the group has ended
          part.is_here = true;
          --of.coming;
          --coming_;
          options_.arrived(type, part.layout.elements);
        });
  }
}

absl::Status UnitGathers::Await(int unit) {
  const auto u = static_cast<size_t>(unit);
  SYNCLINE_RETURN_IF_ERROR(
      options_.await([&] { return units_[u]->coming.load() == 0; },
                     [&] { return MissingOf(u); }));
  Widen(u);
  return absl::OkStatus();
}

void UnitGathers::Close() {
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!units_[u]->is_asked) Receive(u, /*keeps=*/false);
  }
}

std::string UnitGathers::MissingOf(size_t unit) const {
  std::vector<std::string> ranks;
  for (uint32_t rank = 0; rank < link_.ranks(); ++rank) {
    if (units_[unit]->parts[rank]->is_here) continue;
    ranks.push_back(link_.group().NameOf(rank));
  }
  std::string tensors;
  for (const int tensor : options_.units[unit]) {
    absl::StrAppend(
        &tensors, tensors.empty() ? "'" : ", '",
        options_.names.empty() ? absl::StrCat(tensor) : options_.names[tensor],
        "'");
  }
  return absl::StrCat("the values of unit ", unit, " (", tensors, "), of ",
                      absl::StrJoin(ranks, ", "));
}

std::string UnitGathers::MissingText() const {
  std::vector<std::string> missing;
  for (size_t u = 0; u < units_.size(); ++u) {
    if (units_[u]->coming.load() > 0) missing.push_back(MissingOf(u));
  }
  return absl::StrJoin(missing, "; ");
}

bool UnitGathers::HasLeft(uint32_t bucket) const {
  return absl::c_all_of(units_of_bucket_[bucket], [this](size_t unit) {
    return units_[unit]->leaving.load() == 0;
  });
}

}  // namespace syncline::worker
