// Goal: a plan is what a run then takes. Method: jobs planned, then prepared as
// a worker does and trained for a step; the executor's own figures must be the
// plan's, and the process must have grown by them.

#include "worker/job/job_planner.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/job_spec_validator.h"
#include "common/regime/job_regimes.h"
#include "common/system/file.h"
#include "common/system/malloc_policy.h"
#include "common/update/update_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/process_memory.h"
#include "tests/testing/temp_dir.h"
#include "worker/client/ps_client.h"
#include "worker/compute/planned_gpu.h"
#include "worker/export/job_results.h"
#include "worker/job/prepared_job.h"
#include "worker/job/update_place.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/peer_exchange.h"

namespace syncline::worker {
namespace {

struct Prepared {
  WorkerPlan plan;
  std::unique_ptr<PreparedJob> job;
  double grown_bytes = 0;  // from before it was prepared to after a step
  double peak_bytes = 0;   // while it was prepared, above what was before
};

double ResidentBytes() {
  return static_cast<double>(ProcessMemoryBytes(getpid(), "RssAnon"));
}

Batch WholeBatch(const PreparedJob& job) {
  std::vector<int64_t> indices(job.spec().training().batch_size());
  for (size_t i = 0; i < indices.size(); ++i) {
    indices[i] = static_cast<int64_t>(i) % job.train->size();
  }
  Batch batch;
  job.train->Read(indices, &batch);
  return batch;
}

Prepared Prepare(const JobSpec& spec, const std::string& model_text) {
  Prepared result;
  const AssignedJob assigned = AssignToOne(spec, model_text);
  const JobAssignment& assignment = assigned.assignment;
  const auto plan =
      PlanWorker(assignment.spec(), assigned.model, assigned.training);
  EXPECT_TRUE(plan.ok()) << plan.status();
  result.plan = *plan;

  // Large arrays are mapped, and unmapped when they are freed, whatever was
  // freed before: else glibc maps fewer with each large one that is freed.
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  ReturnFreedMemory();  // as it does; else what it returns would be missing
  const double before = ResidentBytes();
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts again
  const auto peak_before = ProcessMemoryBytes(getpid(), "VmHWM");
  PrepareOptions options;
  options.threads = 1;
  std::vector<std::string> problems;
  result.job = PrepareJob(assignment, 0, model_text, options, &problems);
  result.peak_bytes =
      static_cast<double>(ProcessMemoryBytes(getpid(), "VmHWM") - peak_before);
  EXPECT_EQ(absl::StrJoin(problems, "\n"), "");
  // Pages that were never written are not resident.
  for (size_t i = 0; i < assigned.training.parameters.size(); ++i) {
    for (float& v : result.job->executor->parameter(static_cast<int>(i))) {
      v += 0.01f;
    }
  }
  const Batch batch = WholeBatch(*result.job);
  EXPECT_TRUE(result.job->executor->TrainStep(batch, 0, [](int) {}).ok());
  result.grown_bytes = ResidentBytes() - before;
  return result;
}

TEST(JobPlannerTest, ThePlanIsWhatTheExecutorHolds) {
  JobSpec spec = DigitsJob();
  spec.mutable_training()->set_batch_size(100);
  for (const uint32_t micro_batches : {1, 3, 100}) {
    for (const bool evaluates : {false, true}) {
      spec.mutable_training()->set_micro_batches(micro_batches);
      if (evaluates) *spec.mutable_data()->mutable_test() = spec.data().train();
      const Prepared run = Prepare(spec, MlpModel(784, 32, 10));
      EXPECT_EQ(run.plan.executor.memory_bytes(),
                run.job->executor->memory_bytes());
      EXPECT_EQ(run.plan.executor.training_arena_bytes,
                run.job->executor->arena_bytes());
      // A small batch's evaluation lies in the gradients' memory.
      EXPECT_EQ(run.plan.executor.evaluation_arena_bytes > 0,
                evaluates && micro_batches > 1);
    }
    spec.mutable_data()->clear_test();
  }
}

TEST(JobPlannerTest, TheProcessGrowsByThePlan) {
  JobSpec spec = DigitsJob();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(64);
  spec.mutable_training()->set_batch_size(4096);
  // Small pieces come from memory that the process has already.
  Prepare(spec, MlpModel(784, 32, 10));
  const Prepared run = Prepare(spec, MlpModel(784, 4096, 10));
  // 24.5 MiB of parameters and gradients; 128 MiB of a hidden layer and its
  // gradient; a batch, three of which are planned for, is 12.3 MiB.
  const double expected =
      static_cast<double>(run.plan.executor.memory_bytes()) +
      static_cast<double>(run.plan.batch_bytes) / 3;
  EXPECT_GT(expected, 150 * kMiB);
  EXPECT_NEAR(run.grown_bytes, expected, 0.05 * expected);
}

// On a GPU with kernels for the optimizer its state is there, and so are the
// values that a round begins with; the host has what is pushed.
TEST(JobPlannerTest, LocalStepsOnAGpuArePlanned) {
  JobSpec spec = DigitsJob();
  spec.mutable_resources()->set_device(ResourcesSpec::CUDA);
  spec.mutable_consistency()->set_mode(ConsistencySpec::LOCAL);
  const auto plan_of = [&](OptimizerSpec::Kind kind) {
    spec.mutable_optimizer()->set_kind(kind);
    const AssignedJob assigned = AssignToOne(spec, MlpModel(784, 512, 10));
    const auto plan = PlanWorker(assigned.assignment.spec(), assigned.model,
                                 assigned.training);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *plan : WorkerPlan();
  };
  const WorkerPlan adam = plan_of(OptimizerSpec::ADAM);
  EXPECT_EQ(adam.slot_bytes, 0);
  EXPECT_GT(adam.round_bytes, kMiB);
  EXPECT_NEAR(static_cast<double>(adam.executor.local_bytes),
              3 * static_cast<double>(adam.round_bytes), 4096);
  const WorkerPlan sgd = plan_of(OptimizerSpec::SGD);
  EXPECT_EQ(adam.executor.device_bytes() - sgd.executor.device_bytes(),
            2 * adam.round_bytes);
  // Without a kernel they are the processors'.
  const WorkerPlan nesterov = plan_of(OptimizerSpec::NESTEROV);
  EXPECT_EQ(nesterov.executor.local_bytes, 0);
  EXPECT_EQ(nesterov.slot_bytes, nesterov.round_bytes);
}

// An attempt that goes on by another regime than the job began with has its
// updates where that one has them.
TEST(JobPlannerTest, UpdatesAreThoseOfTheStrategyThatAnAttemptBeginsWith) {
  JobSpec spec = DigitsJob();
  spec.mutable_resources()->set_workers(2);
  spec.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  const AssignedJob assigned = AssignToOne(spec, MlpModel(784, 512, 10));
  spec = assigned.assignment.spec();
  RegimeRule* const rule = spec.add_regimes();
  rule->mutable_then()->set_strategy(ALL_REDUCE);
  EXPECT_THAT(StrategiesOf(spec, SHARDED),
              ::testing::ElementsAre(SHARDED, ALL_REDUCE));
  EXPECT_THAT(StrategiesOf(spec, ALL_REDUCE),
              ::testing::ElementsAre(ALL_REDUCE));

  constexpr Strategy kStrategies[] = {ALL_REDUCE};
  PlannedGpu gpu;
  const auto bytes_by = [&](const RegimeSchedule& regimes) {
    return *UpdateBytesOn(gpu, spec, regimes, kStrategies, assigned.training);
  };
  TrainingRegime regime = {.strategy = TrainingRegime::Strategy::kAllReduce,
                           .wire_type = ElementType::kBfloat16};
  RegimeSchedule regimes(regime);
  EXPECT_EQ(bytes_by(regimes), 0u);
  regime.first_clock = 5;
  regime.wire_type = ElementType::kFloat32;
  ASSERT_TRUE(regimes.Add(regime, /*begun=*/0).ok());
  EXPECT_GT(bytes_by(regimes), 0u);
}

// A GPU with kernels for the optimizer has the values and the state that its
// rank updates; by ALL_REDUCE with 16 bits on the wire the processors have
// them.
TEST(JobPlannerTest, UpdatesOnAGpuArePlanned) {
  JobSpec spec = DigitsJob();
  spec.mutable_resources()->set_device(ResourcesSpec::CUDA);
  spec.mutable_resources()->set_workers(2);
  const auto update_bytes_of = [&](Strategy strategy, WireType wire_type,
                                   OptimizerSpec::Kind kind) {
    spec.set_strategy(strategy);
    spec.set_wire_type(wire_type);
    spec.mutable_optimizer()->set_kind(kind);
    const AssignedJob assigned = AssignToOne(spec, MlpModel(784, 512, 10));
    const auto plan = PlanWorker(assigned.assignment.spec(), assigned.model,
                                 assigned.training);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) return int64_t{-1};
    EXPECT_GE(plan->executor.device_bytes(), plan->executor.update_bytes);
    return plan->executor.update_bytes;
  };
  const int64_t sgd =
      update_bytes_of(ALL_REDUCE, WIRE_FLOAT32, OptimizerSpec::SGD);
  const int64_t adam =
      update_bytes_of(ALL_REDUCE, WIRE_FLOAT32, OptimizerSpec::ADAM);
  EXPECT_NEAR(static_cast<double>(sgd), 4.0 * (784 + 11) * 512, 4096);
  EXPECT_NEAR(static_cast<double>(adam), 3.0 * static_cast<double>(sgd), 8192);
  EXPECT_EQ(update_bytes_of(ALL_REDUCE, WIRE_FLOAT32, OptimizerSpec::LAMB), 0);
  EXPECT_EQ(update_bytes_of(ALL_REDUCE, WIRE_BFLOAT16, OptimizerSpec::ADAM), 0);
  // An owner has its part, and the sums of it.
  for (const WireType wire_type : {WIRE_FLOAT32, WIRE_BFLOAT16}) {
    EXPECT_NEAR(static_cast<double>(
                    update_bytes_of(SHARDED, wire_type, OptimizerSpec::ADAM)),
                2.0 * static_cast<double>(sgd),
                0.35 * static_cast<double>(sgd));
  }
  EXPECT_EQ(update_bytes_of(SHARDED, WIRE_FLOAT32, OptimizerSpec::LAMB), 0);
}

// Besides the executor: the values that a round begins with, and Adam's state.
TEST(JobPlannerTest, LocalStepsArePlanned) {
  JobSpec spec = DigitsJob();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(64);
  spec.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  const std::string model = MlpModel(784, 8192, 10);
  const WorkerPlan sync = Prepare(spec, model).plan;
  EXPECT_EQ(sync.round_bytes, 0);
  spec.mutable_consistency()->set_mode(ConsistencySpec::LOCAL);
  const Prepared run = Prepare(spec, model);
  ASSERT_NE(run.job->local, nullptr);
  const int64_t values = run.plan.executor.parameter_bytes;
  EXPECT_GT(values, 24 * kMiB);
  EXPECT_NEAR(static_cast<double>(run.plan.round_bytes),
              static_cast<double>(values), 1000);
  EXPECT_EQ(run.plan.slot_bytes, 2 * run.plan.round_bytes);
  EXPECT_EQ(run.plan.memory_bytes(),
            sync.memory_bytes() + 3 * run.plan.round_bytes);
  const auto expected = static_cast<double>(run.plan.executor.memory_bytes() +
                                            3 * run.plan.round_bytes);
  EXPECT_NEAR(run.grown_bytes, expected, 0.05 * expected);
}

// The leader of two has the sums, and the other's gradients of half the blocks.
TEST(JobPlannerTest, TheSumsOfAGroupArePlanned) {
  JobSpec spec = DigitsJob();
  spec.mutable_resources()->set_workers(2);
  const auto waiting = [&] {
    const JobSpec full = WithDefaults(spec);
    const auto model = ParseJobModel(full, MlpModel(784, 2048, 10), "model");
    EXPECT_TRUE(model.ok()) << model.status();
    std::vector<std::string> problems;
    const TrainingGraph training =
        ResolveTrainingGraph(full, **model, &problems);
    const auto plan = PlanWorker(full, *model, training);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan->waiting_bytes;
  };
  EXPECT_EQ(waiting(), 0);
  spec.mutable_groups()->set_size(1);
  EXPECT_EQ(waiting(), 0);
  spec.mutable_groups()->set_size(2);
  constexpr double kParameters = 784 * 2048 + 2048 + 2048 * 10 + 10;
  EXPECT_NEAR(static_cast<double>(waiting()), 1.5 * 4 * kParameters,
              0.1 * 4 * kParameters);
  spec.mutable_groups()->set_size(0);
  spec.mutable_groups()->set_by_host(true);
  EXPECT_GT(waiting(), 0);
}

TEST(JobPlannerTest, AnEvaluatorHasRoomForItsOwnBatchesAlone) {
  JobSpec spec = DigitsJob();
  spec.mutable_training()->set_batch_size(4096);
  spec.mutable_training()->set_eval_batch_size(4096);
  *spec.mutable_data()->mutable_test() = spec.data().train();
  const std::string text = MlpModel(784, 32, 10);
  AssignedJob assigned = AssignToOne(spec, text);
  assigned.assignment.mutable_evaluator()->set_rank(1);
  const JobSpec& planned = assigned.assignment.spec();
  const auto plan = PlanEvaluator(planned, assigned.model, assigned.training);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> problems;
  const auto job =
      PrepareJob(assigned.assignment, 1, text, PrepareOptions(), &problems);
  ASSERT_EQ(absl::StrJoin(problems, "\n"), "");
  EXPECT_EQ(job->train, nullptr);
  EXPECT_EQ(plan->executor.memory_bytes(), job->executor->memory_bytes());
  EXPECT_LT(plan->executor.training_arena_bytes,
            plan->executor.evaluation_arena_bytes);
  EXPECT_EQ(plan->batch_bytes,
            planned.training().eval_batch_size() * (784 + 1) * 4);
}

// A model whose weights have values, in ONNX binary.
std::string FileOf(const JobSpec& spec, const std::string& model_text) {
  const auto model = *ParseJobModel(spec, model_text, "model");
  std::vector<std::vector<float>> values;
  absl::flat_hash_map<std::string, absl::Span<const float>> weights;
  for (const Initializer& initializer : model->graph().initializers) {
    const Value& value = model->graph().values[initializer.value];
    weights[value.name] = values.emplace_back(ElementCount(value.dims), 0.01f);
  }
  return *model->WithWeights(weights);
}

TEST(JobPlannerTest, ValuesOfTheFileAreHeldOnce) {
  const JobSpec spec = DigitsJob();
  const std::string file = FileOf(spec, MlpModel(784, 8192, 10));
  const auto file_bytes = static_cast<double>(file.size());
  ASSERT_GT(file_bytes, 24 * kMiB);
  const Prepared run = Prepare(spec, file);
  const auto planned = static_cast<double>(run.plan.executor.memory_bytes());
  EXPECT_NEAR(run.grown_bytes, planned, 0.05 * planned);
  // The file beside what is read from it, then this beside the parameters.
  EXPECT_LT(run.peak_bytes, 2.2 * file_bytes);

  EXPECT_EQ(run.job->executor->parameter(0)[0], 0.02f);
  run.job->executor->parameter(0)[0] = 0.5f;
  const TempDir dir;
  const std::string path = dir.path() + "/trained.onnx";
  std::ofstream("/proc/self/clear_refs") << "5";
  const auto before = ProcessMemoryBytes(getpid(), "VmHWM");
  const absl::Status exported = ExportModel(*run.job, {}, path);
  ASSERT_TRUE(exported.ok()) << exported;
  EXPECT_LT(ProcessMemoryBytes(getpid(), "VmHWM") - before, 0.2 * file_bytes);
  const auto trained = *Model::Parse(*ReadFile(path, 1 << 30), "exported");
  EXPECT_EQ(trained->graph().initializers[0].tensor.floats()[0], 0.5f);
}

// A scheduler from before there were parts of batches sends no number of parts.
TEST(JobPlannerTest, NoNumberOfPartsIsOne) {
  JobSpec spec = WithDefaults(DigitsJob());
  const auto model = *ParseJobModel(spec, MlpModel(784, 32, 10), "model");
  std::vector<std::string> problems;
  const TrainingGraph training = ResolveTrainingGraph(spec, *model, &problems);
  const auto plan = PlanWorker(spec, model, training);
  ASSERT_TRUE(plan.ok()) << plan.status();
  spec.mutable_training()->set_micro_batches(0);
  const auto without = PlanWorker(spec, model, training);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->memory_bytes(), plan->memory_bytes());
}

