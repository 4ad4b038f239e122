#include "scheduler/core/job/evaluation_history.h"

#include <tuple>
#include <utility>

namespace syncline::scheduler {

bool IsNewEvaluation(const Evaluation& evaluation, const JobStatus& job) {
  if (job.evaluations().empty()) return true;
  const Evaluation& last = *job.evaluations().rbegin();
  return std::tuple(last.epoch(), last.clock(), last.final()) <
         std::tuple(evaluation.epoch(), evaluation.clock(), evaluation.final());
}

void AddEvaluation(Evaluation evaluation, JobStatus* job) {
  auto* const evaluations = job->mutable_evaluations();
  if (evaluations->size() >= kEvaluationsMax) {
    int kept = 0;
    for (int i = 0; i < evaluations->size(); i += 2) {
      evaluations->SwapElements(kept++, i);
    }
    evaluations->DeleteSubrange(kept, evaluations->size() - kept);
  }
  *evaluations->Add() = std::move(evaluation);
}

void ForgetEvaluations(int64_t clock, JobStatus* job) {
  auto* const all = job->mutable_evaluations();
  all->erase(std::remove_if(all->begin(), all->end(),
                            [=](const Evaluation& evaluation) {
                              return evaluation.clock() > clock ||
                                     evaluation.final();
                            }),
             all->end());
}

bool ForgetBest(JobStatus* job) {
  bool had_best = false;
  for (Evaluation& evaluation : *job->mutable_evaluations()) {
    had_best |= evaluation.best();
    evaluation.clear_best();
  }
  return had_best;
}

}  // namespace syncline::scheduler
