#include "worker/peers/peer_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/system/log.h"
#include "common/system/memory_claim.h"
#include "worker/peers/peer_messages.h"
#include "worker/peers/wire_floats.h"

namespace syncline::worker {
namespace {

// A model that diverges is not finite in every block of every clock.
constexpr absl::Duration kWarningPeriod = absl::Seconds(10);
constexpr uint64_t kSamplesMax = uint64_t{1} << 40;
// Of gradients that were taken and are on their way: two of the largest
// buckets.
constexpr int64_t kBufferedBytesMax = int64_t{2} << 20;

StepReduction::Options ReductionOptions(const PeerExchange::Options& options,
                                        const PeerLink& link) {
  StepReduction::Options reduction;
  reduction.label = link.label();
  for (uint32_t rank = 0; rank < link.ranks(); ++rank) {
    reduction.ranks.push_back(link.group().NameOf(rank));
  }
  reduction.rank = link.rank();
  reduction.replicates = options.replicates;
  reduction.keeps_values = options.frees_values;
  reduction.applies_together = options.applies_together;
  reduction.wire_type = options.wire_type;
  reduction.update = options.update;
  reduction.needs_total_clocks = options.needs_total_clocks;
  reduction.momenta = options.momenta;
  return reduction;
}

// Of the wire type, for what ranks must agree on.
absl::string_view HashText(ElementType type) {
  switch (type) {
    case ElementType::kBfloat16:
      return " bfloat16";
    case ElementType::kFloat16:
      return " float16";
    case ElementType::kFloat32:
      break;
  }
  return "";
}

// Of compression; what it sends says by itself how it is encoded.
std::string HashText(const GradientCompression& compression) {
  if (!compression.any()) return "";
  return absl::StrCat(" compression ", static_cast<int>(compression.kind),
                      compression.values ? " of sums, too" : "");
}

// Of the units that values are gathered in; all ranks send by them.
std::string HashText(const DenseTensors& tensors) {
  std::string text;
  for (const std::vector<int>& unit : tensors.gather_units) {
    absl::StrAppend(&text, " unit ", absl::StrJoin(unit, ","));
  }
  return text;
}

uint64_t HashOf(const PeerExchange::Options& options,
                const DenseTensors& tensors, const BlockMap& map,
                absl::Span<const Bucket> buckets) {
  return LayoutHash(
      map, buckets,
      absl::StrCat(
          options.replicates, " ",
          options.start == nullptr ? 0 : options.start->manifest_crc32c(),
          HashText(options.wire_type),
          HashText(options.compression.compressor.compression),
          options.frees_values ? HashText(tensors) : ""));
}

// The memory of `elements` of `type`, in floats; it ends with a cache line.
size_t AlignedFloatsOf(ElementType type, size_t elements) {
  return AlignedElements((elements * ElementBytes(type) + sizeof(float) - 1) /
                         sizeof(float));
}

std::vector<TensorSize> TensorSizesOf(const DenseTensors& tensors) {
  std::vector<TensorSize> sizes;
  for (const absl::Span<float> values : tensors.values) {
    sizes.push_back({"", static_cast<int64_t>(values.size())});
  }
  return sizes;
}

// Those that the rank updates.
std::vector<DeviceUpdater::Block> DeviceBlocks(
    const PeerExchange::Options& options, const BlockMap& map, uint32_t rank) {
  std::vector<DeviceUpdater::Block> blocks;
  for (const Block& block : map.blocks()) {
    if (!options.replicates && block.shard != rank) continue;
    blocks.push_back({.tensor = block.tensor,
                      .offset = static_cast<size_t>(block.offset),
                      .count = static_cast<size_t>(block.count),
                      .momentum = options.momenta.empty()
                                      ? std::nullopt
                                      : options.momenta[block.tensor]});
  }
  return blocks;
}

size_t IndexOf(ReductionStage stage) {
  return stage == ReductionStage::kTrust ? 1 : 0;
}
PeerMessage NormsKind(ReductionStage stage) {
  return stage == ReductionStage::kTrust ? kTrustNorms : kGradientNorms;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerExchange>> PeerExchange::Create(
    Options options, BlockMap map, DenseTensors tensors,
    std::shared_ptr<PeerLink> link) {
  if (map.shard_count() != link->ranks()) {
    return absl::InvalidArgumentError(absl::StrCat(
        link->label(), ": blocks are placed on ", map.shard_count(),
        " ranks, the group has ", link->ranks()));
  }
  if (options.frees_values) {
    SYNCLINE_CHECK(options.frees_gradients && !options.replicates);
    if (tensors.gather_units.size() > UnitGathers::kUnitsMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          link->label(), ": a step gathers values ",
          tensors.gather_units.size(), " times, at most ",
          UnitGathers::kUnitsMax,
          " are built; use fewer training.micro_batches, or sharding { stage: "
          "2 }"));
    }
    // The chief's are the job's initial values.
    if (link->rank() != 0 && tensors.release_values != nullptr) {
      tensors.release_values();
    }
  }
  const uint64_t residuals = GradientCompressor::StateBytes(
      options.compression.compressor, TensorSizesOf(tensors));
  SYNCLINE_RETURN_IF_ERROR(CheckMemoryFor(
      residuals > 0
          ? "parameters, optimizer state, gradients of other ranks "
            "and residuals of compression"
          : "parameters, optimizer state and gradients of other ranks",
      residuals +
          static_cast<uint64_t>(MemoryOf(options, map, link->rank()).bytes())));
  std::vector<Bucket> buckets =
      MakeBuckets(map, tensors.first_use, options.buckets);
  auto exchange = std::unique_ptr<PeerExchange>(
      new PeerExchange(std::move(options), std::move(map), std::move(buckets),
                       std::move(tensors), std::move(link)));
  SYNCLINE_RETURN_IF_ERROR(
      exchange->reduction_.MakeResident(exchange->options_.go_on));
  SYNCLINE_RETURN_IF_ERROR(exchange->UpdateOnDevice());
  exchange->OpenCheckpoints();
  if (exchange->checkpoints_ != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(
        exchange->checkpoints_->MakeResident(exchange->options_.go_on));
  }
  return exchange;
}

PeerExchange::Memory PeerExchange::MemoryOf(const Options& options,
                                            const BlockMap& map,
                                            uint32_t rank) {
  const DenseUpdater::Options& update = options.update;
  const bool compresses = options.compression.compressor.compression.any();
  std::vector<size_t> here;
  std::vector<size_t> owned;
  for (const Block& block : map.blocks()) {
    if (block.shard == rank) owned.push_back(static_cast<size_t>(block.count));
    if (block.shard != rank && !options.replicates) continue;
    here.push_back(static_cast<size_t>(block.count));
  }
  const bool reduces = options.replicates || update.rule.clip_norm > 0 ||
                       update.on_non_finite == OnNonFinite::kSkipStep;
  const int64_t own = map.shard_elements(rank) * int64_t{sizeof(float)};
  const int64_t all = map.element_count() * int64_t{sizeof(float)};
  Memory memory;
  memory.value_bytes = static_cast<int64_t>(DenseUpdater::MemoryBytes(
      OptimizerParams(), here, /*with_reduced=*/false));
  memory.slot_bytes = static_cast<int64_t>(DenseUpdater::MemoryBytes(
                          update.optimizer, here, /*with_reduced=*/false)) -
                      memory.value_bytes;
  // As they travel; narrowed ones are copies of this rank's own, too.
  const int64_t others = own * (int64_t{map.shard_count()} - 1);
  const bool narrows = options.wire_type != ElementType::kFloat32;
  int64_t travelling = others;
  if (compresses) {
    travelling = static_cast<int64_t>(CompressedGradients::ReceivedBytes(
        options.compression.compressor, map, rank));
  } else if (narrows) {
    travelling = (others + (options.frees_gradients ? 0 : all - own)) / 2;
  }
  if (narrows && !options.replicates) {
    travelling += (options.frees_values ? own : all) / 2;  // values
  }
  const bool compresses_sums =
      compresses && options.compression.compressor.compression.values;
  memory.gradient_bytes = travelling + (reduces ? own : 0);
  if (compresses_sums) {
    memory.gradient_bytes += static_cast<int64_t>(
        CompressedSums::MemoryBytes(options.compression.compressor, map, rank));
  } else if (options.replicates) {
    memory.gradient_bytes += all - own;
  }
  // The own gradients, and those on their way.
  if (options.frees_gradients && !compresses) {
    memory.gradient_bytes += own + kBufferedBytesMax;
  }
  if (options.checkpoints.has_value()) {
    memory.copy_bytes = static_cast<int64_t>(PeerCheckpoints::CopyBytes(
        update.optimizer, owned, options.checkpoints->copy_bytes));
  }
  return memory;
}

uint64_t PeerExchange::DeviceBytes(const Options& options, const BlockMap& map,
                                   absl::Span<const int64_t> counts,
                                   uint32_t rank) {
  const std::vector<DeviceUpdater::Block> blocks =
      DeviceBlocks(options, map, rank);
  const OptimizerParams& optimizer = options.update.optimizer;
  return options.replicates
             ? DeviceUpdater::DeviceBytes(optimizer, counts, blocks)
             : DeviceUpdater::DeviceBytes(optimizer, blocks);
}

absl::Status PeerExchange::UpdateOnDevice() {
  std::vector<DeviceUpdater::Block> blocks =
      DeviceBlocks(options_, reduction_.map(), link_->rank());
  const OptimizerParams& optimizer = options_.update.optimizer;
  std::unique_ptr<DeviceUpdater> device;
  if (options_.on_device.has_value()) {
    SYNCLINE_CHECK(options_.replicates && !narrows() && !compresses());
    std::vector<int64_t> counts;
    for (const absl::Span<float> values : tensors_.values) {
      counts.push_back(static_cast<int64_t>(values.size()));
    }
    device = std::make_unique<DeviceUpdater>(optimizer, *options_.on_device,
                                             counts, std::move(blocks));
  } else if (options_.owner_device != nullptr && !blocks.empty()) {
    SYNCLINE_CHECK(!options_.replicates);
    device = std::make_unique<DeviceUpdater>(optimizer, options_.owner_device,
                                             std::move(blocks));
  } else {
    return absl::OkStatus();
  }
  SYNCLINE_RETURN_IF_ERROR(Annotate(device->Allocate(), label_));
  reduction_.UpdateOn(std::move(device));
  return absl::OkStatus();
}

PeerExchange::PeerExchange(Options options, BlockMap map,
                           std::vector<Bucket> buckets, DenseTensors tensors,
                           std::shared_ptr<PeerLink> link)
    : options_(std::move(options)),
      tensors_(std::move(tensors)),
      link_(std::move(link)),
      label_(link_->label()),
      reduction_(ReductionOptions(options_, *link_), std::move(map),
                 std::move(buckets), &tensors_),
      layout_hash_(
          HashOf(options_, tensors_, reduction_.map(), reduction_.buckets())),
      evaluator_hash_(LayoutHash(reduction_.map(), reduction_.buckets(), "")) {
  if (options_.compression.compressor.compression.any()) {
    SYNCLINE_CHECK(options_.compression.clip_norm == 0 ||
                   !options_.frees_gradients);
    CompressedGradients::Options options = options_.compression;
    options.compressor.workers = link_->ranks();
    if (options.compressor.compression.kind ==
        GradientCompression::Kind::kOneBitAdam) {
      SYNCLINE_CHECK(options_.replicates);
      options.compressor.adam = options_.update.optimizer;
      options.compressor.moments = [this](uint32_t block) {
        const DenseUpdater& updater = reduction_.updater();
        const uint32_t local = reduction_.local(block);
        return AdamMoments{updater.array(local, 1), updater.array(local, 2)};
      };
    }
    compressed_ = std::make_unique<CompressedGradients>(
        std::move(options), &reduction_.map(), reduction_.buckets(), &tensors_);
    if (options_.compression.compressor.compression.values) CompressSums();
  }
  MakeMessages();
  if (options_.frees_values) MakeGathers();
}

void PeerExchange::CompressSums() {
  SYNCLINE_CHECK(options_.replicates);
  compressed_sums_ = std::make_unique<CompressedSums>(
      WithRunningMeans(options_.compression.compressor, tensors_),
      &reduction_.map(), reduction_.buckets(), link_->rank());
  reduction_.ReplaceSums(
      [this](uint32_t block, uint64_t samples, absl::Span<float> sum) {
        compressed_sums_->Compress(block, sum, clock_, samples);
      });
}

void PeerExchange::MakeMessages() {
  const BlockMap& map = reduction_.map();
  const uint32_t ranks = link_->ranks();
  tensor_buckets_.resize(tensors_.values.size());
  own_offsets_.resize(buckets().size());
  narrowed_offsets_.resize(buckets().size());
  sum_offsets_.resize(buckets().size());
  sums_out_.resize(buckets().size());
  taken_.resize(buckets().size());
  size_t own = 0;
  size_t narrowed = 0;
  size_t sums = 0;
  for (uint32_t b = 0; b < buckets().size(); ++b) {
    const Bucket& bucket = buckets()[b];
    for (const uint32_t id : bucket.blocks) {
      std::vector<uint32_t>& of = tensor_buckets_[map.blocks()[id].tensor];
      if (of.empty() || of.back() != b) of.push_back(b);
    }
    const size_t gradient =
        AlignedFloatsOf(options_.wire_type, bucket.elements);
    if (!Owns(b) && narrows()) {
      narrowed_offsets_[b] = narrowed;
      narrowed += gradient;
    }
    if (Owns(b)) {
      own_offsets_[b] = own;
      own += gradient;
      if (reduction_.replicates()) {
        sums_out_[b] = AlignedFloats(HeadElements(b));
      }
    } else if (reduction_.replicates()) {
      sum_offsets_[b] = sums;
      sums += HeadElements(b);
      if (compressed_sums_ == nullptr) {
        sums += AlignedElements(bucket.elements);
      }
    }
  }
  const bool takes = options_.frees_gradients && !compresses();
  if (!options_.frees_gradients && !compresses()) {
    narrowed_ = AlignedFloats(narrowed);
  }
  if (rounds_tensors()) {
    values_in_ = AlignedFloats(narrowed);
    values_out_ = AlignedFloats(own);
  }
  sums_ = AlignedFloats(sums);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const bool is_own = rank == link_->rank();
    gradients_.emplace_back(compresses() || (is_own && !takes) ? 0 : own);
    facts_in_.push_back(std::make_unique<FactsMessage>());
    facts_out_.push_back(std::make_unique<FactsMessage>());
    for (const auto stage :
         {ReductionStage::kGradient, ReductionStage::kTrust}) {
      norms_in_[IndexOf(stage)].emplace_back(reduction_.NormCount(rank, stage));
    }
  }
}

