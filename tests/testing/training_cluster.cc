#include "tests/testing/training_cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/cuts/cut_id.h"
#include "common/job/job_spec_validator.h"
#include "common/job/strategy_rules.h"
#include "common/model/training_graph.h"
#include "common/regime/job_regimes.h"
#include "common/system/file.h"
#include "common/wire/routing_table.h"
#include "server/checkpoint/restore.h"
#include "server/shard/shard_exporter.h"
#include "server/shard/snapshot_taker.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/borrowed_peer.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/shard_states.h"
#include "worker/client/cut_calls.h"
#include "worker/client/header_encoder.h"
#include "worker/client/transport/fanout_call.h"

namespace syncline {
namespace {

constexpr absl::Duration kPrepareTimeout = absl::Seconds(60);

int CountOf(const std::vector<DaemonMessage>& messages,
            bool (*matches)(const DaemonMessage&)) {
  return static_cast<int>(
      std::count_if(messages.begin(), messages.end(), matches));
}

// A change of the routing exports the state while its cut is held.
class NoSnapshots final : public ps::SnapshotTaker {
 public:
  void OnSnapshot(uint64_t, absl::Span<const int64_t>, int) override {}
  void OnSnapshotDone(uint64_t) override {}
};

}  // namespace

TrainingCluster::TrainingCluster(const Options& options)
    : options_(options), artifacts_(std::make_shared<FakeArtifacts>()) {
  artifacts_->upload_failures = options.upload_failures;
  for (uint32_t rank = 0; rank < options.ps; ++rank) {
    ps::PsServer::Options options;
    options.lanes = 1;
    options.snapshot_taker = [](const std::string&) {
      return std::make_shared<NoSnapshots>();
    };
    ps_.push_back(StartPsNode(options));
  }
  inbox_->messages.resize(rank_count());
  for (uint32_t rank = 0; rank < rank_count(); ++rank) {
    worker::Worker::Options worker;
    worker.data_root = options.data_root;
    worker.work_dir = absl::StrCat(options.work_dir, "/worker", rank);
    worker.threads = 1;
    worker.incarnation = kTestWorkerIncarnation + rank;
    worker.artifacts = artifacts_;
    if (rank < options.gpus.size()) worker.gpu = options.gpus[rank];
    worker.why_no_gpu = "the test gives it none";
    worker.on_gpu_lost = options.on_gpu_lost;
    worker.product_tuning = options.product_tuning;
    worker.join_peers = [group = group_](const JobAssignment&,
                                         const worker::PeerGroup& of,
                                         absl::Duration, const GoOnCheck&)
        -> absl::StatusOr<std::unique_ptr<worker::PeerTransport>> {
      MutexLock lock(&group->mu);
      if (group->check != nullptr) {
        SYNCLINE_RETURN_IF_ERROR(group->check(of));
      }
      auto& peers = group->peers[{of.epoch, of.peers[0].address}];
      if (peers == nullptr) {
        peers = std::make_unique<worker::InProcessPeers>(
            worker::InProcessPeers::Options{
                .ranks = of.ranks(), .seed = group->seed, .epoch = of.epoch});
      }
      return worker::BorrowedPeer::Of(peers.get(), of.rank);
    };
    if (rank == 0) worker.metrics = options.chief_metrics;
    if (rank == options.workers) worker.metrics = options.evaluator_metrics;
    workers_.push_back(*worker::Worker::Create(
        worker, [inbox = inbox_, rank,
                 on_evaluation = options.on_evaluation](DaemonMessage message) {
          if (on_evaluation != nullptr && message.report().has_evaluation()) {
            on_evaluation(message.report().evaluation());
          }
          MutexLock lock(&inbox->mu);
          inbox->messages[rank].push_back(std::move(message));
          inbox->changed.SignalAll();
        }));
  }
}

TrainingCluster::~TrainingCluster() {
  workers_.clear();
  for (PsNode& ps : ps_) {
    for (int i = 1; i <= jobs_; ++i) {
      ps.server->CloseJob(absl::StrCat("t-", i), "the test is over");
    }
    ps.listening.server->Shutdown();
  }
}

JobAssignment TrainingCluster::MakeAssignment(const JobSpec& spec,
                                              absl::string_view model,
                                              absl::Status* status) {
  AssignmentBuilder job(spec, job_id_);
  for (const TrainingRegime& regime : options_.regimes) job.From(regime);
  job.Chief().Workers(options_.workers - 1);
  if (options_.evaluator) job.Evaluator();
  for (const PsNode& ps : ps_) job.PsAt(ps.address());
  const auto parsed = ParseJobModel(spec, model, "model");
  *status = parsed.status();
  if (parsed.ok()) {
    std::vector<std::string> problems;
    AddModel(ResolveTrainingGraph(spec, **parsed, &problems), options_.ps,
             &job);
    *status = ProblemsToStatus(problems);
  }
  JobAssignment assignment = job.Build();
  assignment.set_model_artifact("model.onnx");
  if (options_.change_assignment) options_.change_assignment(&assignment);
  return assignment;
}

absl::Status TrainingCluster::Prepare(JobSpec spec, absl::string_view model) {
  job_id_ = absl::StrCat("t-", ++jobs_);
  {
    MutexLock lock(&inbox_->mu);
    for (auto& messages : inbox_->messages) messages.clear();
  }
  spec.mutable_resources()->set_workers(options_.workers);
  spec.mutable_resources()->set_ps(options_.ps);
  {
    MutexLock lock(&group_->mu);
    group_->seed = static_cast<uint64_t>(jobs_);
    group_->check = options_.check_join;
    group_->peers.clear();
  }
  SYNCLINE_RETURN_IF_ERROR(ProblemsToStatus(ValidateJobSpec(spec)));
  artifacts_->Put(job_id_, "model.onnx", std::string(model));
  for (const auto& [name, content] : options_.artifacts) {
    artifacts_->Put(job_id_, name, content);
  }
  absl::Status status;
  const JobAssignment assignment =
      MakeAssignment(WithDefaults(spec), model, &status);
  length_ = LengthOf(spec.data().buckets());
  SYNCLINE_RETURN_IF_ERROR(status);
  for (uint32_t rank = 0; rank < options_.ps; ++rank) {
    if (!assignment.has_start_from()) {
      SYNCLINE_RETURN_IF_ERROR(ps_[rank].server->OpenJob(assignment, rank));
      continue;
    }
    SYNCLINE_ASSIGN_OR_RETURN(const ps::ShardStarts starts,
                              ps::StartsFromCheckpoint(assignment, rank));
    SYNCLINE_RETURN_IF_ERROR(
        ps_[rank].server->RestoreJob(assignment, rank, starts, nullptr));
  }
  assignment_ = assignment;
  SchedulerMessage command;
  *command.mutable_prepare()->mutable_assignment() = assignment;
  for (const auto& worker : workers_) worker->OnCommand(command);
  const auto is_prepared = [](const DaemonMessage& m) {
    return m.has_prepared();
  };
  if (!Await(kPrepareTimeout, [&](const std::vector<DaemonMessage>& m) {
        return CountOf(m, is_prepared) > 0;
      })) {
    return absl::DeadlineExceededError("not prepared");
  }
  std::vector<std::string> problems;
  for (uint32_t rank = 0; rank < rank_count(); ++rank) {
    for (const DaemonMessage& message : Messages(rank)) {
      for (const std::string& problem : message.prepared().problems()) {
        problems.push_back(problem);
      }
    }
  }
  return ProblemsToStatus(problems);
}

void TrainingCluster::Run() {
  SchedulerMessage command;
  auto* run = command.mutable_run();
  run->set_attempt(assignment_.attempt());
  run->set_job_id(job_id_);
  for (const DaemonMessage& message : Messages(0)) {
    if (!message.has_prepared()) continue;
    run->set_clocks_per_epoch(message.prepared().clocks_per_epoch());
    run->set_clocks_total(message.prepared().clocks_total());
  }
  for (const auto& worker : workers_) worker->OnCommand(command);
}

absl::Status TrainingCluster::AwaitDone(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(&inbox_->mu);
  while (true) {
    size_t done = 0;
    for (const auto& messages : inbox_->messages) {
      for (const DaemonMessage& message : messages) {
        if (!message.has_done()) continue;
        ++done;
        // As the scheduler does: the first failure ends the job.
        if (message.done().code() != 0) {
          return absl::Status(
              static_cast<absl::StatusCode>(message.done().code()),
              message.done().message());
        }
        break;
      }
    }
    if (done == inbox_->messages.size()) return absl::OkStatus();
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError("the job has not ended");
    }
    inbox_->changed.WaitUntil(&inbox_->mu, deadline);
  }
}