TEST(JobPlannerTest, BatchesAndMessagesAreCounted) {
  JobSpec spec = WithDefaults(DigitsJob());
  spec.mutable_resources()->set_ps(2);
  const auto model = *ParseJobModel(spec, MlpModel(784, 32, 10), "model");
  std::vector<std::string> problems;
  const TrainingGraph training = ResolveTrainingGraph(spec, *model, &problems);
  const auto plan = PlanWorker(spec, model, training);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // Two batches are read ahead of the one that is computed.
  EXPECT_EQ(plan->batch_bytes, 3 * 32 * (784 + 1) * 4);
  EXPECT_EQ(plan->row_bytes, 0);
  // A small model is on its way as a whole.
  EXPECT_EQ(plan->message_bytes, plan->executor.parameters * 4);
  EXPECT_EQ(plan->memory_bytes(), plan->executor.memory_bytes() +
                                      plan->batch_bytes + plan->message_bytes);
  // Half as many bytes, but gradients are copied too.
  spec.set_wire_type(WIRE_BFLOAT16);
  EXPECT_EQ(PlanWorker(spec, model, training)->message_bytes,
            2 * plan->executor.parameters * 2);
}

// Gradients in 16 bits from others save as much as those that leave take.
TEST(JobPlannerTest, SixteenBitsTakeAsMuchAmongWorkersAsFloat32) {
  JobSpec spec = DigitsJob();
  spec.set_strategy(ALL_REDUCE);
  spec.mutable_resources()->set_workers(3);
  spec = WithDefaults(spec);
  const std::string text = MlpModel(784, 32, 10);
  const auto model = *ParseJobModel(spec, text, "model");
  std::vector<std::string> problems;
  const TrainingGraph training = ResolveTrainingGraph(spec, *model, &problems);
  const auto whole = PlanWorker(spec, model, training);
  ASSERT_TRUE(whole.ok()) << whole.status();
  spec.set_wire_type(WIRE_BFLOAT16);
  const auto narrow = PlanWorker(spec, model, training);
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  // Shares are not quite equal.
  EXPECT_NEAR(static_cast<double>(narrow->waiting_bytes),
              static_cast<double>(whole->waiting_bytes),
              0.1 * static_cast<double>(whole->waiting_bytes));
}

