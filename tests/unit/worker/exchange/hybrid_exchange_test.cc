// Goal: of a HYBRID job tensors go to the one exchange and rows to the other,
// each once, and what both take part in is done by both in the right order; an
// error of one ends the other. Method: two exchanges that write down their
// calls.

#include "worker/exchange/hybrid_exchange.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/idle_exchange.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "dense Wait", "rows EndBackward".
using Log = std::vector<std::string>;

class ExchangePart final : public IdleExchange {
 public:
  ExchangePart(std::string name, Log* log)
      : name_(std::move(name)), log_(*log) {}

  void Cancel(const absl::Status& reason) override {
    Note(absl::StrCat("Cancel ", reason.message())).IgnoreError();
  }
  absl::Status Init(int64_t clocks) override {
    return Note(absl::StrCat("Init ", clocks));
  }
  absl::Status Pull(int64_t clock) override {
    return Note(absl::StrCat("Pull ", clock));
  }
  absl::Status PullRows(int64_t, uint64_t,
                        absl::Span<RowBatch* const>) override {
    return Note("PullRows");
  }
  absl::Status ReportActivity(int64_t, absl::string_view, uint64_t,
                              uint64_t) override {
    return Note("ReportActivity");
  }
  absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) override {
    const absl::Status begun = Note(
        absl::StrCat("BeginCut ", cut.id, " ", absl::StrJoin(cut.clocks, ",")));
    if (!begun.ok()) return begun;
    return cut_clocks.empty() ? cut.clocks : cut_clocks;
  }
  absl::Status PullCut(uint64_t, int64_t) override { return Note("PullCut"); }
  absl::Status ScanTable(uint32_t, int64_t, uint64_t, int64_t,
                         RowSink) override {
    return Note("ScanTable");
  }
  absl::Status EndCut(uint64_t, int64_t) override { return Note("EndCut"); }
  void BeginStep(const Step& step) override {
    Note(absl::StrCat("BeginStep ", step.clock, " ", step.sample_count, " ",
                      step.finished, " ", step.pull, " rows ",
                      step.rows.size()))
        .IgnoreError();
  }
  void PullEarly(absl::Span<RowBatch* const> rows, int64_t min) override {
    Note(absl::StrCat("PullEarly ", rows.size(), " ", min)).IgnoreError();
  }
  void AbandonStep(bool own_values) override {
    Note(absl::StrCat("AbandonStep ", own_values)).IgnoreError();
  }
  void OnGradientReady(uint32_t tensor) override {
    Note(absl::StrCat("OnGradientReady ", tensor)).IgnoreError();
  }
  void EndBackward(absl::Span<RowBatch* const> rows) override {
    Note(absl::StrCat("EndBackward ", rows.size())).IgnoreError();
  }
  absl::Status Wait() override { return Note("Wait"); }
  WaitTimes wait_times() const override {
    return {absl::Seconds(1), absl::Seconds(2), absl::Seconds(3)};
  }
  absl::Status Leave(int64_t) override { return Note("Leave"); }
  absl::Status AwaitCut(uint64_t id, int64_t) override {
    return Note(absl::StrCat("AwaitCut ", id));
  }
  std::unique_ptr<CheckpointWriting> OpenCheckpoint(uint64_t id) override;

  std::string refused;              // a call that fails
  std::vector<int64_t> cut_clocks;  // that BeginCut agrees on; empty: as asked
  std::string parts_refused;        // by CheckpointWriting
  bool writes = true;

 private:
  friend class PartWriting;
  absl::Status Note(const std::string& call) {
    log_.push_back(absl::StrCat(name_, " ", call));
    if (refused.empty() || call.rfind(refused, 0) != 0) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(name_, " is lost"));
  }

  const std::string name_;
  Log& log_;
};

// Its parts are named like its exchange; its cut's own id is 100 more.
class PartWriting final : public CheckpointWriting {
 public:
  PartWriting(uint64_t id, ExchangePart* part) : id_(id), part_(*part) {}
  uint64_t cut_id() const override { return id_ + 100; }
  absl::StatusOr<std::vector<Part>> AwaitParts() override;
  absl::StatusOr<Whole> Commit(const std::string& manifest) override {
    part_.log_.push_back(absl::StrCat(part_.name_, " Commit ", manifest));
    return Whole{.path = part_.name_, .deleted = {}};
  }
  void Cancel() override { part_.log_.push_back(part_.name_ + " Cancel"); }
  std::vector<uint32_t> block_shards() const override {
    return part_.name_ == "dense" ? std::vector<uint32_t>{2, 3}
                                  : std::vector<uint32_t>();
  }

