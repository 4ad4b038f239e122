#include "worker/peers/group_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/system/memory_claim.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline::worker {
namespace {

constexpr uint64_t kSamplesMax = uint64_t{1} << 40;
// Of the text of an error that goes to the members.
constexpr size_t kTextBytesMax = 1023;
// How long members may take to hear of it.
constexpr absl::Duration kFailureTold = absl::Seconds(2);
constexpr absl::Duration kTellPeriodMax = absl::Seconds(5);

// Often enough for whoever waits for the step timeout.
absl::Duration TellPeriod(absl::Duration step_timeout) {
  return std::min(step_timeout / 8, kTellPeriodMax);
}

bool HasGradient(const FactsMessage& facts) {
  return facts.number > 0 && facts.abandoned == 0;
}

}  // namespace

struct GroupExchange::Head {
  uint64_t layout_hash = 0;
  // 0 or 1: no gradient of the clock before was applied; nothing of this group
  // was pushed at it.
  uint64_t skipped = 0;
  uint64_t left_out = 0;
  // Not 0: there are no values, the leader has failed.
  int32_t code = 0;
  uint32_t reserved = 0;
  char text[kTextBytesMax + 1] = {};  // ends with a zero
};

struct GroupExchange::Sums {
  AlignedFloats floats;
  std::shared_ptr<const void> tensors;  // DenseTensors.owner
};

absl::StatusOr<std::unique_ptr<GroupExchange>> GroupExchange::Create(
    const Options& options, BlockMap map, DenseTensors tensors,
    std::shared_ptr<PeerLink> link, const MakeExchange& make_exchange) {
  if (map.shard_count() != link->ranks()) {
    return absl::InvalidArgumentError(absl::StrCat(
        link->label(), ": blocks are placed on ", map.shard_count(),
        " members, the group has ", link->ranks()));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckMemoryFor(
      "gradients of the other members of its group, and their sums",
      static_cast<uint64_t>(MemoryBytes(map, link->rank()))));
  std::vector<Bucket> buckets =
      MakeBuckets(map, tensors.first_use, options.buckets);
  return std::unique_ptr<GroupExchange>(
      new GroupExchange(options, std::move(map), std::move(buckets),
                        std::move(tensors), std::move(link), make_exchange));
}

int64_t GroupExchange::MemoryBytes(const BlockMap& map, uint32_t member) {
  const int64_t own = map.shard_elements(member);
  const int64_t sums = member == 0 ? map.element_count() : own;
  const int64_t others = own * (int64_t{map.shard_count()} - 1);
  return (sums + others) * int64_t{sizeof(float)};
}