TEST(JobPlannerTest, CompressionIsPlannedWithAndWithoutPs) {
  JobSpec spec = DigitsJob();
  spec.mutable_resources()->set_workers(3);
  spec.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  const std::string text = MlpModel(784, 32, 10);
  const auto plan_of = [&](Strategy strategy, CompressionSpec::Kind kind) {
    JobSpec of = spec;
    of.set_strategy(strategy);
    of.mutable_compression()->set_kind(kind);
    of = WithDefaults(of);
    const auto model = *ParseJobModel(of, text, "model");
    std::vector<std::string> problems;
    const auto plan =
        PlanWorker(of, model, ResolveTrainingGraph(of, *model, &problems));
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *plan;
  };
  const WorkerPlan by_ps = plan_of(PARAMETER_SERVER, CompressionSpec::TOP_K);
  const WorkerPlan without = plan_of(ALL_REDUCE, CompressionSpec::TOP_K);
  EXPECT_GT(without.residual_bytes, without.executor.parameters * 4);
  EXPECT_EQ(without.residual_bytes, by_ps.residual_bytes);
  // Gradients of other ranks wait as they have come.
  EXPECT_LT(without.waiting_bytes,
            plan_of(ALL_REDUCE, CompressionSpec::NONE).waiting_bytes);
}