 private:
  const uint64_t id_;
  ExchangePart& part_;
};

absl::StatusOr<std::vector<CheckpointWriting::Part>> PartWriting::AwaitParts() {
  part_.log_.push_back(part_.name_ + " AwaitParts");
  if (!part_.parts_refused.empty()) {
    return absl::UnavailableError(part_.parts_refused);
  }
  return std::vector<Part>{{.file = part_.name_ + "-0"},
                           {.file = part_.name_ + "-1"}};
}

std::unique_ptr<CheckpointWriting> ExchangePart::OpenCheckpoint(uint64_t id) {
  Note(absl::StrCat("OpenCheckpoint ", id)).IgnoreError();
  if (!writes) return nullptr;
  return std::make_unique<PartWriting>(id, this);
}

class HybridExchangeTest : public ::testing::Test {
 protected:
  HybridExchangeTest() {
    auto dense = std::make_unique<ExchangePart>("dense", &log_);
    auto rows = std::make_unique<ExchangePart>("rows", &log_);
    dense_ = dense.get();
    rows_ = rows.get();
    exchange_ =
        std::make_unique<HybridExchange>(std::move(dense), std::move(rows));
  }
  Log Taken() { return std::exchange(log_, {}); }

  Log log_;
  ExchangePart* dense_ = nullptr;
  ExchangePart* rows_ = nullptr;
  std::unique_ptr<HybridExchange> exchange_;
  std::vector<RowBatch*> batches_ = {nullptr, nullptr};
};

TEST_F(HybridExchangeTest, EachPartOfAStepGoesItsWayOnce) {
  exchange_->BeginStep({.clock = 7,
                        .sample_count = 5,
                        .finished = true,
                        .pull = false,
                        .rows = absl::MakeSpan(batches_)});
  exchange_->PullEarly(absl::MakeSpan(batches_), 6);
  exchange_->OnGradientReady(1);
  exchange_->OnGradientReady(0);
  exchange_->EndBackward(absl::MakeSpan(batches_));
  EXPECT_OK(exchange_->Wait());
  EXPECT_THAT(Taken(),
              ElementsAre("dense BeginStep 7 5 1 0 rows 0",
                          "rows BeginStep 7 5 1 0 rows 2", "rows PullEarly 2 6",
                          "dense OnGradientReady 1", "dense OnGradientReady 0",
                          // Under way while the dense part is reduced.
                          "rows EndBackward 2", "dense EndBackward 0",
                          "dense Wait", "rows Wait"));
  EXPECT_EQ(exchange_->wait_times().wait, absl::Seconds(4));
}

TEST_F(HybridExchangeTest, RowsAreReadAndScannedAtThePs) {
  EXPECT_OK(exchange_->PullRows(3, 0, {}));
  EXPECT_OK(exchange_->ScanTable(0, 4, 9, 3,
                                 [](auto, auto) { return absl::OkStatus(); }));
  EXPECT_THAT(Taken(), ElementsAre("rows PullRows", "rows ScanTable"));
}

TEST_F(HybridExchangeTest, BothBeginAndHearOfActivity) {
  EXPECT_OK(exchange_->Init(20));
  EXPECT_OK(exchange_->Pull(0));
  EXPECT_OK(exchange_->ReportActivity(1, "evaluating", 1, 2));
  EXPECT_OK(exchange_->Leave(20));
  EXPECT_THAT(Taken(),
              ElementsAre("rows Init 20", "dense Init 20", "dense Pull 0",
                          "rows Pull 0", "dense ReportActivity",
                          "rows ReportActivity", "dense Leave", "rows Leave"));
}

TEST_F(HybridExchangeTest, AStepWithoutAGradientIsCountedOnce) {
  exchange_->AbandonStep(/*own_values=*/true);
  EXPECT_THAT(Taken(),
              ElementsAre("dense AbandonStep 1", "rows AbandonStep 0"));
}

TEST_F(HybridExchangeTest, ACutIsOneOfBoth) {
  const auto agreed = exchange_->BeginCut({.id = 3, .clocks = {5, 5}});
  ASSERT_OK(agreed.status());
  EXPECT_THAT(*agreed, ElementsAre(5, 5));
  EXPECT_OK(exchange_->PullCut(3, 5));
  EXPECT_OK(exchange_->EndCut(3, 5));
  EXPECT_THAT(Taken(),
              ElementsAre("rows BeginCut 3 5,5", "dense BeginCut 3 5,5",
                          "dense PullCut", "rows PullCut", "dense EndCut",
                          "rows EndCut"));
  // The ps have raised it for all.
  rows_->cut_clocks = {6, 6};
  EXPECT_THAT(*exchange_->BeginCut({.id = 4, .clocks = {5, 5}}),
              ElementsAre(6, 6));
  EXPECT_THAT(Taken(),
              ElementsAre("rows BeginCut 4 5,5", "dense BeginCut 4 6,6"));
}

