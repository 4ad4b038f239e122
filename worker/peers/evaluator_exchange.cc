#include "worker/peers/evaluator_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace syncline::worker {
namespace {

constexpr uint32_t kChief = 0;

}  // namespace

EvaluatorExchange::EvaluatorExchange(BlockMap map, const BucketSizes& sizes,
                                     DenseTensors tensors,
                                     std::shared_ptr<PeerLink> link)
    : map_(std::move(map)),
      buckets_(MakeBuckets(map_, tensors.first_use, sizes)),
      layout_hash_(LayoutHash(map_, buckets_, "")),
      tensors_(std::move(tensors)),
      link_(std::move(link)) {}

EvaluatorExchange::~EvaluatorExchange() {
  // Its callbacks use this.
  link_->Close();
}

absl::Status EvaluatorExchange::Init(int64_t /*total_clocks*/) {
  return absl::FailedPreconditionError(
      absl::StrCat(link_->label(), ": an evaluator makes no values"));
}

// Values come with the first cut.
absl::Status EvaluatorExchange::Pull(int64_t /*clock*/) {
  return link_->status();
}

absl::Status EvaluatorExchange::PullRows(int64_t, uint64_t,
                                         absl::Span<RowBatch* const> rows) {
  if (rows.empty()) return link_->status();
  return absl::UnimplementedError(
      absl::StrCat(link_->label(), ": a job without ps has no tables"));
}

absl::Status EvaluatorExchange::ReportActivity(int64_t clock,
                                               absl::string_view what,
                                               uint64_t done, uint64_t total) {
  if (finished_) return absl::OkStatus();
  return link_->ReportActivity(clock, what, done, total);
}

absl::StatusOr<std::vector<int64_t>> EvaluatorExchange::BeginCut(
    const Cut& cut) {
  SYNCLINE_RETURN_IF_ERROR(link_->status());
  next_ = 0;
  for (const int64_t asked : cut.clocks) next_ = std::max(next_, asked);
  return std::vector<int64_t>(link_->ranks(), next_);
}

absl::Status EvaluatorExchange::PullCut(uint64_t /*cut_id*/, int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(link_->status());
  left_ = buckets_.size() + 1;
  const auto received = [this](const absl::Status& status) {
    if (!status.ok()) return;
    link_->Moved();
    --left_;
  };
  PeerTransport& transport = link_->transport();
  transport.Receive(kChief, {.clock = clock, .kind = kCutHead, .item = 0},
                    WritableBytesOfAll(absl::MakeSpan(&head_, 1)),
                    absl::InfiniteFuture(), received);
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    transport.ReceivePieces(
        kChief, {.clock = clock, .kind = kCutValues, .item = b},
        buckets_[b].elements * sizeof(float), absl::InfiniteFuture(),
        [this, b](size_t offset, absl::Span<const uint8_t> bytes) {
          StoreValues(map_, buckets_[b], tensors_, offset, bytes);
        },
        received);
  }
  SYNCLINE_RETURN_IF_ERROR(
      link_->Await([this] { return left_.load() == 0; },
                   [&] {
                     return absl::StrCat("the values at clock ", clock, ", of ",
                                         link_->group().NameOf(kChief),
                                         link_->ActivityText(kChief));
                   }));
  if (head_.layout_hash != layout_hash_) {
    link_->Cancel(absl::InvalidArgumentError(
        absl::StrCat(link_->label(), ": ", link_->group().NameOf(kChief),
                     " has other blocks; are all daemons of one version?")));
    return link_->status();
  }
  if (static_cast<uint64_t>(clock) != head_.number) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(SayRead(clock, /*next=*/0));
  finished_ = true;
  return absl::OkStatus();
}

absl::Status EvaluatorExchange::ScanTable(uint32_t, int64_t, uint64_t, int64_t,
                                          RowSink) {
  return absl::UnimplementedError(
      absl::StrCat(link_->label(), ": a job without ps has no tables"));
}

absl::Status EvaluatorExchange::EndCut(uint64_t /*cut_id*/, int64_t clock) {
  return SayRead(clock, std::exchange(next_, 0));
}

absl::Status EvaluatorExchange::SayRead(int64_t clock, int64_t next) {
  SYNCLINE_RETURN_IF_ERROR(link_->status());
  read_ = {.layout_hash = layout_hash_, .number = static_cast<uint64_t>(next)};
  left_ = 1;
  link_->transport().Send(kChief, {.clock = clock, .kind = kCutRead, .item = 0},
                          {BytesOfAll(absl::MakeConstSpan(&read_, 1))},
                          absl::InfiniteFuture(),
                          [this](const absl::Status& status) {
                            if (status.ok()) --left_;
                          });
  return link_->Await([this] { return left_.load() == 0; },
                      [&] {
                        return absl::StrCat(link_->group().NameOf(kChief),
                                            ", which is to hear that the "
                                            "values of clock ",
                                            clock, " were read");
                      });
}

void EvaluatorExchange::BeginStep(const Step& /*step*/) {
  SYNCLINE_CHECK(false);  // an evaluator trains nothing
}

absl::Status EvaluatorExchange::Wait() {
  return absl::FailedPreconditionError(
      absl::StrCat(link_->label(), ": an evaluator makes no step"));
}

}  // namespace syncline::worker