PeerExchange::~PeerExchange() {
  // Its writer sends messages, and the callbacks of messages use this.
  if (checkpoints_ != nullptr) {
    checkpoints_->Close(absl::CancelledError(
        absl::StrCat(label_, ": its part of the job is over")));
  }
  link_->Close();
}

std::vector<uint32_t> PeerExchange::OtherRanks() const {
  std::vector<uint32_t> others;
  for (uint32_t i = 1; i < link_->ranks(); ++i) {
    others.push_back((link_->rank() + i) % link_->ranks());
  }
  return others;
}

void PeerExchange::Cancel(const absl::Status& reason) { link_->Cancel(reason); }

// --- Messages ---

void PeerExchange::Send(uint32_t to, const PeerTag& tag,
                        absl::Span<const ConstPeerMemory> pieces) {
  const bool is_gradient = tag.kind == kGradient;
  ++sending_;
  if (is_gradient) ++sending_gradients_;
  for (const ConstPeerMemory& piece : pieces) {
    AddCount(options_.telemetry.pushed_bytes, piece.size);
  }
  link_->transport().Send(to, tag, pieces, absl::InfiniteFuture(),
                          [this, is_gradient](const absl::Status& status) {
                            if (status.ok()) link_->Moved();
                            if (is_gradient && --sending_gradients_ == 0) {
                              gradients_left_nanos_ =
                                  absl::ToUnixNanos(MonotonicNow());
                            }
                            --sending_;
                            ++news_count_;
                          });
}