// Eight layers of 1 MiB, 10 MiB in all.
std::string DeepModel() {
  std::string signature = "float[N,784] x, float[784,512] w0";
  std::string body = "h0 = MatMul(x, w0)  t0 = Tanh(h0)\n";
  for (int i = 1; i <= 8; ++i) {
    absl::StrAppend(&signature, ", float[512,512] w", i);
    absl::StrAppend(&body, "h", i, " = MatMul(t", i - 1, ", w", i, ")  t", i,
                    " = Tanh(h", i, ")\n");
  }
  return absl::StrCat("<ir_version: 8, opset_import: [\"\" : 13]>\ndeep (",
                      signature,
                      ", float[512,10] w9) => (float[N,10] logits) {\n", body,
                      "logits = MatMul(t8, w9)\n}\n");
}

// The executor's and the exchange's own figures, and the sum of Rajbhandari et
// al.: 16 bytes for each parameter over the ranks, the two largest units, and
// what others' gradients take on their way.
TEST(JobPlannerTest, GatheredValuesTakeAShareAndTwoUnits) {
  JobSpec spec = DigitsJob();
  spec.set_strategy(SHARDED);
  spec.mutable_sharding()->set_stage(3);
  spec.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  spec.mutable_resources()->clear_ps();
  spec.mutable_resources()->set_workers(4);
  spec.mutable_model()->mutable_initialize()->RemoveLast();  // of biases
  spec = WithDefaults(spec);
  const auto model = *ParseJobModel(spec, DeepModel(), "model");
  std::vector<std::string> problems;
  const TrainingGraph training = ResolveTrainingGraph(spec, *model, &problems);
  ASSERT_THAT(problems, ::testing::IsEmpty());
  const auto plan = PlanWorker(spec, model, training);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Executor::Options options = ExecutorOptionsOf(spec, /*evaluates=*/false);
  const auto executor = Executor::Create(model, training, options);
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_EQ(plan->executor.memory_bytes(), (*executor)->memory_bytes());
  const int64_t parameters = plan->executor.parameters;
  EXPECT_EQ(plan->whole_bytes, parameters * 4);
  // Units are the layers, the first of which is the largest.
  const int64_t units = (784 * 512 + 512 * 512) * 4;
  EXPECT_EQ(plan->executor.parameter_bytes, units);
  EXPECT_EQ(plan->executor.gradient_bytes, 0);

  const BlockMap map = *OwnedBlocks(TensorSizesOf(training), 4);
  PeerExchange::Options peers;
  peers.frees_gradients = true;
  peers.frees_values = true;
  peers.update = *ReadUpdate(spec, *ReadRegimes(spec));
  int64_t most = 0;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    most = std::max(most, PeerExchange::MemoryOf(peers, map, rank).bytes());
  }
  EXPECT_EQ(plan->updated_bytes + plan->slot_bytes + plan->waiting_bytes, most);

  const int64_t taken =
      most + (*executor)->memory_bytes() - (*executor)->arena_bytes();
  const int64_t folds = parameters * 4 * 3 / 4 + (int64_t{2} << 20);
  const int64_t formula = 16 * parameters / 4 + units + folds;
  EXPECT_LE(static_cast<double>(taken), 1.1 * static_cast<double>(formula));
  // Stage 2 has all values besides.
  spec.mutable_sharding()->set_stage(2);
  const auto stage2 = PlanWorker(spec, model, training);
  ASSERT_TRUE(stage2.ok()) << stage2.status();
  EXPECT_EQ(stage2->executor.parameter_bytes, parameters * 4);
  EXPECT_EQ(stage2->whole_bytes, 0);
}

