// PeerExchange between steps: the first values, cuts, and the counts of what
// all steps have left out.

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/manifest.h"
#include "common/update/optimizer_state.h"
#include "worker/peers/peer_exchange.h"
#include "worker/peers/peer_messages.h"

namespace syncline::worker {

// --- The state between steps ---

absl::Status PeerExchange::Init(int64_t total_clocks) {
  SYNCLINE_RETURN_IF_ERROR(link_->status());
  total_clocks_ = total_clocks;
  if (options_.start == nullptr) {
    reduction_.Init(total_clocks);
  } else {
    reduction_.SetTotalClocks(total_clocks);
    clock_ = options_.start->clock();
    // Behind its last clock the job has no step, and no other rank waits.
    if (clock_ == total_clocks) return LoadStart();
  }
  for (const uint32_t rank : OtherRanks()) {
    *facts_out_[rank] = {.layout_hash = layout_hash_,
                         .number = static_cast<uint64_t>(total_clocks)};
    Send(rank, TagOf(kInitHead, 0),
         {BytesOfAll(absl::MakeConstSpan(facts_out_[rank].get(), 1))});
  }
  if (options_.start != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(LoadStart());
    return AwaitAll([] { return true; });
  }
  // Needed first goes first.
  for (uint32_t b = static_cast<uint32_t>(buckets().size()); b-- > 0;) {
    const std::vector<ConstPeerMemory> values =
        ValuesOf(reduction_.map(), buckets()[b], tensors_);
    if (!options_.frees_values) {
      SendToAll(TagOf(kInit, b), values);
    } else if (!Owns(b)) {
      Send(buckets()[b].owner, TagOf(kInit, b), values);
    }
  }
  whole_clock_ = clock_;
  return AwaitAll([] { return true; });
}

// --- Values that are at their owners alone ---

void PeerExchange::MakeGathers() {
  UnitGathers::Options options;
  options.units = tensors_.gather_units;
  options.names = tensors_.names;
  options.wire_type = options_.wire_type;
  options.send = [this](uint32_t to, const PeerTag& tag,
                        absl::Span<const ConstPeerMemory> pieces,
                        std::function<void()> sent) {
    ++sending_;
    for (const ConstPeerMemory& piece : pieces) {
      AddCount(options_.telemetry.pushed_bytes, piece.size);
    }
    link_->transport().Send(
        to, tag, pieces, absl::InfiniteFuture(),
        [this, sent = std::move(sent)](const absl::Status& status) {
          if (status.ok()) link_->Moved();
          sent();
          --sending_;
          ++news_count_;
        });
  };
  options.arrived = [this](ElementType type, size_t elements) {
    link_->Moved();
    CountValues(type, elements);
    ++news_count_;
  };
  options.await = [this](absl::FunctionRef<bool()> done,
                         absl::FunctionRef<std::string()> missing) {
    return AwaitPumping(done, missing);
  };
  gathers_ = std::make_unique<UnitGathers>(std::move(options), &reduction_,
                                           link_.get());
  reduction_.GateChanges(
      [this](uint32_t bucket) { return gathers_->HasLeft(bucket); });
}

bool PeerExchange::WantsValues() const {
  if (!divides_values() || link_->rank() != 0) return false;
  // After the last step they are exported.
  if (step_.finished || evaluator_clock_ == clock_ + 1) return true;
  return std::any_of(cuts_.begin(), cuts_.end(), [this](const auto& cut) {
    return cut.second.use == CutUse::kEvaluation &&
           cut.second.clock == clock_ + 1;
  });
}

absl::Status PeerExchange::BringValues() {
  const PeerTag tag = TagAt(clock_ + 1, kOwnedValues, 0);
  chief_has_whole_ =
      link_->rank() == 0 ? WantsValues() : facts_in_[0]->wants_values != 0;
  if (!chief_has_whole_) return absl::OkStatus();
  if (link_->rank() != 0) {
    for (uint32_t b = 0; b < buckets().size(); ++b) {
      if (!Owns(b)) continue;
      Send(0, {.clock = tag.clock, .kind = tag.kind, .item = b},
           Merged(reduction_.PayloadOf(b)));
    }
    return AwaitAll([] { return true; });
  }
  may_hold_values_ = true;
  owned_missing_.clear();
  for (uint32_t b = 0; b < buckets().size(); ++b) {
    if (Owns(b)) {
      for (const uint32_t id : buckets()[b].blocks) {
        reduction_.ShowBlock(id, StepReduction::Shown::kWhole);
      }
      continue;
    }
    owned_missing_.push_back(b);
    ReceiveValues(b, kOwnedValues, tag.clock);
  }
  SYNCLINE_RETURN_IF_ERROR(AwaitPumping(
      [this] { return owned_missing_.empty(); },
      [this] {
        std::string text;
        for (const uint32_t b : owned_missing_) {
          absl::StrAppend(&text, text.empty() ? "" : "; ",
                          "the values of bucket ", b, " behind the step, of ",
                          link_->group().NameOf(buckets()[b].owner));
        }
        return text;
      }));
  whole_clock_ = clock_ + 1;
  return absl::OkStatus();
}

absl::Status PeerExchange::Pull(int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(link_->status());
  clock_ = clock;
  if (link_->rank() == 0) {  // it has made them
    ShowRounded();
    return absl::OkStatus();
  }
  const bool loads = options_.start != nullptr;
  // Those of other owners are not for this rank, where it does not keep them.
  const auto comes = [&](uint32_t b) {
    return !loads && (!options_.frees_values || Owns(b));
  };
  size_t left = 1;
  Receive(0, TagOf(kInitHead, 0),
          WritableBytesOfAll(absl::MakeSpan(facts_in_[0].get(), 1)),
          {.kind = kInitHead});
  for (uint32_t b = 0; b < buckets().size(); ++b) {
    if (!comes(b)) continue;
    ++left;
    ReceiveValues(b, kInit, clock_);
  }
  if (loads) SYNCLINE_RETURN_IF_ERROR(LoadStart());
  const auto here = [&] {
    MutexLock lock(&mu_);
    return news_.size() == left;
  };
  SYNCLINE_RETURN_IF_ERROR(link_->Await(here, [&] {
    return absl::StrCat("the initial values, of ", link_->group().NameOf(0));
  }));
  {
    MutexLock lock(&mu_);
    news_.clear();
  }
  if (facts_in_[0]->layout_hash != layout_hash_) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        label_, ": ", link_->group().NameOf(0),
        " has other blocks, another strategy, another wire type or another "
        "checkpoint to start from; are all daemons of one version?")));
    return link_->status();
  }
  total_clocks_ = static_cast<int64_t>(facts_in_[0]->number);
  if (loads) {
    reduction_.SetTotalClocks(total_clocks_);
  } else {
    reduction_.Init(total_clocks_);
  }
  ShowRounded();
  return absl::OkStatus();
}