void PeerExchange::SendToAll(const PeerTag& tag,
                             absl::Span<const ConstPeerMemory> pieces) {
  for (const uint32_t rank : OtherRanks()) Send(rank, tag, pieces);
}

void PeerExchange::Receive(uint32_t from, const PeerTag& tag, PeerMemory memory,
                           News news) {
  link_->transport().Receive(from, tag, memory, absl::InfiniteFuture(),
                             [this, news](const absl::Status& status) {
                               if (status.ok()) Tell(news);
                             });
}

void PeerExchange::Tell(News news) {
  link_->Moved();
  {
    MutexLock lock(&mu_);
    news_.push_back(news);
  }
  ++news_count_;
}

absl::Status PeerExchange::AwaitAll(absl::FunctionRef<bool()> done) {
  return AwaitPumping([&] { return done() && sending_.load() == 0; },
                      [&]() -> std::string {
                        if (done())
                          return "ranks that take what this one sends";
                        if (gathers_ != nullptr && !gathers_->all_here()) {
                          return gathers_->MissingText();
                        }
                        return reduction_.MissingText();
                      });
}

absl::Status PeerExchange::AwaitPumping(
    absl::FunctionRef<bool()> done, absl::FunctionRef<std::string()> missing) {
  for (;;) {
    const uint64_t seen = news_count_.load();
    Pump();
    SYNCLINE_RETURN_IF_ERROR(link_->status());
    if (done()) return absl::OkStatus();
    if (news_count_.load() != seen) continue;
    SYNCLINE_RETURN_IF_ERROR(link_->Await(
        [&] { return news_count_.load() != seen; },
        [&] {
          std::string text = absl::StrCat("clock ", clock_, ", ", missing());
          for (const uint32_t rank : OtherRanks()) {
            absl::StrAppend(&text, link_->ActivityText(rank));
          }
          return text;
        }));
  }
}