GroupExchange::GroupExchange(const Options& options, BlockMap map,
                             std::vector<Bucket> buckets, DenseTensors tensors,
                             std::shared_ptr<PeerLink> link,
                             const MakeExchange& make_exchange)
    : options_(options),
      map_(std::move(map)),
      buckets_(std::move(buckets)),
      tensors_(std::move(tensors)),
      link_(std::move(link)),
      label_(link_->label()),
      layout_hash_(LayoutHash(map_, buckets_, "group")),
      head_(std::make_unique<Head>()) {
  tensor_buckets_.resize(tensors_.values.size());
  bucket_tensors_.resize(buckets_.size());
  own_offsets_.resize(buckets_.size());
  size_t own = 0;
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    for (const uint32_t id : buckets_[b].blocks) {
      std::vector<uint32_t>& of = tensor_buckets_[map_.blocks()[id].tensor];
      if (!of.empty() && of.back() == b) continue;
      of.push_back(b);
      bucket_tensors_[b].push_back(map_.blocks()[id].tensor);
    }
    if (!Owns(b)) continue;
    own_offsets_[b] = own;
    own += AlignedElements(buckets_[b].elements);
  }
  for (uint32_t rank = 0; rank < link_->ranks(); ++rank) {
    gradients_.emplace_back(rank == link_->rank() ? 0 : own);
    facts_in_.push_back(std::make_unique<FactsMessage>());
    facts_out_.push_back(std::make_unique<FactsMessage>());
  }
  if (!leads()) {
    own_sums_ = AlignedFloats(own);
    return;
  }
  // The same in all groups.
  for (uint32_t t = 0; t < tensor_buckets_.size(); ++t) {
    if (!tensor_buckets_[t].empty()) order_.push_back(t);
  }
  std::stable_sort(
      order_.begin(), order_.end(), [this](uint32_t a, uint32_t b) {
        return tensor_buckets_[a].back() < tensor_buckets_[b].back();
      });
  sums_ = std::make_shared<Sums>();
  size_t all = 0;
  for (const auto& values : tensors_.values) {
    all += AlignedElements(values.size());
  }
  sums_->floats = AlignedFloats(all);
  sums_->tensors = tensors_.owner;
  size_t offset = 0;
  for (const auto& values : tensors_.values) {
    sum_tensors_.values.push_back(
        sums_->floats.span().subspan(offset, values.size()));
    offset += AlignedElements(values.size());
  }
  DenseTensors pushed = tensors_;
  pushed.gradients.assign(sum_tensors_.values.begin(),
                          sum_tensors_.values.end());
  pushed.gradient_region = nullptr;  // that is of the leader's own gradients
  pushed.owner = sums_;
  inner_ = make_exchange(std::move(pushed));
  teller_.emplace("group", TellPeriod(link_->step_timeout()),
                  [this] { TellOfWait(); });
}

GroupExchange::~GroupExchange() {
  teller_.reset();
  link_->Close();
}

void GroupExchange::Cancel(const absl::Status& reason) {
  link_->Cancel(reason);
  if (inner_ != nullptr) inner_->Cancel(reason);
}

// --- While the leader waits for the ps ---

template <typename Call>
auto GroupExchange::AtPs(int64_t clock, Call call) {
  const auto set = [&](bool at_ps) {
    MutexLock lock(&report_mu_);
    at_ps_ = at_ps;
    at_ps_clock_ = clock;
  };
  set(!finished_);
  auto result = call();
  set(false);
  return result;
}

void GroupExchange::TellOfWait() {
  MutexLock lock(&report_mu_);
  if (!at_ps_) return;
  ++waits_told_;
  link_
      ->ReportActivity(at_ps_clock_, "waiting for the ps", waits_told_,
                       waits_told_)
      .IgnoreError();
}

absl::Status GroupExchange::OnlyLeader(absl::string_view what) const {
  if (leads()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(label_, ": ", what, " is for the leader of its group, ",
                   link_->group().NameOf(0)));
}

absl::Status GroupExchange::ReportActivity(int64_t clock,
                                           absl::string_view what,
                                           uint64_t done, uint64_t total) {
  if (inner_ != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(inner_->ReportActivity(clock, what, done, total));
  }
  if (finished_) return absl::OkStatus();
  MutexLock lock(&report_mu_);
  return link_->ReportActivity(clock, what, done, total);
}

// --- The state between steps ---

absl::Status GroupExchange::Init(int64_t total_clocks) {
  SYNCLINE_RETURN_IF_ERROR(OnlyLeader("Init"));
  return AtPs(0, [&] { return inner_->Init(total_clocks); });
}

absl::Status GroupExchange::Pull(int64_t clock) {
  clock_ = clock;
  if (!leads()) return ReceiveState(clock, /*with_values=*/true);
  const absl::Status pulled = AtPs(clock, [&] { return inner_->Pull(clock); });
  if (!pulled.ok()) return FailGroup(clock, pulled);
  return SendState(clock, /*with_values=*/true);
}

absl::Status GroupExchange::PullRows(int64_t, uint64_t,
                                     absl::Span<RowBatch* const> rows) {
  if (rows.empty()) return link_->status();
  return absl::UnimplementedError(
      absl::StrCat(label_, ": a job with groups has no tables"));
}

absl::Status GroupExchange::ScanTable(uint32_t, int64_t, uint64_t, int64_t,
                                      RowSink) {
  return absl::UnimplementedError(
      absl::StrCat(label_, ": a job with groups has no tables"));
}