void PeerExchange::ShowRounded() {
  if (rounds_tensors()) {
    rounds_ = true;  // a cut here may still be read
  } else if (!options_.frees_values) {
    reduction_.Show(StepReduction::Shown::kAsSent);
  }
}

absl::Status PeerExchange::PullRows(int64_t, uint64_t,
                                    absl::Span<RowBatch* const> rows) {
  if (rows.empty()) return link_->status();
  return absl::UnimplementedError(
      absl::StrCat(label_, ": a job without ps has no tables"));
}

absl::Status PeerExchange::ReportActivity(int64_t clock, absl::string_view what,
                                          uint64_t done, uint64_t total) {
  if (finished_) return link_->status();
  return link_->ReportActivity(clock, what, done, total);
}

// --- Cuts ---

absl::StatusOr<std::vector<int64_t>> PeerExchange::BeginCut(const Cut& cut) {
  SYNCLINE_RETURN_IF_ERROR(link_->status());
  const bool writes = cut.use == CutUse::kCheckpoint && checkpoints_ != nullptr;
  const bool changes = cut.use == CutUse::kRegime && cut.regime.has_value();
  if (cut.use != CutUse::kEvaluation && !writes && !changes) {
    return absl::UnimplementedError(absl::StrCat(
        label_, ": a job without ps has no ", CutUseName(cut.use), " cuts"));
  }
  int64_t clock = clock_ + (is_open_ ? 1 : 0);
  for (const int64_t asked : cut.clocks) clock = std::max(clock, asked);
  cuts_[cut.id] = {.clock = clock, .use = cut.use};
  if (changes) {
    cuts_[cut.id].change = {.cut_id = cut.id,
                            .strategy = cut.regime->strategy,
                            .wire_type = cut.regime->wire_type};
  }
  // The evaluator asks for those behind it.
  if (link_->has_evaluator() && cut.use == CutUse::kEvaluation) {
    evaluator_clock_ = clock;
  }
  return std::vector<int64_t>(link_->ranks(), clock);
}