// --- A step ---

void PeerExchange::BeginStep(const Step& step) {
  SYNCLINE_CHECK(!is_open_);
  is_open_ = true;
  announced_switch_.reset();
  step_ = step;
  clock_ = step.clock;
  facts_ = {.sample_count = step.sample_count};
  facts_sent_ = false;
  unfinished_.assign(buckets().size(), 0);
  for (const auto& of : tensor_buckets_) {
    for (const uint32_t b : of) ++unfinished_[b];
  }
  sent_.assign(buckets().size(), false);
  held_.clear();
  awaited_.assign(buckets().size(), false);
  std::fill(std::begin(norms_awaited_), std::end(norms_awaited_), false);
  gradients_left_nanos_ = 0;
  heard_at_ = absl::InfinitePast();
  RoundTensors();
  if (const absl::Status begun = reduction_.BeginOnDevice(); !begun.ok()) {
    Fail(StepReduction::OfDevice(begun, label_));
  }
  // A rank that does not want the next step's values reads a cut there. Where
  // values are divided it is brought them behind the step.
  reduction_.Begin(clock_, step.pull || divides_values()
                               ? StepReduction::Shown::kAsSent
                               : StepReduction::Shown::kWhole);
  for (const uint32_t rank : OtherRanks()) ReceiveFacts(rank);
  if (!divides_values()) return;
  whole_clock_ = -1;
  if (gathers_ == nullptr) return;
  if (std::exchange(may_hold_values_, false) &&
      tensors_.release_values != nullptr) {
    tensors_.release_values();
  }
  gathers_->Open(
      clock_,
      {.whole_to_chief = chief_has_whole_,
       .trains_whole = !narrows() || std::exchange(has_read_whole_, false)});
}

void PeerExchange::PullEarly(absl::Span<RowBatch* const>, int64_t) {}

void PeerExchange::AbandonStep(bool own_values) {
  SYNCLINE_CHECK(is_open_ && !facts_sent_);
  facts_ = {.sample_count = 0, .abandoned = true};
  if (own_values) AddCount(options_.telemetry.non_finite);
}

void PeerExchange::ReceiveFacts(uint32_t rank) {
  link_->transport().Receive(
      rank, TagOf(kFacts, 0),
      WritableBytesOfAll(absl::MakeSpan(facts_in_[rank].get(), 1)),
      absl::InfiniteFuture(),
      [this, rank, clock = clock_](const absl::Status& status) {
        if (status.ok()) OnFacts(rank, clock);
      });
}

// The rank's gradients come meanwhile.
void PeerExchange::OnFacts(uint32_t rank, int64_t clock) {
  const FactsMessage& facts = *facts_in_[rank];
  if (facts.layout_hash != layout_hash_ || facts.number > kSamplesMax ||
      facts.abandoned > 1) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(
        label_, ": ", link_->group().NameOf(rank), " said of clock ", clock,
        " what cannot be: ", facts.number,
        " samples; are all daemons of one version?")));
  }
  if (facts.number > 0 && facts.abandoned == 0) ReceiveGradients(rank, clock);
  Tell({.kind = kFacts, .from = rank});
}

void PeerExchange::ReceiveGradients(uint32_t rank, int64_t clock) {
  for (uint32_t b = 0; b < buckets().size(); ++b) {
    if (!Owns(b)) continue;
    if (compresses()) {
      ReceiveCompressed(rank, b, clock);
      continue;
    }
    PeerMemory memory =
        WritableBytesOfAll(gradients_[rank].span().subspan(own_offsets_[b]));
    memory.size = GradientBytes(b);
    Receive(rank, TagAt(clock, kGradient, b), memory,
            {.kind = kGradient, .from = rank, .bucket = b});
  }
}

void PeerExchange::ReceiveCompressed(uint32_t rank, uint32_t bucket,
                                     int64_t clock) {
  link_->transport().Receive(
      rank, TagAt(clock, kGradientSizes, bucket),
      WritableBytesOfAll(
          compressed_->From(rank, bucket).Sizes(buckets()[bucket])),
      absl::InfiniteFuture(),
      [this, rank, bucket, clock](const absl::Status& status) {
        if (!status.ok()) return;
        link_->Moved();
        const auto memory = compressed_->From(rank, bucket)
                                .Blocks(reduction_.map(), buckets()[bucket]);
        if (!memory.ok()) return FailOf(rank, clock, memory.status());
        Receive(rank, TagAt(clock, kGradient, bucket), *memory,
                {.kind = kGradient, .from = rank, .bucket = bucket});
      });
}

absl::Status PeerExchange::OfRank(uint32_t rank, int64_t clock,
                                  const absl::Status& status) const {
  return Annotate(status,
                  absl::StrCat(label_, ": ", link_->group().NameOf(rank),
                               ", clock ", clock));
}

void PeerExchange::FailOf(uint32_t rank, int64_t clock,
                          const absl::Status& status) {
  Fail(OfRank(rank, clock, status));
}