absl::Status TrainingCluster::ChangeRouting(const Routing& routing,
                                            int64_t clock) {
  SYNCLINE_ASSIGN_OR_RETURN(const RoutingTable before,
                            RoutingTable::Create(assignment_));
  // Speaks for the chief.
  const worker::HeaderEncoder headers({.job_id = job_id_,
                                       .incarnation = kTestWorkerIncarnation,
                                       .routing_version = before.version(),
                                       .pass = kTestPass},
                                      {}, kPrepareTimeout);
  worker::FanoutCall::Options fanout;
  fanout.job_id = job_id_;
  fanout.patience = kPrepareTimeout;
  worker::CutCalls::Options options;
  options.job_id = job_id_;
  options.series = CutSeries::kScheduler;
  for (uint32_t shard = 0; shard < before.shard_count(); ++shard) {
    const uint32_t ps = before.PsOf(shard);
    fanout.peers.push_back({absl::StrCat("ps:", ps), ps_[ps].address()});
    options.shards.push_back(shard);
  }
  options.peers = fanout.peers;
  options.spread = ReadRegimes(assignment_)->CutSpread();
  worker::FanoutCall calls(fanout);
  std::optional<CutCoordinator> coordinator;
  worker::CutCalls cuts(options, &headers, &calls, &coordinator);
  const uint64_t name = MakeCutId(assignment_.attempt(), clock,
                                  CutSeries::kScheduler, routings_++);
  SYNCLINE_RETURN_IF_ERROR(
      cuts.Begin({.id = name,
                  .use = CutUse::kRouting,
                  .clocks = std::vector<int64_t>(options_.workers, clock)},
                 absl::Minutes(1))
          .status());
  std::vector<std::string> states;
  for (uint32_t shard = 0; shard < before.shard_count(); ++shard) {
    MemoryStateSink sink;
    absl::Status exported;
    // Until the shard has passed the cut.
    Eventually(kPrepareTimeout, [&] {
      sink.bytes.clear();
      exported = ps_[before.PsOf(shard)].server->ExportState(
          job_id_, shard, cuts.WireId(name), {}, &sink);
      return !absl::IsFailedPrecondition(exported);
    });
    SYNCLINE_RETURN_IF_ERROR(exported);
    states.push_back(std::move(sink.bytes));
  }
  JobAssignment later = assignment_;
  *later.mutable_routing() = routing;
  for (uint32_t rank = 0; rank < options_.ps; ++rank) {
    const absl::Status changed = ps_[rank].server->ChangeRouting(
        later, rank, cuts.WireId(name), StartsOf(states), nullptr);
    if (changed.ok()) continue;
    // The workers may go on where they are.
    cuts.End(name, clock).IgnoreError();
    return changed;
  }
  assignment_ = std::move(later);
  return absl::OkStatus();
}