absl::Status GroupExchange::SendState(int64_t clock, bool with_values) {
  *head_ = {.layout_hash = layout_hash_,
            .skipped = inner_->was_skipped(clock - 1) ? 1u : 0u,
            .left_out = left_out_clock_ == clock - 1 ? 1u : 0u};
  SendToOthers(TagAt(clock, kGroupHead, 0),
               {BytesOfAll(absl::MakeConstSpan(head_.get(), 1))});
  // Needed first goes first.
  for (uint32_t b = static_cast<uint32_t>(buckets_.size());
       with_values && b-- > 0;) {
    SendToOthers(TagAt(clock, kGroupValues, b),
                 ValuesOf(map_, buckets_[b], tensors_));
  }
  return AwaitAll([] { return true; },
                  [&] {
                    return absl::StrCat(
                        "members that take the values of clock ", clock);
                  });
}

absl::Status GroupExchange::ReceiveState(int64_t clock, bool with_values) {
  *head_ = Head();
  state_left_ = 1;
  Receive(0, TagAt(clock, kGroupHead, 0),
          WritableBytesOfAll(absl::MakeSpan(head_.get(), 1)),
          {.kind = kGroupHead});
  for (uint32_t b = 0; with_values && b < buckets_.size(); ++b) {
    ++state_left_;
    ReceiveFloats(0, TagAt(clock, kGroupValues, b), &tensors_,
                  {.kind = kGroupValues, .bucket = b});
  }
  SYNCLINE_RETURN_IF_ERROR(AwaitAll(
      [this] { return state_left_ == 0 || !leader_failure_.ok(); },
      [&] {
        return absl::StrCat("the values of clock ", clock, ", of the leader, ",
                            link_->group().NameOf(0), link_->ActivityText(0));
      }));
  if (!leader_failure_.ok()) {
    HearTogether(clock);
    link_->Cancel(leader_failure_);
    return leader_failure_;
  }
  if (head_->skipped != 0) skipped_through_ = clock;
  if (head_->left_out != 0) left_out_clock_ = clock - 1;
  return absl::OkStatus();
}

absl::Status GroupExchange::FailGroup(int64_t clock, const absl::Status& why) {
  if (!absl::IsCancelled(why) && link_->status().ok()) {
    *head_ = {.layout_hash = layout_hash_,
              .code = static_cast<int32_t>(why.code())};
    const size_t length = std::min(why.message().size(), kTextBytesMax);
    std::memcpy(head_->text, why.message().data(), length);
    SendToOthers(TagAt(clock, kGroupHead, 0),
                 {BytesOfAll(absl::MakeConstSpan(head_.get(), 1))});
    HearTogether(clock);
  }
  link_->Cancel(why);
  return why;
}

bool GroupExchange::was_skipped(int64_t clock) const {
  return leads() ? inner_->was_skipped(clock) : skipped_through_ == clock + 1;
}

absl::Status GroupExchange::Meet(int64_t clock, AwaitMembers await) {
  auto here = std::make_shared<std::atomic<uint32_t>>(0);
  const auto receive = [&](uint32_t rank) {
    link_->transport().Receive(
        rank, TagAt(clock, kCounts, 0),
        WritableBytesOfAll(absl::MakeSpan(facts_in_[rank].get(), 1)),
        absl::InfiniteFuture(), [this, here](const absl::Status& status) {
          if (!status.ok()) return;
          link_->Moved();
          ++*here;
        });
  };
  const auto send = [&](uint32_t rank) {
    *facts_out_[rank] = {.layout_hash = layout_hash_};
    Send(rank, TagAt(clock, kCounts, 0),
         {BytesOfAll(absl::MakeConstSpan(facts_out_[rank].get(), 1))});
  };
  const auto all = [&](uint32_t count) {
    return here->load() == count && sending_.load() == 0;
  };
  if (!leads()) {
    receive(0);
    send(0);
    return await([&] { return all(1); }, /*last=*/true);
  }
  const uint32_t others = link_->ranks() - 1;
  for (uint32_t rank = 1; rank <= others; ++rank) receive(rank);
  SYNCLINE_RETURN_IF_ERROR(await([&] { return all(others); }, /*last=*/false));
  for (uint32_t rank = 1; rank <= others; ++rank) send(rank);
  return await([&] { return all(others); }, /*last=*/true);
}