void PeerExchange::SendFacts() {
  if (std::exchange(facts_sent_, true)) return;
  uint64_t dropped = 0;
  if (reduction_.drops_blocks()) dropped = reduction_.found();
  // Rank 0 alone announces: the others read what it sent once it has come in.
  std::optional<AnnouncedSwitch> change;
  if (link_->rank() == 0) change = SwitchBehindStep();
  for (const uint32_t rank : OtherRanks()) {
    *facts_out_[rank] = {
        .layout_hash = layout_hash_,
        .number = facts_.sample_count,
        .abandoned = facts_.abandoned ? 1u : 0u,
        .dropped = dropped,
        .checkpoint_cut = link_->rank() == 0 ? CheckpointCut() : 0};
    facts_out_[rank]->wants_values = WantsValues() ? 1 : 0;
    if (change.has_value()) {
      facts_out_[rank]->switch_cut = change->cut_id;
      facts_out_[rank]->switch_to = 1 + static_cast<uint32_t>(change->strategy);
      facts_out_[rank]->switch_type = static_cast<uint32_t>(change->wire_type);
    }
    Send(rank, TagOf(kFacts, 0),
         {BytesOfAll(absl::MakeConstSpan(facts_out_[rank].get(), 1))});
  }
  reduction_.OnFacts(link_->rank(), facts_);
}

void PeerExchange::OnGradientReady(uint32_t tensor) {
  SYNCLINE_CHECK(is_open_ && facts_.sample_count > 0);
  SendFacts();
  if (compresses() && compressed_->needs_all()) {
    held_.push_back(tensor);
  } else {
    FinishTensor(tensor);
  }
  if (options_.frees_gradients) AwaitRoom();
  Pump();
}

void PeerExchange::FinishTensor(uint32_t tensor) {
  if (compresses()) {
    Compress(tensor);
  } else if (options_.frees_gradients) {
    TakeGradient(tensor);
  }
  for (const uint32_t b : tensor_buckets_[tensor]) {
    if (--unfinished_[b] == 0) SendGradient(b);
  }
}

void PeerExchange::Compress(uint32_t tensor) {
  compressed_->Compress(tensor,
                        options_.frees_gradients ? tensors_.gradient_of(tensor)
                                                 : tensors_.gradients[tensor],
                        clock_, facts_.sample_count);
}

void PeerExchange::CompressAll() {
  if (held_.empty()) return;
  const absl::Status clipped = compressed_->Clip(clock_, facts_.sample_count);
  if (!clipped.ok()) return Fail(clipped);
  for (const uint32_t tensor : held_) FinishTensor(tensor);
}

void PeerExchange::TakeGradient(uint32_t tensor) {
  const absl::Span<const float> gradient = tensors_.gradient_of(tensor);
  for (const uint32_t b : tensor_buckets_[tensor]) {
    const Bucket& bucket = buckets()[b];
    if (!Owns(b) && taken_[b].size() == 0) {
      taken_[b] =
          TakeBuffer(AlignedFloatsOf(options_.wire_type, bucket.elements));
    }
    float* const to = Owns(b)
                          ? gradients_[link_->rank()].data() + own_offsets_[b]
                          : taken_[b].data();
    for (size_t i = 0; i < bucket.blocks.size(); ++i) {
      const Block& block = reduction_.map().blocks()[bucket.blocks[i]];
      if (block.tensor != tensor) continue;
      CopyToWire(options_.wire_type, gradient.data() + block.offset,
                 static_cast<size_t>(block.count), to, bucket.offsets[i]);
    }
  }
}

AlignedFloats PeerExchange::TakeBuffer(size_t elements) {
  MutexLock lock(&mu_);
  for (AlignedFloats& buffer : free_buffers_) {
    if (buffer.size() < elements) continue;
    AlignedFloats taken = std::move(buffer);
    buffer = std::move(free_buffers_.back());
    free_buffers_.pop_back();
    return taken;
  }
  // One that is too small would never be used again.
  if (!free_buffers_.empty()) free_buffers_.pop_back();
  return AlignedFloats(elements);
}

void PeerExchange::AwaitRoom() {
  // An error is Wait's to return.
  link_
      ->Await([this] { return buffered_bytes_.load() <= kBufferedBytesMax; },
              [this] {
                return absl::StrCat("clock ", clock_,
                                    ", ranks that take this one's gradients");
              })
      .IgnoreError();
}

void PeerExchange::SendBuffer(uint32_t to, const PeerTag& tag,
                              AlignedFloats buffer, size_t size) {
  const auto bytes = static_cast<int64_t>(size);
  ++sending_;
  ++sending_gradients_;
  buffered_bytes_ += bytes;
  AddCount(options_.telemetry.pushed_bytes, static_cast<uint64_t>(bytes));
  const ConstPeerMemory piece{reinterpret_cast<const uint8_t*>(buffer.data()),
                              size};
  link_->transport().Send(to, tag, {piece}, absl::InfiniteFuture(),
                          [this, bytes, buffer = std::move(buffer)](
                              const absl::Status& status) mutable {
                            if (status.ok()) link_->Moved();
                            {
                              MutexLock lock(&mu_);
                              free_buffers_.push_back(std::move(buffer));
                            }
                            buffered_bytes_ -= bytes;
                            if (--sending_gradients_ == 0) {
                              gradients_left_nanos_ =
                                  absl::ToUnixNanos(MonotonicNow());
                            }
                            --sending_;
                            ++news_count_;
                          });
}

void PeerExchange::CountGradient(uint32_t bucket, size_t bytes) {
  if (options_.counts == nullptr || Owns(bucket)) return;
  options_.counts->gradient_bytes += bytes;
  options_.counts->gradient_float32_bytes +=
      buckets()[bucket].elements * sizeof(float);
}

void PeerExchange::CountValues(size_t bytes, size_t elements) {
  AddCount(options_.telemetry.pulled_bytes, bytes);
  if (options_.counts == nullptr) return;
  options_.counts->value_bytes += bytes;
  options_.counts->value_float32_bytes += elements * sizeof(float);
}