constexpr char kRowsModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
    g (int64[N,2] ids, float[M,4] rows, float[8,10] w) => (float[N,10] y)
    { r = Gather(rows, ids)  f = Flatten(r)  y = MatMul(f, w) })";

// Of a job with the table `rows`, two ps and three workers.
absl::StatusOr<WorkerPlan> PlanWithRows(Strategy strategy,
                                        OptimizerSpec::Kind optimizer) {
  JobSpec spec = DigitsJob();
  spec.set_strategy(strategy);
  spec.mutable_optimizer()->set_kind(optimizer);
  spec.mutable_data()->mutable_feeds(0)->set_input("ids");
  spec.add_tables()->set_name("rows");
  spec.mutable_resources()->set_ps(2);
  spec.mutable_resources()->set_workers(3);
  spec = WithDefaults(spec);
  const auto model = ParseJobModel(spec, kRowsModel, "model");
  EXPECT_TRUE(model.ok()) << model.status();
  std::vector<std::string> problems;
  const TrainingGraph training = ResolveTrainingGraph(spec, **model, &problems);
  return PlanWorker(spec, *model, training);
}

// Rows travel as by PARAMETER_SERVER; the dense part is updated at the workers.
TEST(JobPlannerTest, AHybridWorkerHasTheStateOfTheDensePart) {
  const auto by_ps = PlanWithRows(PARAMETER_SERVER, OptimizerSpec::ADAM);
  const auto hybrid = PlanWithRows(HYBRID, OptimizerSpec::ADAM);
  ASSERT_TRUE(by_ps.ok()) << by_ps.status();
  ASSERT_TRUE(hybrid.ok()) << hybrid.status();
  EXPECT_EQ(hybrid->message_bytes, by_ps->message_bytes);
  EXPECT_EQ(hybrid->row_bytes, by_ps->row_bytes);
  EXPECT_EQ(by_ps->updated_bytes, 0);
  EXPECT_GE(hybrid->updated_bytes, 8 * 10 * 4);
  EXPECT_GE(hybrid->slot_bytes, 2 * 8 * 10 * 4);
  EXPECT_GT(hybrid->waiting_bytes, 0);
  EXPECT_EQ(hybrid->memory_bytes(),
            by_ps->memory_bytes() + hybrid->updated_bytes + hybrid->slot_bytes +
                hybrid->waiting_bytes);
}

TEST(JobPlannerTest, RowsMayFillEveryMessage) {
  const auto plan = PlanWithRows(PARAMETER_SERVER, OptimizerSpec::SGD);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const PsClient::Options windows;
  EXPECT_EQ(plan->message_bytes,
            2 * static_cast<int64_t>(windows.pull_window_bytes +
                                     windows.push_window_bytes));
}

}  // namespace
}  // namespace syncline::worker
