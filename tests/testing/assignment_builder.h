#ifndef SYNCLINE_TESTS_TESTING_ASSIGNMENT_BUILDER_H_
#define SYNCLINE_TESTS_TESTING_ASSIGNMENT_BUILDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_pass.h"
#include "common/job/job_spec_validator.h"
#include "common/regime/job_regimes.h"
#include "common/wire/table_map.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Incarnations of the members: these, plus the rank.
inline constexpr uint64_t kTestWorkerIncarnation = 100;
inline constexpr uint64_t kTestPsIncarnation = 500;
// The pass that they show.
inline const JobPass kTestPass = {.attempt = 1, .secret = "0123456789abcdef"};

// For jobs without a model: SGD at rate 1, so an update subtracts the gradient.
inline JobSpec PlainSgdJob() {
  JobSpec spec;
  spec.mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  spec.mutable_learning_rate()->set_base(1);
  return spec;
}

// A job as the scheduler assigns it, with made-up members:
//
//   const JobAssignment job =
//       AssignmentBuilder(spec).Parameter("w", {4}).Workers(2).Ps(1).Build();
//
// Ranks follow the order of the calls. Thread-compatible.
class AssignmentBuilder {
 public:
  // `spec` gets its defaults.
  explicit AssignmentBuilder(const JobSpec& spec,
                             const std::string& job_id = "j-0001") {
    job_.set_job_id(job_id);
    job_.set_attempt(kTestPass.attempt);
    job_.set_job_secret(kTestPass.secret);
    *job_.mutable_spec() = WithDefaults(spec);
  }

  // `momentum`: of a running mean.
  AssignmentBuilder& Parameter(const std::string& name,
                               const std::vector<int64_t>& dims,
                               std::optional<float> momentum = std::nullopt) {
    ParameterInfo* const parameter = job_.add_parameters();
    parameter->set_name(name);
    for (const int64_t dim : dims) parameter->add_dims(dim);
    if (momentum.has_value()) parameter->set_momentum(*momentum);
    return *this;
  }
  // Rows of `dim` elements, spread over `ps` shards.
  AssignmentBuilder& Table(const std::string& name, uint32_t dim, uint32_t ps) {
    TableInfo* const table = job_.add_tables();
    table->set_name(name);
    table->set_dim(dim);
    table->set_slots(TableMap::DefaultSlots(ps));
    return *this;
  }

  // "worker:0" and so on, at 10.0.0.RANK:1.
  AssignmentBuilder& Workers(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const auto rank = static_cast<uint32_t>(job_.workers_size());
      FillWorker(rank, WORKER, has_chief_ ? rank - 1 : rank,
                 job_.add_workers());
    }
    return *this;
  }
  // The worker with rank 0, as the task "chief:0". REQUIRES: no workers yet.
  AssignmentBuilder& Chief() {
    has_chief_ = true;
    FillWorker(/*rank=*/0, CHIEF, /*index=*/0, job_.add_workers());
    return *this;
  }
  // With the rank after the last worker's. REQUIRES: all workers are there.
  AssignmentBuilder& Evaluator() {
    FillWorker(static_cast<uint32_t>(job_.workers_size()), EVALUATOR,
               /*index=*/0, job_.mutable_evaluator());
    return *this;
  }
  AssignmentBuilder& Ps(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) PsAt("");
    return *this;
  }
  AssignmentBuilder& PsAt(const std::string& address) {
    const auto rank = static_cast<uint32_t>(job_.ps_size());
    Fill(rank, PS, rank, kTestPsIncarnation, address, job_.add_ps());
    return *this;
  }

  // From its first clock on, in place of the spec's; then of the calls before.
  AssignmentBuilder& From(const TrainingRegime& regime) {
    *job_.add_regimes() = ToProto(regime);
    return *this;
  }

  JobAssignment Build() const {
    JobAssignment job = job_;
    if (job.regimes().empty()) *job.add_regimes() = RegimeOf(job.spec());
    return job;
  }

 private:
  static void FillWorker(uint32_t rank, TaskType type, uint32_t index,
                         Participant* who) {
    Fill(rank, type, index, kTestWorkerIncarnation,
         absl::StrCat("10.0.0.", rank, ":1"), who);
  }
  static void Fill(uint32_t rank, TaskType type, uint32_t index,
                   uint64_t first_incarnation, const std::string& address,
                   Participant* who) {
    who->set_rank(rank);
    Member* const member = who->mutable_member();
    member->mutable_task()->set_type(type);
    member->mutable_task()->set_index(index);
    member->set_address(address);
    member->set_incarnation(first_incarnation + rank);
  }

  JobAssignment job_;
  bool has_chief_ = false;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_ASSIGNMENT_BUILDER_H_