void PeerExchange::SendGradient(uint32_t bucket) {
  sent_[bucket] = true;
  if (compresses()) return SendCompressed(bucket);
  CountGradient(bucket, GradientBytes(bucket));
  if (options_.frees_gradients) {
    if (!Owns(bucket)) {
      return SendBuffer(buckets()[bucket].owner, TagOf(kGradient, bucket),
                        std::exchange(taken_[bucket], AlignedFloats()),
                        GradientBytes(bucket));
    }
    return reduction_.OnGradient(
        link_->rank(), bucket,
        std::make_shared<WirePayload>(
            options_.wire_type,
            gradients_[link_->rank()].data() + own_offsets_[bucket]));
  }
  if (Owns(bucket)) return reduction_.OnOwnGradient(bucket);
  if (narrows()) return SendNarrowed(bucket);
  std::vector<absl::Span<const float>> pieces;
  for (const uint32_t id : buckets()[bucket].blocks) {
    const Block& block = reduction_.map().blocks()[id];
    pieces.push_back(tensors_.gradients[block.tensor].subspan(
        static_cast<size_t>(block.offset), static_cast<size_t>(block.count)));
  }
  Send(buckets()[bucket].owner, TagOf(kGradient, bucket), Merged(pieces));
}

void PeerExchange::SendCompressed(uint32_t bucket) {
  if (Owns(bucket)) {
    return reduction_.OnGradient(link_->rank(), bucket,
                                 compressed_->OwnSource(bucket));
  }
  const CompressedGradients::Message message = compressed_->MessageOf(bucket);
  CountGradient(bucket, message.sizes.size + message.blocks.bytes);
  const uint32_t owner = buckets()[bucket].owner;
  Send(owner, TagOf(kGradientSizes, bucket), {message.sizes});
  Send(owner, TagOf(kGradient, bucket), message.blocks.blocks);
}

// While what backward has just written is in the cache.
void PeerExchange::SendNarrowed(uint32_t bucket) {
  const Bucket& of = buckets()[bucket];
  float* const out = narrowed_.data() + narrowed_offsets_[bucket];
  for (size_t i = 0; i < of.blocks.size(); ++i) {
    const Block& block = reduction_.map().blocks()[of.blocks[i]];
    CopyToWire(options_.wire_type,
               tensors_.gradients[block.tensor].data() + block.offset,
               static_cast<size_t>(block.count), out, of.offsets[i]);
  }
  Send(of.owner, TagOf(kGradient, bucket),
       {ConstPeerMemory{reinterpret_cast<const uint8_t*>(out),
                        GradientBytes(bucket)}});
}

void PeerExchange::SendNarrowedValues(uint32_t bucket) {
  float* const out = values_out_.data() + own_offsets_[bucket];
  size_t first = 0;
  for (const absl::Span<const float> piece : reduction_.PayloadOf(bucket)) {
    CopyToWire(options_.wire_type, piece.data(), piece.size(), out, first);
    first += piece.size();
  }
  SendToAll(TagOf(kResult, bucket),
            {ConstPeerMemory{reinterpret_cast<const uint8_t*>(out),
                             GradientBytes(bucket)}});
}

void PeerExchange::TakeNarrowedValues(uint32_t bucket) {
  const Bucket& of = buckets()[bucket];
  const WirePayload payload(options_.wire_type,
                            values_in_.data() + narrowed_offsets_[bucket]);
  for (size_t i = 0; i < of.blocks.size(); ++i) {
    const Block& block = reduction_.map().blocks()[of.blocks[i]];
    payload.CopyTo(of.offsets[i], static_cast<size_t>(block.count),
                   tensors_.values[block.tensor].data() + block.offset);
  }
}

void PeerExchange::RoundTensors() {
  if (!std::exchange(rounds_, false)) return;
  whole_clock_ = -1;
  has_read_whole_ = false;
  for (const absl::Span<float> values : tensors_.values) {
    CopyAsSent(options_.wire_type, values.data(), values.data(), values.size());
  }
}

void PeerExchange::EndBackward(absl::Span<RowBatch* const>) {
  SYNCLINE_CHECK(is_open_);
  SendFacts();
  CompressAll();
  reduction_.UseStream();
  if (gathers_ != nullptr) gathers_->Close();
  // Without a gradient no value is read any more.
  if (facts_.sample_count == 0) sent_.assign(sent_.size(), true);
  Pump();
}

absl::Status PeerExchange::Wait() {
  SYNCLINE_CHECK(is_open_ && facts_sent_);
  const absl::Time begin = MonotonicNow();
  absl::Status status = AwaitAll([this] {
    return reduction_.done() && (gathers_ == nullptr || gathers_->all_here());
  });
  if (status.ok()) {
    reduction_.FinishOnDevice();
    status = FetchFromDevice();
  }
  if (status.ok() && compresses() && was_skipped(clock_)) {
    compressed_->Undo(clock_);
    if (compressed_sums_ != nullptr) compressed_sums_->Undo(clock_);
  }
  // A step that was skipped has written no value.
  if (status.ok() && divides_values()) {
    // A step that has changed nothing leaves whole values that were read.
    rounds_ = rounds_tensors() && step_.pull && !step_.finished &&
              (WantsValues() || has_read_whole_);
    status = BringValues();
  } else if (status.ok() && step_.pull) {
    reduction_.Show(StepReduction::Shown::kAsSent);
  }
  if (status.ok() && reduction_.drops_blocks()) {
    // Others' as of the step's beginning.
    dropped_ = reduction_.found();
    for (const uint32_t rank : OtherRanks()) {
      dropped_ += facts_in_[rank]->dropped;
    }
  }
  if (const uint64_t cut = CheckpointCut(); status.ok() && cut != 0) {
    WriteCheckpoint(cut);
  }
  if (status.ok()) {
    status =
        step_.finished ? EndTogether(clock_ + 1) : ServeEvaluator(clock_ + 1);
  }
  if (status.ok()) RoundTensors();
  SumUpLeftOut();
  const absl::Time end = MonotonicNow();
  const absl::Time left =
      std::clamp(absl::FromUnixNanos(gradients_left_nanos_.load()), begin, end);
  const absl::Time heard = std::clamp(heard_at_, left, end);
  wait_times_ = {left - begin, heard - left, end - heard};
  if (status.ok()) announced_switch_ = SwitchBehindStep();
  is_open_ = false;
  finished_ = status.ok() && step_.finished;
  ++clock_;
  return status;
}