absl::Status TrainingCluster::Stop(absl::Duration timeout) {
  SchedulerMessage command;
  command.mutable_stop()->set_job_id(job_id_);
  command.mutable_stop()->set_reason("the test stops it");
  for (const auto& worker : workers_) worker->OnCommand(command);
  ps_reports_.clear();
  for (PsNode& ps : ps_) {
    ps_reports_.push_back(ps.server->CloseJob(job_id_, "the test stops it"));
  }
  const auto is_released = [](const DaemonMessage& m) {
    return m.has_done() && m.done().released();
  };
  return Await(timeout,
               [&](const std::vector<DaemonMessage>& m) {
                 return CountOf(m, is_released) > 0;
               })
             ? absl::OkStatus()
             : absl::DeadlineExceededError("not released");
}

TrainingCluster::Outcome TrainingCluster::RunJob(JobSpec spec,
                                                 absl::string_view model) {
  absl::Status status = Prepare(std::move(spec), model);
  if (status.ok()) {
    Run();
    status = AwaitDone(absl::Minutes(2));
  }
  const absl::Status stopped = Stop(absl::Seconds(30));
  if (status.ok()) status = stopped;
  Outcome outcome = TakeOutcome();
  outcome.status = status;
  return outcome;
}

TrainingCluster::Outcome TrainingCluster::TakeOutcome() {
  Outcome outcome;
  for (const DaemonMessage& message : Messages(rank_count() - 1)) {
    if (message.report().has_evaluation() && options_.evaluator) {
      outcome.evaluations.push_back(message.report().evaluation());
    }
  }
  for (const DaemonMessage& message : Messages(0)) {
    if (message.report().has_evaluation()) {
      outcome.evaluations.push_back(message.report().evaluation());
    }
    if (message.report().has_progress()) {
      outcome.last_progress = message.report().progress();
    }
  }
  outcome.artifacts = artifacts_->OfJob(job_id_);
  outcome.ps_reports = ps_reports_;
  const auto trained = outcome.artifacts.find("trained.onnx");
  if (trained == outcome.artifacts.end()) return outcome;
  const auto model =
      Model::Parse(trained->second, "trained.onnx", {}, {}, length_);
  SYNCLINE_CHECK(model.ok());
  for (const Initializer& initializer : (*model)->graph().initializers) {
    if (initializer.tensor.dtype != DType::kFloat32) continue;
    const absl::Span<const float> values = initializer.tensor.floats();
    outcome.weights[(*model)->graph().values[initializer.value].name] = {
        values.begin(), values.end()};
  }
  return outcome;
}