TEST_F(HybridExchangeTest, ACutAtUnequalClocksIsNotToBeHad) {
  rows_->cut_clocks = {6, 7};
  dense_->cut_clocks = {7, 7};
  const auto cut = exchange_->BeginCut({.id = 4, .clocks = {5, 5}});
  EXPECT_EQ(cut.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(cut.status().message()),
              ::testing::HasSubstr("at clocks 6,7"));
  EXPECT_THAT(Taken(),
              ElementsAre("rows BeginCut 4 5,5", "dense BeginCut 4 6,7",
                          "dense EndCut", "rows EndCut"))
      << "no rank is held for it";
  dense_->refused = "BeginCut";
  EXPECT_FALSE(exchange_->BeginCut({.id = 5, .clocks = {8, 8}}).ok());
  EXPECT_THAT(Taken(), ElementsAre("rows BeginCut 5 8,8",
                                   "dense BeginCut 5 6,7", "rows EndCut"));
}

// The folder has the ps' name of the cut.
TEST_F(HybridExchangeTest, ACheckpointIsOneOfBoth) {
  ASSERT_OK(
      exchange_
          ->BeginCut({.id = 3, .use = CutUse::kCheckpoint, .clocks = {5, 5}})
          .status());
  EXPECT_OK(exchange_->AwaitCut(3, 5));
  const auto writing = exchange_->OpenCheckpoint(3);
  EXPECT_OK(exchange_->EndCut(3, 5));
  EXPECT_THAT(
      Taken(),
      ElementsAre("rows BeginCut 3 5,5", "rows OpenCheckpoint 3",
                  "dense BeginCut 103 5,5", "dense AwaitCut 103",
                  "rows AwaitCut 3", "rows OpenCheckpoint 3",
                  "dense OpenCheckpoint 103", "dense EndCut", "rows EndCut"));
  ASSERT_NE(writing, nullptr);
  EXPECT_EQ(writing->cut_id(), 103u);
  EXPECT_THAT(writing->block_shards(), ElementsAre(2, 3));
  const auto parts = writing->AwaitParts();
  ASSERT_OK(parts.status());
  ASSERT_EQ(parts->size(), 4u);
  EXPECT_EQ((*parts)[1].file, "rows-1");
  EXPECT_EQ((*parts)[2].file, "dense-0");
  EXPECT_EQ(writing->Commit("m")->path, "rows");
  writing->Cancel();
  EXPECT_THAT(Taken(),
              ElementsAre("rows AwaitParts", "dense AwaitParts",
                          "rows Commit m", "rows Cancel", "dense Cancel"));
  // Both are waited for, also where one has failed.
  for (ExchangePart* const failed : {rows_, dense_}) {
    failed->parts_refused = "a full disk";
    EXPECT_EQ(writing->AwaitParts().status().message(), "a full disk");
    EXPECT_THAT(Taken(), ElementsAre("rows AwaitParts", "dense AwaitParts"));
    failed->parts_refused = "";
  }
  dense_->writes = false;
  EXPECT_EQ(exchange_->OpenCheckpoint(3), nullptr);
}

TEST_F(HybridExchangeTest, TheRegimeIsFixed) {
  EXPECT_EQ(
      exchange_->BeginCut({.id = 3, .use = CutUse::kRegime, .clocks = {5}})
          .status()
          .code(),
      absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Taken(), IsEmpty());
}

TEST_F(HybridExchangeTest, AnErrorOfOneEndsTheOther) {
  dense_->refused = "Wait";
  EXPECT_EQ(exchange_->Wait().message(), "dense is lost");
  EXPECT_THAT(Taken(), ElementsAre("dense Wait", "rows Cancel dense is lost",
                                   "rows Wait"))
      << "the rows' memory is the caller's again";
  dense_->refused = "";
  rows_->refused = "Wait";
  EXPECT_EQ(exchange_->Wait().message(), "rows is lost");
  EXPECT_THAT(Taken(), ElementsAre("dense Wait", "rows Wait",
                                   "dense Cancel rows is lost"));
  exchange_->Cancel(absl::CancelledError("stopped"));
  EXPECT_THAT(Taken(),
              ElementsAre("dense Cancel stopped", "rows Cancel stopped"));
}

}  // namespace
}  // namespace syncline::worker