absl::Status PeerExchange::FetchFromDevice() {
  if (!reduction_.is_on_device()) return absl::OkStatus();
  absl::Status status;
  if (SwitchBehindStep().has_value()) {
    status = reduction_.FetchState(/*own_alone=*/false);
  } else if (CheckpointCut() != 0) {
    status = reduction_.FetchState(/*own_alone=*/true);
  }
  // Behind the last step they are exported; ps that train next go by them.
  if (step_.finished || SwitchBehindStep().has_value()) {
    status.Update(reduction_.FetchValues());
  }
  return Annotate(status, label_);
}

void PeerExchange::Pump() {
  std::vector<News> news;
  {
    MutexLock lock(&mu_);
    news.swap(news_);
  }
  for (const News& of : news) Take(of);
  do {
    ReceiveNorms();
    ReceiveResults();
    const auto out = reduction_.Next();
    WarnOfFound();
    if (!out.has_value()) break;
    SendOut(*out);
  } while (true);
  ReceiveNorms();
  ReceiveResults();
  if (!reduction_.status().ok()) Fail(reduction_.status());
}

void PeerExchange::Take(const News& news) {
  const uint32_t b = news.bucket;
  switch (news.kind) {
    case kFacts: {
      const FactsMessage& facts = *facts_in_[news.from];
      reduction_.OnFacts(news.from, {.sample_count = facts.number,
                                     .abandoned = facts.abandoned != 0});
      heard_at_ = MonotonicNow();
      return;
    }
    case kGradient:
      if (compresses()) return TakeCompressed(news.from, b);
      AddCount(options_.telemetry.pulled_bytes, GradientBytes(b));
      reduction_.OnGradient(
          news.from, b,
          std::make_shared<WirePayload>(
              options_.wire_type,
              gradients_[news.from].data() + own_offsets_[b]));
      heard_at_ = MonotonicNow();
      return;
    case kGradientNorms:
    case kTrustNorms: {
      const auto stage = news.kind == kTrustNorms ? ReductionStage::kTrust
                                                  : ReductionStage::kGradient;
      reduction_.OnNorms(news.from, stage,
                         norms_in_[IndexOf(stage)][news.from]);
      heard_at_ = MonotonicNow();
      return;
    }
    case kOwnedValues:
      AddCount(options_.telemetry.pulled_bytes,
               buckets()[b].elements * sizeof(float));
      owned_missing_.erase(
          std::find(owned_missing_.begin(), owned_missing_.end(), b));
      return;
    case kResult: {
      if (!reduction_.replicates()) {
        CountValues(options_.wire_type, buckets()[b].elements);
        if (narrows()) TakeNarrowedValues(b);
        return reduction_.OnValues(b);
      }
      const absl::Status taken = TakeSum(b);
      if (!taken.ok()) Fail(taken);
      return;
    }
    default:
      return;
  }
}

void PeerExchange::TakeCompressed(uint32_t rank, uint32_t bucket) {
  auto received =
      compressed_->From(rank, bucket).Take(reduction_.map(), buckets()[bucket]);
  if (!received.ok()) return FailOf(rank, clock_, received.status());
  AddCount(options_.telemetry.pulled_bytes, received->bytes);
  reduction_.OnGradient(rank, bucket, std::move(received->values));
  heard_at_ = MonotonicNow();
}

// In front of a bucket's sums: BlockSums, and the sizes of compressed blocks.
size_t PeerExchange::HeadElements(uint32_t bucket) const {
  const Bucket& of = buckets()[bucket];
  return SumsElements(of) +
         (compressed_sums_ == nullptr ? 0 : AlignedElements(of.blocks.size()));
}

void PeerExchange::SendCompressedSum(uint32_t bucket) {
  const LeavingBucket leaving = compressed_sums_->Leave(bucket, clock_);
  const std::vector<StepReduction::BlockSum> sums = reduction_.SumsOf(bucket);
  const absl::Span<const uint32_t> sizes = compressed_sums_->sizes(bucket);
  AlignedFloats& head = sums_out_[bucket];
  std::memcpy(head.data(), sums.data(), sums.size() * sizeof(sums[0]));
  std::memcpy(head.data() + SumsElements(buckets()[bucket]), sizes.data(),
              sizes.size() * sizeof(sizes[0]));
  SendToAll(TagOf(kResultSizes, bucket),
            {BytesOfAll(absl::Span<const float>(head.data(), head.size()))});
  SendToAll(TagOf(kResult, bucket), leaving.blocks);
}

void PeerExchange::ReceiveCompressedSum(uint32_t bucket, int64_t clock) {
  const uint32_t owner = buckets()[bucket].owner;
  const absl::Span<float> head =
      sums_.span().subspan(sum_offsets_[bucket], HeadElements(bucket));
  link_->transport().Receive(
      owner, TagAt(clock, kResultSizes, bucket), WritableBytesOfAll(head),
      absl::InfiniteFuture(),
      [this, owner, bucket, clock, head](const absl::Status& status) {
        if (!status.ok()) return;
        link_->Moved();
        const Bucket& of = buckets()[bucket];
        ComingBucket& coming = compressed_sums_->From(bucket);
        const absl::Span<uint32_t> sizes = coming.Sizes(of);
        std::memcpy(sizes.data(), head.data() + SumsElements(of),
                    sizes.size() * sizeof(sizes[0]));
        const auto memory = coming.Blocks(reduction_.map(), of);
        if (!memory.ok()) return FailOf(owner, clock, memory.status());
        Receive(owner, TagAt(clock, kResult, bucket), *memory,
                {.kind = kResult, .bucket = bucket});
      });
}