absl::Status PeerExchange::PullCut(uint64_t cut_id, int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(CheckCut(cut_id, clock));
  if (divides_values() && whole_clock_ != clock) {
    return absl::FailedPreconditionError(
        absl::StrCat(label_, ": the values of clock ", clock,
                     " are at their owners alone: cut ", cut_id,
                     " was not announced before the step in front of it"));
  }
  rounds_ = false;
  has_read_whole_ = true;
  if (divides_values()) return absl::OkStatus();
  reduction_.Show(StepReduction::Shown::kWhole);
  return Annotate(reduction_.FetchValues(), label_);
}

absl::Status PeerExchange::CheckCut(uint64_t cut_id, int64_t clock) const {
  SYNCLINE_RETURN_IF_ERROR(link_->status());
  const auto cut = cuts_.find(cut_id);
  const bool is_known =
      cut != cuts_.end() ? cut->second.clock == clock
                         : link_->has_evaluator();  // it has announced the cut
  if (is_known && clock == clock_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(label_, ": no cut ", cut_id, " at clock ", clock));
}

absl::Status PeerExchange::ScanTable(uint32_t, int64_t, uint64_t, int64_t,
                                     RowSink) {
  return absl::UnimplementedError(
      absl::StrCat(label_, ": a job without ps has no tables"));
}

absl::Status PeerExchange::EndCut(uint64_t cut_id, int64_t) {
  cuts_.erase(cut_id);
  return link_->status();
}

absl::Status PeerExchange::AwaitCut(uint64_t cut_id, int64_t clock) {
  return CheckCut(cut_id, clock);
}

absl::Status PeerExchange::ServeEvaluator(int64_t clock) {
  if (link_->rank() != 0 || !link_->has_evaluator()) return absl::OkStatus();
  if (evaluator_clock_ != clock) {
    // Often enough for whoever waits for the step timeout.
    const absl::Time now = MonotonicNow();
    if (now - evaluator_told_ < link_->step_timeout() / 8) {
      return absl::OkStatus();
    }
    evaluator_told_ = now;
    return link_->ReportActivity(clock, "training",
                                 static_cast<uint64_t>(clock),
                                 static_cast<uint64_t>(total_clocks_));
  }
  evaluator_clock_ = -1;
  SYNCLINE_RETURN_IF_ERROR(Annotate(reduction_.FetchValues(), label_));
  const uint32_t to = link_->evaluator();
  evaluator_head_ = {.layout_hash = evaluator_hash_,
                     .number = static_cast<uint64_t>(total_clocks_)};
  Send(to, TagAt(clock, kCutHead, 0),
       {BytesOfAll(absl::MakeConstSpan(&evaluator_head_, 1))});
  for (uint32_t b = 0; b < buckets().size(); ++b) {
    // Rounded ones in the tensors are not what is evaluated.
    Send(to, TagAt(clock, kCutValues, b),
         narrows() && options_.replicates
             ? Merged(reduction_.ValuesOf(b))
             : ValuesOf(reduction_.map(), buckets()[b], tensors_));
  }
  Receive(to, TagAt(clock, kCutRead, 0),
          WritableBytesOfAll(absl::MakeSpan(&evaluator_read_, 1)),
          {.kind = kCutRead, .from = to});
  const auto here = [&] {
    MutexLock lock(&mu_);
    return news_.size() == 1 && sending_.load() == 0;
  };
  SYNCLINE_RETURN_IF_ERROR(link_->Await(here, [&] {
    return absl::StrCat(
        "clock ", clock, ", the evaluator, ", link_->group().NameOf(to),
        ", which is to read the values", link_->ActivityText(to));
  }));
  {
    MutexLock lock(&mu_);
    news_.clear();
  }
  const auto next = static_cast<int64_t>(evaluator_read_.number);
  if (evaluator_read_.layout_hash != evaluator_hash_ ||
      (next != 0 && next <= clock)) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat(label_, ": ", link_->group().NameOf(to), " asks at clock ",
                     clock, " for the values of clock ", next,
                     "; are all daemons of one version?")));
    return link_->status();
  }
  evaluator_clock_ = next != 0 ? next : -1;
  return absl::OkStatus();
}

