// Goal: a watcher is told what has changed and that nothing has, up to the
// job's final state. Method: watchers that note what they are told, and time.

#include "scheduler/service/job_watchers.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct NotingWatcher final : public JobWatcher {
  void OnStatus(std::shared_ptr<const JobStatus> status) override {
    told.push_back(status->state());
  }
  void OnDrain() override { drained = true; }

  std::vector<JobState> told;
  bool drained = false;
};

class JobWatchersTest : public ::testing::Test {
 protected:
  void Tell(const std::string& job_id, JobState state) {
    auto status = std::make_shared<JobStatus>();
    status->set_job_id(job_id);
    status->set_state(state);
    watchers_.Tell(std::move(status));
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  JobWatchers watchers_;
  const std::shared_ptr<NotingWatcher> first_ =
      std::make_shared<NotingWatcher>();
  const std::shared_ptr<NotingWatcher> second_ =
      std::make_shared<NotingWatcher>();
};

TEST_F(JobWatchersTest, TellsTheWatchersOfOneJobUpToItsEnd) {
  watchers_.Add("j-1", first_);
  watchers_.Add("j-2", second_);
  Tell("j-1", RUNNING);
  Tell("j-1", SUCCEEDED);
  Tell("j-1", SUCCEEDED);
  EXPECT_THAT(first_->told, ElementsAre(RUNNING, SUCCEEDED));
  EXPECT_THAT(second_->told, IsEmpty());
  EXPECT_EQ(first_.use_count(), 1) << "let go of";
}

TEST_F(JobWatchersTest, AWatcherThatIsRemovedIsToldNothing) {
  watchers_.Add("j-1", first_);
  watchers_.Add("j-1", second_);
  watchers_.Remove("j-1", first_.get());
  watchers_.Remove("j-1", first_.get());
  watchers_.Remove("j-2", second_.get());
  Tell("j-1", RUNNING);
  EXPECT_THAT(first_->told, IsEmpty());
  EXPECT_THAT(second_->told, ElementsAre(RUNNING));
}

TEST_F(JobWatchersTest, ChangesAreTakenOnceAndABeatEveryTwoSeconds) {
  watchers_.Add("j-1", first_);
  EXPECT_THAT(watchers_.TakeChanged(now_), ElementsAre("j-1")) << "a beat";
  now_ += absl::Milliseconds(1900);
  EXPECT_THAT(watchers_.TakeChanged(now_), IsEmpty());
  watchers_.MarkChanged("j-2");
  watchers_.MarkChanged("j-1");
  watchers_.MarkChanged("j-1");
  Tell("j-2", RUNNING);
  EXPECT_THAT(watchers_.TakeChanged(now_), ElementsAre("j-1"));
  now_ += absl::Milliseconds(100);
  EXPECT_THAT(watchers_.TakeChanged(now_), ElementsAre("j-1")) << "a beat";
}

TEST_F(JobWatchersTest, ADrainTellsAllAndLetsGo) {
  watchers_.Add("j-1", first_);
  watchers_.Add("j-2", second_);
  watchers_.Drain();
  EXPECT_TRUE(first_->drained);
  EXPECT_TRUE(second_->drained);
  Tell("j-1", RUNNING);
  EXPECT_THAT(first_->told, IsEmpty());
}

}  // namespace
}  // namespace syncline::scheduler