absl::Status PeerExchange::TakeSum(uint32_t bucket) {
  const Bucket& of = buckets()[bucket];
  const float* const begin = sums_.data() + sum_offsets_[bucket];
  std::vector<StepReduction::BlockSum> sums(of.blocks.size());
  std::memcpy(static_cast<void*>(sums.data()), begin,
              sums.size() * sizeof(sums[0]));
  if (compressed_sums_ == nullptr) {
    CountValues(ElementType::kFloat32, of.elements);
    return reduction_.OnSum(
        bucket, sums, std::make_shared<FloatPayload>(begin + SumsElements(of)));
  }
  auto received = compressed_sums_->From(bucket).Take(reduction_.map(), of);
  if (!received.ok()) return OfRank(of.owner, clock_, received.status());
  CountValues(of.blocks.size() * sizeof(uint32_t) + received->bytes,
              of.elements);
  return reduction_.OnSum(bucket, sums, std::move(received->values));
}

void PeerExchange::ReceiveNorms() {
  const std::optional<ReductionStage> stage = reduction_.awaited_norms();
  if (!stage.has_value()) return;
  if (std::exchange(norms_awaited_[IndexOf(*stage)], true)) return;
  for (const uint32_t rank : OtherRanks()) {
    std::vector<double>& norms = norms_in_[IndexOf(*stage)][rank];
    if (norms.empty()) continue;
    Receive(rank, TagOf(NormsKind(*stage), 0),
            WritableBytesOfAll(absl::MakeSpan(norms)),
            {.kind = NormsKind(*stage), .from = rank});
  }
}

void PeerExchange::ReceiveResults() {
  if (!is_open_ || !reduction_.expects_results()) return;
  for (uint32_t b = 0; b < buckets().size(); ++b) {
    if (Owns(b) || !sent_[b] || awaited_[b]) continue;
    awaited_[b] = true;
    if (!reduction_.replicates()) {
      if (narrows()) {
        ReceiveNarrowedValues(b);
      } else {
        ReceiveValues(b, kResult, clock_);
      }
      continue;
    }
    if (compressed_sums_ != nullptr) {
      ReceiveCompressedSum(b, clock_);
      continue;
    }
    Receive(buckets()[b].owner, TagOf(kResult, b),
            WritableBytesOfAll(sums_.span().subspan(
                sum_offsets_[b],
                SumsElements(buckets()[b]) + buckets()[b].elements)),
            {.kind = kResult, .bucket = b});
  }
}

void PeerExchange::ReceiveNarrowedValues(uint32_t bucket) {
  PeerMemory memory =
      WritableBytesOfAll(values_in_.span().subspan(narrowed_offsets_[bucket]));
  memory.size = GradientBytes(bucket);
  Receive(buckets()[bucket].owner, TagOf(kResult, bucket), memory,
          {.kind = kResult, .bucket = bucket});
}

void PeerExchange::ReceiveValues(uint32_t bucket, PeerMessage kind,
                                 int64_t clock) {
  const uint32_t from = kind == kInit ? 0 : buckets()[bucket].owner;
  link_->transport().ReceivePieces(
      from, TagAt(clock, kind, bucket),
      buckets()[bucket].elements * sizeof(float), absl::InfiniteFuture(),
      [this, bucket](size_t offset, absl::Span<const uint8_t> bytes) {
        StoreValues(reduction_.map(), buckets()[bucket], tensors_, offset,
                    bytes);
      },
      [this, bucket, kind](const absl::Status& status) {
        if (status.ok()) Tell({.kind = kind, .bucket = bucket});
      });
}

void PeerExchange::SendOut(const StepReduction::Outgoing& out) {
  using Kind = StepReduction::Outgoing::Kind;
  if (out.kind == Kind::kNorms) {
    std::vector<double>& norms = norms_out_[IndexOf(out.stage)];
    norms = reduction_.OwnNorms(out.stage);
    return SendToAll(TagOf(NormsKind(out.stage), 0),
                     {BytesOfAll(absl::MakeConstSpan(norms))});
  }
  if (out.kind == Kind::kValues && narrows()) {
    return SendNarrowedValues(out.bucket);
  }
  if (out.kind == Kind::kSum && compressed_sums_ != nullptr) {
    return SendCompressedSum(out.bucket);
  }
  std::vector<ConstPeerMemory> pieces;
  if (out.kind == Kind::kSum) {
    const std::vector<StepReduction::BlockSum> sums =
        reduction_.SumsOf(out.bucket);
    AlignedFloats& head = sums_out_[out.bucket];
    std::memcpy(head.data(), sums.data(), sums.size() * sizeof(sums[0]));
    pieces.push_back(
        BytesOfAll(absl::Span<const float>(head.data(), head.size())));
  }
  for (const ConstPeerMemory& piece :
       Merged(reduction_.PayloadOf(out.bucket))) {
    pieces.push_back(piece);
  }
  SendToAll(TagOf(kResult, out.bucket), pieces);
}

void PeerExchange::WarnOfFound() {
  if (reduction_.found() == found_told_) return;
  found_told_ = reduction_.found();
  const absl::Time now = MonotonicNow();
  if (now < next_warning_) return;
  next_warning_ = now + kWarningPeriod;
  LogWarning(reduction_.status().ok() ? "a gradient is not applied"
                                      : "the job fails")
      .Status(reduction_.last_found());
}

}  // namespace syncline::worker