absl::Status PeerExchange::Leave(int64_t clock) {
  clock_ = clock;
  const absl::Status ended = EndTogether(clock);
  finished_ = ended.ok();
  return ended;
}

// --- Checkpoints ---

void PeerExchange::OpenCheckpoints() {
  if (!options_.checkpoints.has_value()) return;
  PeerCheckpoints::Options options = *options_.checkpoints;
  options.label = label_;
  options.rank = link_->rank();
  options.ranks = link_->ranks();
  std::vector<PeerCheckpoints::OwnBlock> blocks;
  for (const uint32_t id : reduction_.map().shard_blocks(link_->rank())) {
    blocks.push_back({.id = id, .local = reduction_.local(id)});
  }
  checkpoints_ = std::make_unique<PeerCheckpoints>(
      std::move(options), &reduction_.updater(), std::move(blocks));
  reduction_.OnChange(
      [this](uint32_t local) { checkpoints_->BeforeWrite(local); });
}

ShardStateHeader PeerExchange::HeaderAt(int64_t clock, bool finished) const {
  ShardStateHeader header;
  for (uint32_t rank = 0; rank < link_->ranks(); ++rank) {
    ShardStateHeader::Worker* const worker = header.add_workers();
    worker->set_closed(clock);
    worker->set_finished(finished);
    worker->set_non_finite(reduction_.found_of(rank));
  }
  header.set_skipped_through(reduction_.skipped_through());
  header.set_skipped_clocks(reduction_.skipped_clocks());
  header.set_total_clocks(total_clocks_);
  header.set_optimizer(OptimizerStateName(options_.update.optimizer));
  header.set_slots(static_cast<uint32_t>(reduction_.updater().arrays() - 1));
  return header;
}

uint64_t PeerExchange::CheckpointCut() const {
  if (checkpoints_ == nullptr) return 0;
  if (link_->rank() != 0) return facts_in_[0]->checkpoint_cut;
  for (const auto& [id, cut] : cuts_) {
    if (cut.use == CutUse::kCheckpoint && cut.clock == clock_ + 1) return id;
  }
  return 0;
}

void PeerExchange::WriteCheckpoint(uint64_t cut_id) {
  const int64_t clock = clock_ + 1;
  const uint32_t own = link_->rank();
  if (compressed_ != nullptr && options_.residuals != nullptr) {
    options_.residuals->Save(cut_id, clock, compressed_->compressor());
  }
  ShardStateHeader header = HeaderAt(clock, step_.finished);
  uint64_t found = reduction_.found() + (own == 0 ? found_before_ : 0);
  if (reduction_.drops_blocks()) {
    found += reduction_.left_out() * reduction_.map().shard_blocks(own).size();
  }
  header.set_non_finite(found);
  if (own == 0) {
    parts_cut_ = cut_id;
    parts_ = std::make_shared<PartsOfRanks>(link_->ranks());
    for (const uint32_t rank : OtherRanks()) ReceivePart(rank, cut_id);
    return checkpoints_->Begin(
        cut_id, clock, std::move(header),
        [parts = parts_](absl::StatusOr<CheckpointWriting::Part> part) {
          parts->Set(0, std::move(part));
        });
  }
  ++parts_to_tell_;
  {
    MutexLock lock(&mu_);
    unsent_parts_.insert(clock);
  }
  checkpoints_->Begin(
      cut_id, clock, std::move(header),
      [this, clock](const absl::StatusOr<CheckpointWriting::Part>& part) {
        SendPart(part, clock);
      });
}