bool TrainingCluster::AwaitClock(uint32_t rank, int64_t clock,
                                 absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(&inbox_->mu);
  while (true) {
    for (const DaemonMessage& message : inbox_->messages[rank]) {
      if (message.report().progress().clock() >= clock) return true;
    }
    if (absl::Now() > deadline) return false;
    inbox_->changed.WaitUntil(&inbox_->mu, deadline);
  }
}

void TrainingCluster::KillPs(uint32_t rank) {
  ps_[rank].listening.server->Shutdown(
      absl::ToChronoTime(absl::Now() - absl::Seconds(1)));
}

const std::string& TrainingCluster::ps_address(uint32_t rank) const {
  return ps_[rank].listening.address;
}

void TrainingCluster::Send(uint32_t rank, const SchedulerMessage& command) {
  workers_[rank]->OnCommand(command);
}

std::vector<DaemonMessage> TrainingCluster::Messages(uint32_t rank) {
  MutexLock lock(&inbox_->mu);
  return inbox_->messages[rank];
}

template <typename Enough>
bool TrainingCluster::Await(absl::Duration timeout, const Enough& enough) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(&inbox_->mu);
  while (
      !std::all_of(inbox_->messages.begin(), inbox_->messages.end(), enough)) {
    if (absl::Now() > deadline) return false;
    inbox_->changed.WaitUntil(&inbox_->mu, deadline);
  }
  return true;
}

}  // namespace syncline