absl::Status GroupExchange::EndTogether(int64_t clock) {
  const auto missing = [&] {
    return absl::StrCat("the end of the last step, before clock ", clock,
                        ", of other members");
  };
  return Meet(clock, [&](absl::FunctionRef<bool()> done, bool last) {
    return last ? link_->AwaitLast(done, missing) : link_->Await(done, missing);
  });
}

void GroupExchange::HearTogether(int64_t clock) {
  PeerTransport& transport = link_->transport();
  const absl::Time end = MonotonicNow() + kFailureTold;
  Meet(clock, [&](absl::FunctionRef<bool()> done, bool) {
    transport.Await([&] { return done() || !transport.status().ok(); }, end);
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status GroupExchange::Leave(int64_t clock) {
  if (leads()) {
    SYNCLINE_RETURN_IF_ERROR(AtPs(clock, [&] { return inner_->Leave(clock); }));
  }
  const absl::Status ended = EndTogether(clock);
  finished_ = ended.ok();
  return ended;
}

// --- Cuts ---

absl::StatusOr<std::vector<int64_t>> GroupExchange::BeginCut(const Cut& cut) {
  SYNCLINE_RETURN_IF_ERROR(OnlyLeader("a cut"));
  if (cut.use == CutUse::kRegime) {
    return absl::UnimplementedError("the regime of a job with groups is fixed");
  }
  return AtPs(clock_, [&] { return inner_->BeginCut(cut); });
}

absl::Status GroupExchange::PullCut(uint64_t cut_id, int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(OnlyLeader("a cut"));
  const absl::Status pulled =
      AtPs(clock, [&] { return inner_->PullCut(cut_id, clock); });
  if (!std::exchange(owes_state_, false)) return pulled;
  if (!pulled.ok()) return FailGroup(clock_, pulled);
  return SendState(clock_, /*with_values=*/true);
}

absl::Status GroupExchange::AwaitCut(uint64_t cut_id, int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(OnlyLeader("a cut"));
  return AtPs(clock, [&] { return inner_->AwaitCut(cut_id, clock); });
}

absl::Status GroupExchange::EndCut(uint64_t cut_id, int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(OnlyLeader("a cut"));
  return AtPs(clock, [&] { return inner_->EndCut(cut_id, clock); });
}

std::unique_ptr<CheckpointWriting> GroupExchange::OpenCheckpoint(
    uint64_t cut_id) {
  return leads() ? inner_->OpenCheckpoint(cut_id) : nullptr;
}

// --- Messages ---

void GroupExchange::Send(uint32_t to, const PeerTag& tag,
                         absl::Span<const ConstPeerMemory> pieces) {
  ++sending_;
  if (tag.kind == kGradient || tag.kind == kGroupSum) {
    for (const ConstPeerMemory& piece : pieces) {
      AddCount(options_.telemetry.pushed_bytes, piece.size);
    }
  }
  link_->transport().Send(to, tag, pieces, absl::InfiniteFuture(),
                          [this](const absl::Status& status) {
                            if (status.ok()) link_->Moved();
                            --sending_;
                            ++news_count_;
                          });
}

void GroupExchange::SendToOthers(const PeerTag& tag,
                                 absl::Span<const ConstPeerMemory> pieces) {
  for (uint32_t i = 1; i < link_->ranks(); ++i) {
    Send((link_->rank() + i) % link_->ranks(), tag, pieces);
  }
}

void GroupExchange::Receive(uint32_t from, const PeerTag& tag,
                            PeerMemory memory, News news) {
  link_->transport().Receive(from, tag, memory, absl::InfiniteFuture(),
                             [this, news](const absl::Status& status) {
                               if (status.ok()) Tell(news);
                             });
}

void GroupExchange::ReceiveFloats(uint32_t from, const PeerTag& tag,
                                  const DenseTensors* tensors, News news) {
  const Bucket& bucket = buckets_[news.bucket];
  link_->transport().ReceivePieces(
      from, tag, bucket.elements * sizeof(float), absl::InfiniteFuture(),
      [this, &bucket, tensors](size_t offset, absl::Span<const uint8_t> bytes) {
        StoreValues(map_, bucket, *tensors, offset, bytes);
      },
      [this, news](const absl::Status& status) {
        if (status.ok()) Tell(news);
      });
}

void GroupExchange::Tell(News news) {
  link_->Moved();
  {
    MutexLock lock(&mu_);
    news_.push_back(news);
  }
  ++news_count_;
}

absl::Status GroupExchange::AwaitAll(absl::FunctionRef<bool()> done,
                                     absl::FunctionRef<std::string()> missing) {
  for (;;) {
    const uint64_t seen = news_count_.load();
    Pump();
    SYNCLINE_RETURN_IF_ERROR(link_->status());
    if (done() && sending_.load() == 0) return absl::OkStatus();
    if (news_count_.load() != seen) continue;
    SYNCLINE_RETURN_IF_ERROR(
        link_->Await([&] { return news_count_.load() != seen; }, missing));
  }
}

void GroupExchange::Pump() {
  std::vector<News> news;
  {
    MutexLock lock(&mu_);
    news.swap(news_);
  }
  for (const News& of : news) Take(of);
}

void GroupExchange::Take(const News& news) {
  switch (news.kind) {
    case kFacts:
      facts_[news.from] = *facts_in_[news.from];
      if (--facts_left_ == 0) Decide();
      return;
    case kGradient:
      return OnDelivered(news.bucket);
    case kGroupSum:
      return OnSum(news.bucket);
    case kGroupHead: {
      --state_left_;
      heard_at_ = MonotonicNow();
      Head& head = *head_;
      head.text[kTextBytesMax] = 0;
      if (head.code != 0) {
        const bool is_known = head.code > 0 && head.code <= 16;
        leader_failure_ = absl::Status(
            is_known ? static_cast<absl::StatusCode>(head.code)
                     : absl::StatusCode::kInternal,
            absl::StrCat(label_, ": the leader of its group, ",
                         link_->group().NameOf(0),
                         ", has failed: ", Printable(std::string(head.text))));
        return;
      }
      if (head.layout_hash == layout_hash_) return;
      return link_->Cancel(absl::InvalidArgumentError(absl::StrCat(
          label_, ": the leader of its group, ", link_->group().NameOf(0),
          ", has other blocks; are all daemons of one version?")));
    }
    case kGroupValues:
      --state_left_;
      AddCount(options_.telemetry.pulled_bytes,
               buckets_[news.bucket].elements * sizeof(float));
      return;
    default:
      return;
  }
}

// --- A step ---

void GroupExchange::BeginStep(const Step& step) {
  SYNCLINE_CHECK(!is_open_ && !owes_state_);
  is_open_ = true;
  step_ = step;
  clock_ = step.clock;
  abandoned_ = false;
  facts_sent_ = false;
  facts_.assign(link_->ranks(), std::nullopt);
  facts_left_ = link_->ranks();
  samples_ = 0;
  givers_ = 0;
  group_abandoned_ = false;
  unfinished_.assign(buckets_.size(), 0);
  for (const auto& of : tensor_buckets_) {
    for (const uint32_t b : of) ++unfinished_[b];
  }
  delivered_.assign(buckets_.size(), 0);
  unfolded_ = 0;
  sums_left_ = 0;
  for (uint32_t rank = 0; rank < link_->ranks(); ++rank) {
    if (rank != link_->rank()) ReceiveFacts(rank);
  }
}

void GroupExchange::PullEarly(absl::Span<RowBatch* const>, int64_t) {}

void GroupExchange::AbandonStep(bool own_values) {
  SYNCLINE_CHECK(is_open_ && !facts_sent_);
  abandoned_ = true;
  if (own_values) AddCount(options_.telemetry.non_finite);
}

void GroupExchange::ReceiveFacts(uint32_t rank) {
  link_->transport().Receive(
      rank, TagAt(clock_, kFacts, 0),
      WritableBytesOfAll(absl::MakeSpan(facts_in_[rank].get(), 1)),
      absl::InfiniteFuture(),
      [this, rank, clock = clock_](const absl::Status& status) {
        if (status.ok()) OnFacts(rank, clock);
      });
}

// The rank's gradients come meanwhile.
void GroupExchange::OnFacts(uint32_t rank, int64_t clock) {
  const FactsMessage& facts = *facts_in_[rank];
  if (facts.layout_hash != layout_hash_ || facts.number > kSamplesMax ||
      facts.abandoned > 1) {
    return link_->Cancel(absl::InvalidArgumentError(absl::StrCat(
        label_, ": ", link_->group().NameOf(rank), " said of clock ", clock,
        " what cannot be: ", facts.number,
        " samples; are all daemons of one version?")));
  }
  for (uint32_t b = 0; HasGradient(facts) && b < buckets_.size(); ++b) {
    if (!Owns(b)) continue;
    PeerMemory memory =
        WritableBytesOfAll(gradients_[rank].span().subspan(own_offsets_[b]));
    memory.size = buckets_[b].elements * sizeof(float);
    Receive(rank, TagAt(clock, kGradient, b), memory,
            {.kind = kGradient, .from = rank, .bucket = b});
  }
  Tell({.kind = kFacts, .from = rank});
}

void GroupExchange::SendFacts() {
  if (std::exchange(facts_sent_, true)) return;
  const FactsMessage own = {.layout_hash = layout_hash_,
                            .number = step_.sample_count,
                            .abandoned = abandoned_ ? 1u : 0u};
  for (uint32_t rank = 0; rank < link_->ranks(); ++rank) {
    if (rank == link_->rank()) continue;
    *facts_out_[rank] = own;
    Send(rank, TagAt(clock_, kFacts, 0),
         {BytesOfAll(absl::MakeConstSpan(facts_out_[rank].get(), 1))});
  }
  facts_[link_->rank()] = own;
  if (--facts_left_ == 0) Decide();
}

void GroupExchange::Decide() {
  for (const std::optional<FactsMessage>& facts : facts_) {
    samples_ += facts->number;
    if (HasGradient(*facts)) ++givers_;
    group_abandoned_ |= facts->abandoned != 0;
  }
  for (uint32_t b = 0; givers_ > 0 && b < buckets_.size(); ++b) {
    if (Owns(b)) ++unfolded_;
  }
  if (leads()) {
    inner_->BeginStep({.clock = clock_,
                       .sample_count = samples_,
                       .finished = step_.finished,
                       .pull = step_.pull});
    inner_open_ = true;
    // The member has counted it.
    if (group_abandoned_) inner_->AbandonStep(/*own_values=*/false);
    handed_ = 0;
    unsummed_.clear();
    for (const auto& of : tensor_buckets_) {
      unsummed_.push_back(static_cast<uint32_t>(of.size()));
    }
    const bool pushes = givers_ > 0 && !group_abandoned_;
    for (uint32_t b = 0; pushes && b < buckets_.size(); ++b) {
      ++sums_left_;
      if (Owns(b)) continue;
      ReceiveFloats(buckets_[b].owner, TagAt(clock_, kGroupSum, b),
                    &sum_tensors_, {.kind = kGroupSum, .bucket = b});
    }
  }
  for (uint32_t b = 0; givers_ > 0 && b < buckets_.size(); ++b) {
    if (Owns(b) && delivered_[b] == givers_) Fold(b);
  }
}

void GroupExchange::OnGradientReady(uint32_t tensor) {
  SYNCLINE_CHECK(is_open_ && step_.sample_count > 0 && !abandoned_);
  SendFacts();
  for (const uint32_t b : tensor_buckets_[tensor]) {
    if (--unfinished_[b] == 0) SendGradient(b);
  }
  Pump();
}

void GroupExchange::SendGradient(uint32_t bucket) {
  if (Owns(bucket)) return OnDelivered(bucket);
  std::vector<absl::Span<const float>> pieces;
  for (const uint32_t id : buckets_[bucket].blocks) {
    const Block& block = map_.blocks()[id];
    pieces.push_back(tensors_.gradients[block.tensor].subspan(
        static_cast<size_t>(block.offset), static_cast<size_t>(block.count)));
  }
  Send(buckets_[bucket].owner, TagAt(clock_, kGradient, bucket),
       Merged(pieces));
}

void GroupExchange::OnDelivered(uint32_t bucket) {
  ++delivered_[bucket];
  if (facts_left_ == 0 && delivered_[bucket] == givers_) Fold(bucket);
}

absl::Span<const float> GroupExchange::GradientOf(uint32_t rank,
                                                  uint32_t bucket,
                                                  size_t index) const {
  const Block& block = map_.blocks()[buckets_[bucket].blocks[index]];
  const auto count = static_cast<size_t>(block.count);
  if (rank == link_->rank()) {
    return tensors_.gradients[block.tensor].subspan(
        static_cast<size_t>(block.offset), count);
  }
  return gradients_[rank].span().subspan(
      own_offsets_[bucket] + buckets_[bucket].offsets[index], count);
}

float* GroupExchange::SumOf(uint32_t bucket, size_t index) {
  if (!leads()) {
    return own_sums_.data() + own_offsets_[bucket] +
           buckets_[bucket].offsets[index];
  }
  const Block& block = map_.blocks()[buckets_[bucket].blocks[index]];
  return sum_tensors_.values[block.tensor].data() + block.offset;
}

void GroupExchange::Fold(uint32_t bucket) {
  --unfolded_;
  if (group_abandoned_) return;
  const Bucket& of = buckets_[bucket];
  for (size_t i = 0; i < of.blocks.size(); ++i) {
    const Block& block = map_.blocks()[of.blocks[i]];
    float* const sum = SumOf(bucket, i);
    bool is_first = true;
    for (uint32_t rank = 0; rank < link_->ranks(); ++rank) {
      if (!HasGradient(*facts_[rank])) continue;
      const absl::Span<const float> gradient = GradientOf(rank, bucket, i);
      if (std::exchange(is_first, false)) {
        std::copy(gradient.begin(), gradient.end(), sum);
      } else {
        AddTo(gradient.data(), sum, gradient.size());
      }
    }
    // A sum that fails the job goes to nobody.
    if (!CheckFinite(bucket, {sum, static_cast<size_t>(block.count)}, block,
                     i)) {
      return;
    }
  }
  if (leads()) return OnSum(bucket);
  const absl::Span<const float> sum(own_sums_.data() + own_offsets_[bucket],
                                    of.elements);
  Send(0, TagAt(clock_, kGroupSum, bucket), {BytesOfAll(sum)});
}

bool GroupExchange::CheckFinite(uint32_t bucket, absl::Span<const float> sum,
                                const Block& block, size_t index) {
  if (options_.on_non_finite != OnNonFinite::kFailJob) return true;
  if (AllFinite(sum.data(), sum.size())) return true;
  std::string whose = "the sum over the members of its group";
  absl::Span<const float> bad = sum;
  for (uint32_t rank = 0; rank < link_->ranks(); ++rank) {
    if (!HasGradient(*facts_[rank])) continue;
    const absl::Span<const float> gradient = GradientOf(rank, bucket, index);
    if (AllFinite(gradient.data(), gradient.size())) continue;
    whose = link_->group().NameOf(rank);
    bad = gradient;
    break;
  }
  const size_t at = FirstNonFinite(bad.data(), bad.size());
  link_->Cancel(absl::FailedPreconditionError(absl::StrCat(
      label_, ": the gradient of clock ", clock_, " is not finite: element ",
      block.offset + static_cast<int64_t>(at), " of '",
      tensors_.names.empty() ? absl::StrCat(block.tensor)
                             : tensors_.names[block.tensor],
      "' is ", bad[at], " of ", whose)));
  return false;
}

void GroupExchange::OnSum(uint32_t bucket) {
  --sums_left_;
  for (const uint32_t tensor : bucket_tensors_[bucket]) --unsummed_[tensor];
  // An answer of the ps may wait for the same tensor of another group, and the
  // next push for room: if groups had different orders, they could wait for
  // each other.
  for (; handed_ < order_.size() && unsummed_[order_[handed_]] == 0;
       ++handed_) {
    inner_->OnGradientReady(order_[handed_]);
  }
}

void GroupExchange::EndBackward(absl::Span<RowBatch* const>) {
  SYNCLINE_CHECK(is_open_);
  SendFacts();
  Pump();
}

bool GroupExchange::Reduced() const {
  return facts_left_ == 0 && unfolded_ == 0 && sums_left_ == 0;
}

std::string GroupExchange::MissingText() const {
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < link_->ranks(); ++rank) {
    if (rank == link_->rank()) continue;
    // Where all have said what they have, gradients or sums of some are on
    // their way.
    if (facts_left_ > 0 && facts_[rank].has_value()) continue;
    names.push_back(
        absl::StrCat(link_->group().NameOf(rank), link_->ActivityText(rank)));
  }
  return absl::StrCat("clock ", clock_, ", gradients of ",
                      absl::StrJoin(names, "; "));
}

absl::Status GroupExchange::Wait() {
  SYNCLINE_CHECK(is_open_ && facts_sent_);
  const absl::Status status = leads() ? WaitAsLeader() : WaitAsMember();
  is_open_ = false;
  finished_ = status.ok() && step_.finished;
  ++clock_;
  return status;
}

absl::Status GroupExchange::WaitAsLeader() {
  const absl::Time begin = MonotonicNow();
  const absl::Status reduced =
      AwaitAll([this] { return Reduced(); }, [this] { return MissingText(); });
  const absl::Duration waited = MonotonicNow() - begin;
  if (!reduced.ok()) {
    // No call of it uses the tensors any more when this returns.
    inner_->Cancel(reduced);
    if (std::exchange(inner_open_, false)) inner_->Wait().IgnoreError();
    return reduced;
  }
  const absl::Status pushed = AtPs(clock_, [this] {
    inner_->EndBackward({});
    return inner_->Wait();
  });
  inner_open_ = false;
  const int64_t next = clock_ + 1;
  if (!pushed.ok()) return FailGroup(next, pushed);
  if (inner_->step_abandoned()) left_out_clock_ = clock_;
  const WaitTimes at_ps = inner_->wait_times();
  wait_times_ = {.push = at_ps.push, .wait = waited + at_ps.wait, .pull = {}};
  if (step_.pull || step_.finished) {
    SYNCLINE_RETURN_IF_ERROR(SendState(next, step_.pull));
  } else {
    owes_state_ = true;  // a cut is read in place of it
  }
  wait_times_.pull =
      MonotonicNow() - begin - wait_times_.push - wait_times_.wait;
  return step_.finished ? EndTogether(next) : absl::OkStatus();
}

absl::Status GroupExchange::WaitAsMember() {
  const absl::Time begin = MonotonicNow();
  SYNCLINE_RETURN_IF_ERROR(
      AwaitAll([this] { return Reduced(); }, [this] { return MissingText(); }));
  const absl::Time left = MonotonicNow();
  heard_at_ = left;
  SYNCLINE_RETURN_IF_ERROR(ReceiveState(clock_ + 1, step_.pull));
  wait_times_ = {.push = left - begin,
                 .wait = heard_at_ - left,
                 .pull = MonotonicNow() - heard_at_};
  return step_.finished ? EndTogether(clock_ + 1) : absl::OkStatus();
}

}  // namespace syncline::worker