void PeerExchange::ReceivePart(uint32_t rank, uint64_t cut_id) {
  auto message = std::make_shared<PartMessage>();
  const auto received = [message, rank, parts = parts_,
                         file =
                             ShardFileName(checkpoints_->options().PartOf(rank),
                                           checkpoints_->options().parts()),
                         label = label_, cut_id,
                         name = link_->group().NameOf(rank)](
                            const absl::Status& status) {
    const auto fail = [&](absl::StatusCode code, absl::string_view text) {
      parts->Set(rank, absl::Status(
                           code, absl::StrCat(label, ": the checkpoint of cut ",
                                              cut_id, ", ", name, ": ", text)));
    };
    if (!status.ok()) return fail(status.code(), status.message());
    message->text[PartMessage::kTextBytesMax] = 0;
    if (message->code != 0) {
      return fail(message->code > 0 && message->code <= 16
                      ? static_cast<absl::StatusCode>(message->code)
                      : absl::StatusCode::kUnknown,
                  Printable(std::string(message->text)));
    }
    CheckpointWriting::Part part;
    if (message->is_empty == 0) {
      part = {.file = file, .bytes = message->bytes, .crc32c = message->crc32c};
    }
    parts->Set(rank, std::move(part));
  };
  link_->transport().Receive(
      rank, TagAt(clock_ + 1, kCheckpointPart, 0),
      WritableBytesOfAll(absl::MakeSpan(message.get(), 1)),
      absl::InfiniteFuture(), received);
}

// On the writer's thread, but for a part that is given up.
void PeerExchange::SendPart(const absl::StatusOr<CheckpointWriting::Part>& part,
                            int64_t clock) {
  {
    MutexLock lock(&mu_);
    if (unsent_parts_.erase(clock) == 0) return;
  }
  auto message = std::make_shared<PartMessage>();
  if (part.ok()) {
    message->bytes = part->bytes;
    message->crc32c = part->crc32c;
    message->is_empty = part->file.empty() ? 1 : 0;
  } else {
    message->code = static_cast<int32_t>(part.status().code());
    const absl::string_view text = part.status().message();
    std::copy_n(text.data(), std::min(text.size(), PartMessage::kTextBytesMax),
                message->text);
  }
  link_->transport().Send(0, TagAt(clock, kCheckpointPart, 0),
                          {BytesOfAll(absl::MakeConstSpan(message.get(), 1))},
                          absl::InfiniteFuture(),
                          [this, message](const absl::Status& status) {
                            if (status.ok()) link_->Moved();
                            --parts_to_tell_;
                          });
}

absl::Status PeerExchange::AwaitPartSent() {
  const absl::Duration period =
      std::min(absl::Seconds(1), link_->step_timeout() / 4);
  const absl::Time begin = MonotonicNow();
  bool waits = true;
  while (parts_to_tell_.load() > 0) {
    link_->transport().Await([this] { return parts_to_tell_.load() == 0; },
                             MonotonicNow() + period);
    const absl::Duration waited =
        absl::Trunc(MonotonicNow() - begin, absl::Milliseconds(1));
    const absl::Duration wait_max = checkpoints_->options().last_part_wait_max;
    if (waits && waited >= wait_max) {
      waits = false;
      const absl::Status too_late = absl::DeadlineExceededError(
          absl::StrCat("its part is not written ", absl::FormatDuration(waited),
                       " after the last step; is its disk too slow?"));
      GiveUpParts(too_late);
      checkpoints_->LeaveDisk(too_late);
    }
    // While one file is synced no block is written, so it is the text that says
    // to the others that this rank moves.
    SYNCLINE_RETURN_IF_ERROR(link_->ReportActivity(
        clock_,
        absl::StrCat("writing a checkpoint for ", absl::FormatDuration(waited)),
        checkpoints_->written_blocks(), checkpoints_->block_count()));
  }
  return link_->status();
}

