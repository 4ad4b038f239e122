// Goal: a worker that takes longer than the step timeout over something else
// than a step, and says so, is waited for; one that stops saying so is named.
// The same of an evaluator that holds the workers at a cut. Method: a real ps
// in this process; the waiting worker is a client with a short step timeout,
// the busy one says what the test lets it say.

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/test_metrics.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"
#include "worker/client/ps_client.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A busy host answers within an eighth of it.
constexpr absl::Duration kStepTimeout = absl::Seconds(4);
// Of attempts, each half of the timeout: for the two ps, one and a half times
// the timeout.
constexpr int kRepeatsPastTheTimeout = 6;
constexpr absl::Duration kTestPatience = absl::Seconds(60);

class BusyWorkerTest : public ::testing::TestWithParam<ConsistencySpec::Mode> {
 protected:
  // In both modes rank 1 waits in its first step for rank 0's.
  BusyWorkerTest()
      : fixture_({.ps_count = 2,
                  .workers = 2,
                  .evaluator = true,
                  .spec = [](JobSpec* spec) {
                    spec->mutable_consistency()->set_mode(GetParam());
                  }}) {
    for (const int64_t size : PsFixture::Options().tensor_sizes) {
      sizes_.push_back(static_cast<size_t>(size));
    }
  }

  std::unique_ptr<worker::PsClient> MakeClient(uint32_t rank) {
    worker::PsClient::Options options;
    options.job_id = fixture_.assignment().job_id();
    options.rank = rank;
    options.incarnation = 100 + rank;
    options.pass = kTestPass;
    options.step_timeout = kStepTimeout;
    options.telemetry.retries = rank == 1 ? &repeats_ : nullptr;
    worker::DenseTensors tensors;
    for (const size_t size : sizes_) {
      memory_.push_back(std::make_unique<std::vector<float>>(size, 1.0f));
      tensors.values.push_back(absl::MakeSpan(*memory_.back()));
      tensors.gradients.push_back(*memory_.back());
    }
    for (uint32_t ps = 0; ps < fixture_.ps_count(); ++ps) {
      options.ps.push_back({absl::StrCat("ps:", ps), fixture_.address(ps)});
    }
    return std::make_unique<worker::PsClient>(options, fixture_.map(),
                                              std::move(tensors));
  }
  absl::Status Step(worker::PsClient* client) {
    client->BeginStep({.clock = 0, .sample_count = 4});
    for (uint32_t tensor = 0; tensor < sizes_.size(); ++tensor) {
      client->OnGradientReady(tensor);
    }
    client->EndBackward({});
    return client->Wait();
  }

  PsFixture fixture_;
  std::vector<size_t> sizes_;
  std::vector<std::unique_ptr<std::vector<float>>> memory_;
  testing::TestCounter repeats_;
};

TEST_P(BusyWorkerTest, IsWaitedForAsLongAsItSaysMore) {
  const auto chief = MakeClient(0);
  const auto other = MakeClient(1);
  ASSERT_OK(chief->Init(10));
  absl::Status waited;
  std::atomic<bool> ended{false};
  std::thread waiting([&] {
    waited = Step(other.get());
    ended = true;
  });
  uint64_t done = 0;
  EXPECT_TRUE(Eventually(kTestPatience, [&] {
    const absl::Status told =
        chief->ReportActivity(0, "evaluating", done++, 1'000'000);
    EXPECT_OK(told);
    return repeats_.value() >= kRepeatsPastTheTimeout || !told.ok() || ended;
  }));
  EXPECT_FALSE(ended);
  EXPECT_OK(Step(chief.get()));
  waiting.join();
  EXPECT_OK(waited);
}

TEST_P(BusyWorkerTest, ThatHangsIsNamedWithWhatItWasDoing) {
  const auto chief = MakeClient(0);
  const auto other = MakeClient(1);
  ASSERT_OK(chief->Init(10));
  ASSERT_OK(chief->ReportActivity(0, "evaluating", 3, 10));
  std::atomic<bool> ended{false};
  absl::Status waited;
  std::thread waiting([&] {
    waited = Step(other.get());
    ended = true;
  });
  // Saying the same again and again is hanging.
  EXPECT_TRUE(Eventually(kTestPatience, [&] {
    EXPECT_OK(chief->ReportActivity(0, "evaluating", 3, 10));
    return ended.load();
  }));
  waiting.join();
  EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(waited.message()),
              AllOf(HasSubstr("missing: worker:0 at 10.0.0.0:1 (clock 0"),
                    HasSubstr("last heard of evaluating, 3 of 10")));
}

// All are held at the cut before their first step.
class BusyEvaluatorTest : public BusyWorkerTest {
 protected:
  static constexpr uint64_t kCut = 1;

  void Hold(worker::PsClient* chief, worker::PsClient* evaluator) {
    ASSERT_OK(
        chief->BeginCut({.id = kCut, .clocks = {0, 0}, .hold = absl::Hours(1)})
            .status());
    ASSERT_OK(chief->Init(10));
    ASSERT_OK(evaluator->PullCut(kCut, 0));
  }
};

TEST_P(BusyEvaluatorTest, IsWaitedForAtACutAsLongAsItSaysMore) {
  const auto chief = MakeClient(0);
  const auto other = MakeClient(1);
  const auto evaluator = MakeClient(2);
  Hold(chief.get(), evaluator.get());
  absl::Status waited[2];
  std::thread waiting_chief([&] { waited[0] = Step(chief.get()); });
  std::atomic<bool> ended{false};
  std::thread waiting_other([&] {
    waited[1] = Step(other.get());
    ended = true;
  });
  uint64_t done = 0;
  EXPECT_TRUE(Eventually(kTestPatience, [&] {
    const absl::Status told =
        evaluator->ReportActivity(0, "evaluating clock 0", done++, 1'000'000);
    EXPECT_OK(told);
    return repeats_.value() >= kRepeatsPastTheTimeout || !told.ok() || ended;
  }));
  EXPECT_FALSE(ended);
  EXPECT_OK(evaluator->EndCut(kCut, 0));
  waiting_chief.join();
  waiting_other.join();
  EXPECT_OK(waited[0]);
  EXPECT_OK(waited[1]);
}

TEST_P(BusyEvaluatorTest, ThatHangsIsNamedWithWhatItWasDoing) {
  const auto chief = MakeClient(0);
  const auto other = MakeClient(1);
  const auto evaluator = MakeClient(2);
  Hold(chief.get(), evaluator.get());
  ASSERT_OK(evaluator->ReportActivity(0, "evaluating clock 0", 3, 10));
  const absl::Status waited = Step(other.get());
  EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(waited.message()),
              AllOf(HasSubstr("the end of the epoch cut at clock 0 by "
                              "evaluator:0 at 10.0.0.2:1"),
                    HasSubstr("last heard of evaluating clock 0, 3 of 10")));
}

INSTANTIATE_TEST_SUITE_P(Modes, BusyEvaluatorTest,
                         ::testing::Values(ConsistencySpec::SYNC,
                                           ConsistencySpec::BOUNDED_STALENESS),
                         [](const auto& mode) {
                           return ConsistencySpec::Mode_Name(mode.param);
                         });
INSTANTIATE_TEST_SUITE_P(Modes, BusyWorkerTest,
                         ::testing::Values(ConsistencySpec::SYNC,
                                           ConsistencySpec::BOUNDED_STALENESS),
                         [](const auto& mode) {
                           return ConsistencySpec::Mode_Name(mode.param);
                         });

}  // namespace
}  // namespace syncline