void PeerExchange::GiveUpParts(const absl::Status& why) {
  std::set<int64_t> clocks;
  {
    MutexLock lock(&mu_);
    clocks = unsent_parts_;
  }
  for (const int64_t clock : clocks) SendPart(why, clock);
}

std::unique_ptr<CheckpointWriting> PeerExchange::OpenCheckpoint(
    uint64_t cut_id) {
  if (parts_ == nullptr || parts_cut_ != cut_id) return nullptr;
  std::vector<uint32_t> owners;
  for (const Block& block : reduction_.map().blocks()) {
    owners.push_back(checkpoints_->options().PartOf(block.shard));
  }
  return std::make_unique<PeerCheckpointWriting>(
      cut_id, checkpoints_->options(), std::move(owners), parts_);
}

std::optional<int64_t> PeerExchange::OwnClock() const {
  // This rank does not know what others have dropped since the last checkpoint,
  // nor whether they go on by another strategy.
  if (!options_.replicates || checkpoints_ == nullptr ||
      !reduction_.status().ok() || reduction_.drops_blocks() ||
      announced_switch_.has_value()) {
    return std::nullopt;
  }
  return reduction_.state_clock();
}

std::unique_ptr<CheckpointWriting> PeerExchange::SaveAlone(uint64_t cut_id) {
  const int64_t clock = *OwnClock();
  // The fetch from a GPU would wait until its disk has the state before.
  checkpoints_->GiveUp(absl::CancelledError(
      absl::StrCat(label_, ": the chief saves the job by itself")));
  const absl::Status fetched =
      Annotate(reduction_.FetchState(/*own_alone=*/false), label_);
  // As the only rank of a group.
  PeerCheckpoints::Options options = checkpoints_->options();
  options.rank = 0;
  options.ranks = 1;
  const size_t count = reduction_.map().blocks().size();
  std::vector<PeerCheckpoints::OwnBlock> blocks;
  for (uint32_t id = 0; id < count; ++id) {
    blocks.push_back({.id = id, .local = reduction_.local(id)});
  }
  alone_ = std::make_unique<PeerCheckpoints>(
      std::move(options), &reduction_.updater(), std::move(blocks));
  ShardStateHeader header = HeaderAt(clock, clock == total_clocks_);
  header.set_non_finite(reduction_.found() + found_before_);
  const auto parts = std::make_shared<PartsOfRanks>(1);
  if (fetched.ok()) {
    alone_->Begin(cut_id, clock, std::move(header),
                  [parts](absl::StatusOr<CheckpointWriting::Part> part) {
                    parts->Set(0, std::move(part));
                  });
  } else {
    parts->Set(0, fetched);
  }
  return std::make_unique<PeerCheckpointWriting>(
      cut_id, alone_->options(),
      std::vector<uint32_t>(count, alone_->options().PartOf(0)), parts);
}

absl::Status PeerExchange::LoadStart() {
  constexpr absl::Duration kReportPeriod = absl::Seconds(1);
  const StartFiles& start = *options_.start;
  // Looks, each before some bytes are read: rows of tables, which are passed
  // over, count as well.
  uint64_t looks = 0;
  absl::Time told = MonotonicNow();
  const auto go_on = [&]() -> absl::Status {
    ++looks;
    const absl::Time now = MonotonicNow();
    if (now - told < kReportPeriod) return link_->status();
    told = now;
    return link_->ReportActivity(clock_, "reading the checkpoint, buffers",
                                 looks, looks + 1);
  };
  // Of values at their owners alone the chief holds all: it may read them at a
  // cut before the first step.
  const bool holds_all = !options_.frees_values || link_->rank() == 0;
  if (holds_all) whole_clock_ = clock_;
  const absl::StatusOr<StartFiles::Counts> counts = start.Read(
      reduction_.map(), options_.update.optimizer, go_on,
      [&](const BlockStateReader::Piece& piece) {
        if (piece.array == 0 && holds_all) {
          const Block& block = reduction_.map().blocks()[piece.block];
          float* const to =
              tensors_.values[block.tensor].data() + block.offset + piece.first;
          std::memcpy(to, piece.bytes.data(), piece.bytes.size());
        }
        reduction_.Restore(piece.block, piece.array, piece.first, piece.bytes);
        if (piece.begins && !start.values_only()) {
          reduction_.RestoreUpdates(piece.block, piece.updates);
        }
      });
  if (!counts.ok()) {
    Fail(counts.status());
    return link_->status();
  }
  if (start.values_only()) return absl::OkStatus();
  reduction_.RestoreSkipped(counts->skipped_clocks, counts->skipped_through);
  found_before_ = counts->non_finite;
  SumUpLeftOut();
  return absl::OkStatus();
}

// --- What was skipped ---

// All tell the chief that they have made their last step; the chief tells all
// that all have, and may leave: before that a rank that leaves would end the
// group of those who still need each other. In between the evaluator reads the
// last values, because it may leave then, too.
absl::Status PeerExchange::EndTogether(int64_t clock) {
  const uint64_t own = reduction_.drops_blocks() ? reduction_.found() : 0;
  const auto send = [&](uint32_t rank, uint64_t dropped) {
    *facts_out_[rank] = {.layout_hash = layout_hash_, .dropped = dropped};
    Send(rank, TagOf(kCounts, 0),
         {BytesOfAll(absl::MakeConstSpan(facts_out_[rank].get(), 1))});
  };
  const auto receive = [&](uint32_t rank) {
    Receive(rank, TagOf(kCounts, 0),
            WritableBytesOfAll(absl::MakeSpan(facts_in_[rank].get(), 1)),
            {.kind = kCounts, .from = rank});
  };
  const auto await = [&](size_t count, bool last) -> absl::Status {
    const auto here = [&] {
      MutexLock lock(&mu_);
      return news_.size() == count && sending_.load() == 0;
    };
    const auto missing = [&] {
      return absl::StrCat("the end of the last step, clock ", clock_,
                          ", of other ranks");
    };
    const absl::Status status =
        last ? link_->AwaitLast(here, missing) : link_->Await(here, missing);
    MutexLock lock(&mu_);
    news_.clear();
    return status;
  };
  if (link_->rank() != 0) {
    SYNCLINE_RETURN_IF_ERROR(AwaitPartSent());
    send(0, own);
    receive(0);
    SYNCLINE_RETURN_IF_ERROR(await(1, /*last=*/true));
    dropped_ = facts_in_[0]->dropped;
    return absl::OkStatus();
  }
  const std::vector<uint32_t> others = OtherRanks();
  for (const uint32_t rank : others) receive(rank);
  SYNCLINE_RETURN_IF_ERROR(await(others.size(), /*last=*/false));
  dropped_ = own;
  for (const uint32_t rank : others) dropped_ += facts_in_[rank]->dropped;
  SYNCLINE_RETURN_IF_ERROR(ServeEvaluator(clock));
  for (const uint32_t rank : others) send(rank, dropped_);
  return await(0, /*last=*/true);
}

void PeerExchange::SumUpLeftOut() {
  LeftOut left_out;
  left_out.skipped_clocks = reduction_.skipped_clocks();
  if (reduction_.drops_blocks()) {
    left_out.dropped_blocks =
        found_before_ + dropped_ +
        reduction_.left_out() * reduction_.map().blocks().size();
  }
  MutexLock lock(&mu_);
  left_out_ = left_out;
}

std::optional<ParameterExchange::LeftOut> PeerExchange::left_out() const {
  MutexLock lock(&mu_);
  return left_out_;
}

}  // namespace syncline::worker
